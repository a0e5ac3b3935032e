"""Runs collectors, each in a child with a deadline, and puts their rows into the fact base.

A child that blocks in the kernel cannot be killed; it is left behind and the parent goes on. Children talk JSON, so that
nothing they read can run code in the parent, which may be root's prolog.
"""

import functools
import importlib
import json
import os
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.store import Facts, by_name, column_types, table_name
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime import shared_look
from nccl_doctor.node.runtime.children import guarded
from nccl_doctor.node.runtime.recording import Recorder
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.runtime.shared_look import Answers

MODULES = {
    "gpu": "gpu.devices",
    "amd": "gpu.amd",
    "pci": "gpu.pci",
    "infiniband": "rdma.infiniband",
    "ethernet": "network.ethernet",
    "efa": "rdma.efa",
    "selinux": "host.selinux",
    "host": "host.host",
    "kernel_log": "host.kernel_log",
    "storage": "storage.file_systems",
    "software": "software.installed",
    "scheduler": "scheduler.grants",
    "environment": "software.environment",
    "ssh": "network.ssh",
    "deep": "deep.active_tests",
}
ON_DEMAND = ("ssh", "deep")  # logins to other nodes, and tests that use the hardware
COLLECTORS = tuple(name for name in MODULES if name not in ON_DEMAND)
_LINE = 1 << 22  # bytes of one row at most
_HUNG = {"outcome": "hung", "note": "no answer within the time limit", "looked": []}
_SILENT = {"outcome": "failed", "note": "ended without a word", "looked": []}


class Collector(Protocol):
    """A module of this package."""

    TABLES: Sequence[type]
    """The tables that it fills; those that stay empty mean that nothing is there."""

    def collect(self, root: Root) -> Iterable[Any]:
        """Rows with a `Seen` in place of `ref`. What cannot be had is left out; raises Absent without the subsystem."""
        ...


class ConnectionEnded(Exception):
    """The caller closed the connection."""


def collect(
    facts: Facts,
    root: Root,
    host: str | None,
    *,
    names: Sequence[str] = COLLECTORS,
    seconds: float = 5.0,
    now: Callable[[], float] = time.monotonic,
    shared: Path | None = None,
    connection: int | None = None,
) -> str:
    """Ask these collectors at once and fill the fact base until all have answered or the time is over.

    `shared` is a folder in which callers that start together, such as the ranks of a job, share one look. `connection` is a
    descriptor whose end ends the look with ConnectionEnded. Returns the name of the look.
    """
    started = now()
    if shared is None:
        answers = _ask(root, names, seconds, now, connection)
    else:
        answers = shared_look.ask(
            shared, root, names, seconds, lambda some, left: _ask(root, some, left, now, connection)
        )
    for name in names:
        said = {"seconds": now() - started, **answers.ended.get(name, _HUNG)}
        enter(facts, host, name, answers.rows.get(name, []), said)
    return answers.look


def _ask(root: Root, names: Sequence[str], seconds: float, now: Callable[[], float], connection: int | None) -> Answers:
    started = now()
    rows: dict[str, list[Any]] = {name: [] for name in names}
    ended: dict[str, dict[str, Any]] = {}
    if not root.live:  # of many trees, each child would import the same anew
        for name in names:
            with suppress(Exception):
                _module(name)
    with guarded() as children, selectors.DefaultSelector() as selector:
        for name in names:
            _, pipe = children.start(functools.partial(_work, name, root))
            selector.register(pipe, selectors.EVENT_READ, (name, bytearray()))
        if connection is not None:
            with suppress(OSError):  # a regular file, which never ends
                selector.register(connection, selectors.EVENT_READ)
        try:
            while (left := started + seconds - now()) > 0 and any(key.data for key in selector.get_map().values()):
                for key, _ in selector.select(left):
                    piece = os.read(key.fd, 1 << 16)
                    if key.data is None:
                        if not piece:
                            raise ConnectionEnded
                        continue
                    name, buffer = key.data
                    buffer.extend(piece)
                    for line in _lines(buffer):
                        _take(line, rows[name], ended, name)
                    if not piece or len(buffer) > _LINE:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        ended.setdefault(name, _SILENT)
        finally:
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    os.close(key.fd)
    return Answers(f"{time.time():.6f}-{os.getpid()}", rows, ended)


def _lines(buffer: bytearray) -> Iterator[bytes]:
    while (end := buffer.find(b"\n")) >= 0:
        yield bytes(buffer[:end])
        del buffer[: end + 1]


def _take(line: bytes, rows: list[Any], ended: dict[str, dict[str, Any]], name: str) -> None:
    try:
        said = json.loads(line)
    except ValueError:
        return
    if isinstance(said, dict):
        ended[name] = said
    else:
        rows.append(said)


def enter(facts: Facts, host: str | None, name: str, rows: list[Any], said: dict[str, Any]) -> None:
    """Put what a collector said of a node into the fact base."""
    made = []
    for table, values, (path, text, line) in rows:
        class_ = by_name()[table]
        row = dict(zip(column_types(class_), values, strict=True))
        row["ref"] = facts.text_evidence(path, text, line)
        if row.get("host", host) is None:
            row["host"] = host
        made.append(class_(**row))
    facts.add(made)
    facts.mark_covered(*said["looked"])
    note = said["note"]
    ref = facts.evidence(f"collector {name}", 1, f"{name}: {said['outcome']}{': ' if note else ''}{note}")
    facts.add([Collection(host, name, said["outcome"], round(said["seconds"], 4), note or None, ref)])


def _work(name: str, root: Root, pipe: int) -> None:
    with os.fdopen(pipe, "w", encoding="utf-8") as out:
        for said in answer(name, root):
            json.dump(said, out)
            out.write("\n")
            out.flush()


def _module(name: str) -> Collector:
    module: Collector = importlib.import_module(f"nccl_doctor.node.{MODULES[name]}")
    return module


def answer(name: str, root: Root) -> Iterator[list[Any] | dict[str, Any]]:
    """What a collector says, fit for JSON: its rows as lists, at the end how it fared. Never raises."""
    started = time.monotonic()
    outcome, note, looked = "ok", "", []
    try:
        module = _module(name)
        for row in module.collect(root):
            *values, seen = row if isinstance(row[-1], Seen) else (*row, Seen(name, ""))
            kept = [_kept(value) for value in values]
            yield [table_name(type(row)), [*kept, None], [_kept(seen.path), _kept(seen.text[:2000]), seen.line]]
        looked = [table_name(table) for table in module.TABLES]
    except Absent as error:
        outcome, note = "absent", _words(error)
        looked = [table_name(table) for table in module.TABLES]
    except TimeoutError as error:
        outcome, note = "hung", _words(error)
    except Exception as error:  # a bug of ours or a node that nobody foresaw: the rest goes on
        outcome, note = "failed", f"{type(error).__name__}: {_words(error)}"
    if outcome == "ok" and root.denied:
        outcome, note = "partial", "no permission for " + ", ".join(dict.fromkeys(root.denied[:5]))
    if isinstance(root, Recorder):
        root.finish()
    yield {"outcome": outcome, "seconds": time.monotonic() - started, "note": note, "looked": looked}


def _kept(value: Any) -> Any:
    """A value as the fact base can hold it; what a node says may be anything."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return value


def _words(error: BaseException) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())[:300]
