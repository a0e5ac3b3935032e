"""How an output was kept does not change what it says: byte order marks, line ends, blank lines, prompts of a shell, compression."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app.reading.input_reader import InputReader
from nccl_doctor.formats import registry

CAPTURES = [
    "topology/node01.xml", "topology/ras_behind.json", "topology/inspector.log", "topology/profiler_rank3.json",
    "topology/ras_healthy.txt", "network/dcgmi_nvlink.json", "network/perfquery_switch.txt", "network/mlxlink.txt",
    "gpu/amd_smi_metric.txt", "gpu/dcgm_exporter.txt", "gpu/dcgmi_diag.txt", "captures/smi_q_gpu3.txt", "captures/conda_list.txt",
    "captures/topo_nv18.txt", "captures/sacct.txt", "captures/mpijob_bad.yaml", "gridengine/qacct.txt", "stacks/stuck_rank0.txt",
    "timeline/input_gaps.json",
]  # fmt: skip
PROMPT = b"[root@node01 ~]# some-command --all | tee out.txt\n"
ENVELOPES: dict[str, Callable[[bytes], bytes]] = {
    "mark": lambda data: b"\xef\xbb\xbf" + data,
    "crlf": lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "powershell": lambda data: data.decode().replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-16"),
    "blank": lambda data: b"\n\n" + data + b"\n\n",
    "prompts": lambda data: PROMPT + data.rstrip(b"\n") + b"\n" + b"[root@node01 ~]# exit\n",
    "other shell": lambda data: b"user@node01:~/run$ cat out.txt\n" + data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
}
WRITTEN = b"2026-05-07T12:00:00.000000001Z"  # when a container runtime got a line


def before_each(prefix: bytes) -> Callable[[bytes], bytes]:
    """The lines of a capture behind a launcher's prefix."""
    return lambda data: b"".join(prefix + line for line in data.splitlines(keepends=True))


def docker(data: bytes) -> bytes:
    lines = data.decode().splitlines(keepends=True)
    records = ({"log": line.rstrip("\r\n") + "\n", "stream": "stdout", "time": WRITTEN.decode()} for line in lines)
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode()


PREFIXED: dict[str, Callable[[bytes], bytes]] = {
    "srun -l": before_each(b"0: "),
    "pdsh": before_each(b"node01: "),
    "kubectl logs --prefix": before_each(b"[pod/train-0/main] "),
    "kubectl logs --timestamps": before_each(WRITTEN + b" "),
    "CRI": before_each(WRITTEN + b" stdout F "),
    "docker": docker,
    "pods with times": before_each(b"[pod/train-0/main] " + WRITTEN + b" "),
}
PLACES = {"ref", "file", "line", "number", "last_line"}  # columns that say where, not what


def facts_of(path: Path, kind: str, places: set[str] = PLACES) -> dict[str, list[str]]:
    reader = InputReader([str(path)])
    reader.read_all()
    tables = next(known.tables for known in registry.FORMATS if known.kind == kind)
    found: dict[str, list[str]] = {}
    for table in tables:
        names = [name for (name,) in reader.facts.query(f"SELECT name FROM pragma_table_info('{table}')")]
        columns = [f'"{name}"' for name in names if name not in places]
        rows = reader.facts.query(f"SELECT {', '.join(columns)} FROM {table}")
        found[table] = sorted(map(repr, rows))
    return found


def changed_by(
    written: dict[str, Callable[[bytes], bytes]], name: str, folder: Path, places: set[str] = PLACES
) -> dict[str, dict[str, tuple[list[str], list[str]]]]:
    """Which of these ways to write a capture change its facts, with the first rows of each table that differs."""
    data = (FIXTURES / name).read_bytes()
    path = folder / "capture"
    path.write_bytes(data)
    reader = InputReader([str(path)])
    reader.read_all()
    kind = reader.facts.query("SELECT kind FROM input")[0][0]
    plain = facts_of(path, kind, places)
    assert any(plain.values())
    changed = {}
    for way, kept in written.items():
        path.write_bytes(kept(data))
        rows = facts_of(path, kind, places)
        if rows != plain:
            changed[way] = {
                table: (plain[table][:2], rows[table][:2]) for table in plain if rows[table] != plain[table]
            }
    return changed


@pytest.mark.parametrize("name", CAPTURES)
def test_an_envelope_changes_no_fact(name: str, tmp_path: Path) -> None:
    assert {} == changed_by(ENVELOPES, name, tmp_path)


# The number of batches of a timeline depends on where the blocks end in which it is read.
@pytest.mark.parametrize("name", [name for name in CAPTURES if not name.startswith("timeline/")])
def test_a_prefix_before_each_line_changes_no_fact_but_the_host(name: str, tmp_path: Path) -> None:
    assert {} == changed_by(PREFIXED, name, tmp_path, PLACES | {"host"})


@pytest.mark.parametrize(
    ("prefixes", "hosts"),
    [
        ((b"gpu-a: ", b"gpu-b: "), ("gpu-a", "gpu-b")),
        ((b" 9: ", b"10: "), ("task 9", "task 10")),
        ((b"[pod/w-0/m] ", b"[pod/w-1/m] "), ("w-0", "w-1")),
    ],
)
def test_lines_of_several_hosts_are_read_apart(
    prefixes: tuple[bytes, bytes], hosts: tuple[str, str], tmp_path: Path
) -> None:
    """Two GPUs with one number, mixed line by line, are two GPUs; evidence names the lines of the file."""
    first = b"GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 90 %\n    POWER:\n        SOCKET_POWER: 600 W\n"
    lines = [first.splitlines(keepends=True), first.replace(b"90", b"7").splitlines(keepends=True)]
    mixed = [prefix + line for pair in zip(*lines, strict=True) for prefix, line in zip(prefixes, pair, strict=True)]
    (tmp_path / "amd.txt").write_bytes(b"".join(mixed) + b"srun: error: a line of the launcher\n")
    reader = InputReader([str(tmp_path / "amd.txt")])
    reader.read_all()
    rows = reader.facts.query("SELECT u.host, util_mean, e.line, e.text FROM gpu_use u JOIN evidence e ON e.id = u.ref")
    written = b"".join(mixed).decode().splitlines()
    assert {(hosts[0], 90.0), (hosts[1], 7.0)} == {row[:2] for row in rows}
    assert all(written[line - 1].endswith(text) for _, _, line, text in rows)


@pytest.mark.parametrize("separator", [b";", b"\t"])
def test_a_table_saved_by_a_spreadsheet_changes_no_fact(separator: bytes, tmp_path: Path) -> None:
    """Where the decimal sign is a comma, `;` or a tab is between the cells."""
    title, *rows = (FIXTURES / "gpu/hot_gpu2.csv").read_bytes().splitlines(keepends=True)[:80]
    saved = [row.replace(b",", separator).replace(b".", b",") for row in rows]
    path = tmp_path / "gpu.csv"
    found = []
    for lines in ([title, *rows], [title.replace(b",", separator), *saved]):
        path.write_bytes(b"".join(lines))
        found.append(facts_of(path, "gpu-samples"))
    assert found[0] == found[1]
    assert found[0]["gpu_use"]


@pytest.mark.parametrize("name", [name for name in CAPTURES if name.endswith((".txt", ".log")) and "smi_q" not in name])
def test_two_captures_in_one_file_show_what_each_shows(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / name).read_bytes()
    path = tmp_path / "capture"
    path.write_bytes(data + data)
    reader = InputReader([str(path)])
    reader.read_all()
    kind, note = reader.facts.query("SELECT kind, note FROM input")[0]
    assert note is None
    found = facts_of(path, kind)
    path.write_bytes(data)
    once = facts_of(path, kind)
    assert all(len(rows) <= len(found[table]) for table, rows in once.items())


def test_a_log_behind_prefixes_stays_a_log() -> None:
    table = b"JobID|JobName|State\n1|train|FAILED\n"
    assert registry.recognise(before_each(b"0: ")(table)) is not None
    assert registry.recognise(before_each(b"0: ")(table + b"node01:1:1 [0] NCCL INFO Connected all rings\n")) is None
    assert registry.recognise(before_each(b"0: ")(b"training\nstep 1\nstep 2\n")) is None
    assert registry.recognise(b"node01: " + table + b"training\n" * 20) is None


def test_a_session_of_several_commands_is_a_log() -> None:
    listed = (FIXTURES / "captures/conda_list.txt").read_bytes()
    assert registry.recognise(PROMPT + listed) is not None
    assert registry.recognise(PROMPT + listed + PROMPT) is not None
    assert registry.recognise(PROMPT + listed + PROMPT + b"node01:1:1 [0] NCCL INFO Connected all rings\n") is None
    assert registry.recognise(b"+ conda list\n" + listed) is None


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    data = (FIXTURES / "captures/sacct.txt").read_bytes()
    lines = []
    for number, text in enumerate((data, PROMPT * 2 + b"\n" + data)):
        (tmp_path / f"{number}.txt").write_bytes(text)
        reader = InputReader([str(tmp_path / f"{number}.txt")])
        reader.read_all()
        lines.append([line for (line,) in reader.facts.query("SELECT line FROM evidence WHERE line > 0 ORDER BY line")])
    assert [line + 3 for line in lines[0]] == lines[1]
