"""What is fuzzed: each target makes the files of one case and the command line that reads them."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random

import zstandard
from mutations import (
    NUMBERS,
    VALUES,
    WORDS,
    change_bytes,
    change_file,
    change_line,
    change_text,
    change_tree,
    encoded,
    some,
    toml_file,
)
from splices import MUTATORS, spliced

from nccl_doctor.app import analyze
from nccl_doctor.simulate import FAULTS, FRAMEWORKS, NETWORKS, PREFIXES, VERSIONS, Spec, fit, node, write_log
from nccl_doctor.watch.sources.demo import Demo

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures"
FORMATS = ("terminal", "json", "sarif", "markdown", "html", "junit", "slurm", "prometheus", "short")
LARGEST = 300_000  # bytes of a fixture that is changed
MOST = 16 << 20  # bytes of a file of a case: more would measure the machine


@dataclass
class Case:
    """Files below a folder, and the command line; `{}` in it is the folder."""

    target: str
    files: dict[str, bytes]
    command: list[str]
    flags: list[str] = field(default_factory=list)  # what must hold: `never healthy`


@cache
def fixtures() -> dict[str, dict[str, bytes]]:
    """Name -> files: each file of fixtures/, and each folder whose files belong together."""
    found = {}
    for path in sorted(FIXTURES.rglob("*")):
        name = str(path.relative_to(FIXTURES))
        if name.startswith("make") or path.name.endswith(".expected"):
            continue
        if path.is_file() and path.stat().st_size < LARGEST:
            found[name] = {path.name: path.read_bytes()}
        elif path.is_dir() and (path.parent.name in ("job", "torch")):
            found[name] = {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}
    return found


def log(rng: Random) -> str:
    """The log of an invented job."""
    spec = Spec(
        rng.choice((1, 2, 3)), rng.choice((1, 2, 4)), rng.choice(VERSIONS), rng.choice(NETWORKS), rng.choice(FRAMEWORKS),
        rng.choice(list(PREFIXES)), rng.choice([None, *FAULTS]), rng.randrange(9), rng.choice((2, 20)),
    )  # fmt: skip
    return "\n".join(write_log(fit(spec) if spec.fault else spec)) + "\n"


def _format(rng: Random) -> list[str]:
    return ["--format", rng.choice(FORMATS), *(["--jobs", rng.choice(("one", "each"))] if rng.random() < 0.2 else [])]


def logs(rng: Random) -> Case:
    """Damaged logs, one or several."""
    others = [log(rng)]
    files = {f"{n}.log": encoded(change_text(log(rng), rng, others)) for n in range(rng.choice((1, 1, 1, 2, 5)))}
    return Case("logs", files, ["analyze", "{}", *_format(rng)])


def formats(rng: Random) -> Case:
    """Files of every format, changed as their format asks for."""
    name = rng.choice(sorted(fixtures()))
    files = dict(fixtures()[name])
    for _ in range(some(rng, len(files))):
        one = rng.choice(sorted(files))
        is_pickle = files[one][:1] == b"\x80" and files[one] == fixtures()[name][one]  # once changed it may be none
        if is_pickle and rng.random() < 0.7:
            files[one] = pickle.dumps(change_tree(pickle.loads(files[one]), rng), rng.choice((2, 3, 4, 5)))
        else:
            files[one] = change_file(one, files[one], rng)
    where = "{}" if len(files) > 1 else "{}/" + next(iter(files))
    return Case("formats", files, ["analyze", where, *_format(rng)])


def inside(rng: Random) -> Case:
    """A file of another format in the middle of a log."""
    name = rng.choice(sorted(fixtures()))
    data = rng.choice(sorted(fixtures()[name].values()))
    first, second = log(rng), change_text(data.decode("utf-8", "replace"), rng)
    return Case("inside", {"job.log": encoded(first + second)}, ["analyze", "{}/job.log", *_format(rng)])


def splices(rng: Random) -> Case:
    """Genuine files of two kinds in one, in envelopes and encodings."""
    names = sorted(fixtures())
    one, other = (rng.choice(sorted(fixtures()[rng.choice(names)].values())) for _ in range(2))
    if rng.random() < 0.6:
        one = encoded(log(rng))
    data = spliced(one, other, rng) if rng.random() < 0.8 else one
    for mutator in rng.sample(MUTATORS, rng.randrange(3)):
        data = mutator(data, rng)
    command = ["analyze", "{}/job.log", *_format(rng)]
    return Case("splices", {"job.log": data}, command)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def packed(rng: Random) -> Case:
    """Compressed logs and archives, damaged."""
    files = {f"{n}/{rng.choice(('a', 'ä', '..', 'x y'))}.log": encoded(log(rng)) for n in range(rng.choice((1, 2, 6)))}
    kind = rng.choice((*PACKERS, "tar", "zip"))
    if kind in PACKERS:
        data = PACKERS[kind](b"".join(files.values()))
    elif kind == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        data = out.getvalue()
    else:
        out = io.BytesIO()
        with tarfile.open(
            fileobj=out, mode="w", format=rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
        ) as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        data = out.getvalue()
        if rng.random() < 0.5:
            data = PACKERS[rng.choice(sorted(PACKERS))](data)
    cut = rng.random() < 0.3
    data = data[: rng.randrange(1, len(data))] if cut else change_bytes(data, rng)
    flags = ["never healthy"] if cut and kind in PACKERS else []
    return Case("packed", {f"x.{kind}": data}, ["analyze", f"{{}}/x.{kind}", *_format(rng)], flags)


@cache
def _rules() -> list[Path]:
    return sorted((ROOT / "rules").glob("*/*.toml"))


def rules(rng: Random) -> Case:
    """Rule files of a site."""
    path = rng.choice(_rules())
    text = path.read_text("utf-8")
    if rng.random() < 0.6:
        values = (*VALUES, "SELECT 1 AS ref", "{host}", "{x:9999999999d}", "{n:.999999999f}", "{", "@hang", "NET001")
        tree = {**tomllib.loads(text), "id": "SITE001", "aliases": []}
        text = toml_file(change_tree(tree, rng, values))
    else:
        text = change_text(text, rng)
    folder = f"site/{path.name}"
    command = rng.choice(
        (["rules", "check", "{}/site"], ["analyze", "{}/a.log", "--rules", "{}/site", "--format", "json"])
    )
    return Case("rules", {folder: encoded(text), "a.log": encoded(log(rng))}, command)


def configuration(rng: Random) -> Case:
    """A configuration of `analyze`."""
    data = [tomllib.loads(rng.choice(_rules()).read_text("utf-8")) for _ in range(3)]
    tree = {
        "off": [data[0]["id"]],
        "severity": {data[1]["name"]: "note"},
        "params": {one["id"]: one.get("params", {}) for one in data},
    }
    text = toml_file(change_tree(tree, rng))
    files = {"site.toml": encoded(text), "a.log": encoded(log(rng))}
    return Case("configuration", files, ["analyze", "{}/a.log", "--config", "{}/site.toml"])


@cache
def _saved() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        analyze.read_facts([str(FIXTURES / "demo.log")])[0].save(Path(folder) / "x.db")
        return (Path(folder) / "x.db").read_bytes()


def saved(rng: Random) -> Case:
    """A saved fact base: damaged bytes, other values, other tables."""
    data = _saved()
    if rng.random() < 0.6:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.db"
            path.write_bytes(data)
            _change_base(path, rng)
            data = path.read_bytes()
    if rng.random() < 0.5:
        data = change_bytes(data, rng)
    command = rng.choice((["analyze", "{}/x.db"], ["sql", "{}/x.db", "SELECT * FROM message"], ["facts", "{}/x.db"]))
    return Case("saved", {"x.db": data}, command)


def _change_base(path: Path, rng: Random) -> None:
    base = sqlite3.connect(path, isolation_level=None)
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    filled = [name for name in tables if base.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()]
    for _ in range(some(rng)):
        table = rng.choice(filled)
        column = rng.choice([row[1] for row in base.execute(f"PRAGMA table_info({table})")])
        value = rng.choice([one for one in VALUES if not isinstance(one, list | dict)] + list(NUMBERS) + list(WORDS))
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            value = 7
        try:
            base.execute(
                rng.choice(
                    (
                        f'UPDATE {table} SET "{column}" = ?1',
                        f'UPDATE {table} SET "{column}" = ?1 WHERE rowid = 1',
                        f"DELETE FROM {table} WHERE ?1 IS ?1",
                        f"INSERT INTO {table} SELECT * FROM {table} WHERE ?1 IS ?1",
                        f"ALTER TABLE {table} RENAME TO x_{table}",
                        f'ALTER TABLE {table} ADD COLUMN "a;b" TEXT',
                    )
                ),
                (value,) if rng else (),
            )
        except (sqlite3.Error, OverflowError):
            continue
    base.close()


def recordings(rng: Random) -> Case:
    """A recording, read by `analyze` and by the live screen."""
    steps = Demo(rng.randrange(9))
    lines = [json.dumps(record) for _ in range(rng.choice((3, 40))) for record in steps.step()]
    for _ in range(some(rng, 9)):
        at = rng.randrange(len(lines))
        try:
            lines[at] = (
                json.dumps(change_tree(json.loads(lines[at]), rng))
                if rng.random() < 0.8
                else change_line(lines[at], rng)
            )
        except (ValueError, RecursionError):
            lines[at] = lines[at][: rng.randrange(1 + len(lines[at]))]
    about = {"schema": "nccl-doctor/run/1", "host": "node01", "started": 1.7e9, "command": ["x"], "status": 0}
    files = {
        "samples-node01.jsonl": encoded("\n".join(lines) + "\n"),
        "run-node01.json": encoded(json.dumps(change_tree(about, rng))),
        "job.out": encoded(log(rng)),
    }
    command = rng.choice(
        (["analyze", "{}"], ["watch", "--replay", "{}", "--once", "--format", rng.choice(("text", "json"))])
    )
    return Case("recordings", files, command)


@cache
def _tree(machine: str, fault: str | None) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        node.build(machine, fault).write(Path(folder))
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file() and not path.is_symlink()
        }


def trees(rng: Random) -> Case:
    """A kept tree of a node."""
    fault = rng.choice([None, *node.FAULTS])
    machines = node.FAULTS[fault].machines if fault else node.ALL_MACHINES
    files = dict(_tree(rng.choice(sorted(machines)), fault))
    for _ in range(some(rng, 20)):
        name = rng.choice(sorted(files))
        files[name] = change_file(name, files[name], rng) if rng.random() < 0.9 else b""
        if rng.random() < 0.1:
            del files[name]
    command = rng.choice((["analyze", "{}"], ["preflight", "--root", "{}", "--state", "-", "--timeout", "60"]))
    return Case("trees", files, [*command, "--format", "json"])


def explained(rng: Random) -> Case:
    """A pasted line."""
    line = change_line(rng.choice(log(rng).split("\n")), rng)
    return Case("explained", {}, ["explain", "--", line.replace("\0", "")])


def compared(rng: Random) -> Case:
    """Two runs."""
    first, second = log(rng), change_text(log(rng), rng)
    files = {"a.log": encoded(first), "b.log": encoded(second)}
    return Case("compared", files, ["compare", "{}/a.log", "{}/b.log", "--format", rng.choice(("terminal", "json"))])


def queries(rng: Random) -> Case:
    """A query of `sql` on a log."""
    query = tomllib.loads(rng.choice(_rules()).read_text("utf-8"))["query"]
    query = change_text(query, rng).replace("\0", "").encode("utf-8", "replace").decode()
    return Case(
        "queries",
        {"a.log": encoded(log(rng))},
        ["sql", "{}/a.log", query, "--format", rng.choice(("table", "csv", "json"))],
    )


TARGETS: dict[str, tuple[Callable[[Random], Case], int]] = {  # and how often, in parts
    "logs": (logs, 6), "formats": (formats, 8), "inside": (inside, 2), "packed": (packed, 3), "splices": (splices, 6), "rules": (rules, 3),
    "configuration": (configuration, 1), "saved": (saved, 2), "recordings": (recordings, 3), "trees": (trees, 3),
    "explained": (explained, 2), "compared": (compared, 1), "queries": (queries, 1),
}  # fmt: skip


def make(rng: Random, only: str = "", kept: list[Case] | None = None) -> Case:
    """A case: a new one, or a change of one that was kept because it did something new."""
    if kept and not only and rng.random() < 0.4:
        case = changed(rng.choice(kept), rng)
    else:
        names = [only] if only else list(TARGETS)
        name = rng.choices(names, [TARGETS[one][1] for one in names])[0]
        case = TARGETS[name][0](rng)
    return replace(case, files={name: data[:MOST] for name, data in case.files.items()})


def changed(case: Case, rng: Random) -> Case:
    """A case with one more change in one of its files."""
    files = dict(case.files)
    if files:
        name = rng.choice(sorted(files))
        files[name] = change_file(name, files[name], rng)
    return replace(case, files=files, flags=[])
