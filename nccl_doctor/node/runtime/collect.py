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
from typing import Any, NamedTuple, Protocol

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.schema import by_name, column_types, table_name
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime import shared_look
from nccl_doctor.node.runtime.children import Children, guarded
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
SHORT = (
    "amd",
    "efa",
    "selinux",
    "scheduler",
    "environment",
    "software",
    "ethernet",
)  # one child for all: a child takes 5 ms to start
STALLED = 0.5  # seconds after which those of them that have not begun get children of their own
_LINE = 1 << 22  # bytes of one row at most
_TEXT = 1 << 16  # characters of one value at most; a file of a node may be anything
_FITS: dict[type, tuple[type, ...]] = {float: (float, int), bool: (bool, int)}
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
    facts: Facts | Callable[[], Facts],
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

    `facts` may be a function that opens the fact base; it is called while the collectors work. `shared` is a folder in which
    callers that start together, such as the ranks of a job, share one look. `connection` is a descriptor whose end ends the
    look with ConnectionEnded. Returns the name of the look.
    """
    started = now()
    opened: list[Facts] = []

    def ask(some: Sequence[str], left: float) -> Answers:
        return _Look(root, some, left, now).ask(
            connection, lambda: opened.append(facts() if callable(facts) else facts)
        )

    answers = ask(names, seconds) if shared is None else shared_look.ask(shared, root, names, seconds, ask)
    for name in names:
        said = {"seconds": now() - started, **answers.ended.get(name, _HUNG)}
        enter(opened[0], host, name, answers.rows.get(name, []), said)
    return answers.look


class _Child(NamedTuple):
    """A started child: the collectors that it has not finished yet, and what it wrote since its last whole line."""

    names: list[str]
    buffer: bytearray


class _Look:
    """One look: which children run, and what they have answered so far."""

    def __init__(self, root: Root, names: Sequence[str], seconds: float, now: Callable[[], float]) -> None:
        self._root, self._names, self._now = root, names, now
        self._end = now() + seconds
        self._split = now() + min(
            STALLED, seconds / 4
        )  # when collectors that still wait for others get their own child
        self._rows: dict[str, list[Any]] = {name: [] for name in names}
        self._ended: dict[str, dict[str, Any]] = {}

    def ask(self, connection: int | None, meanwhile: Callable[[], None]) -> Answers:
        if not self._root.live:  # of many trees, each child would import the same anew
            for name in self._names:
                with suppress(Exception):
                    _module(name)
        with guarded() as children, selectors.DefaultSelector() as selector:
            if connection is not None:
                with suppress(OSError):  # a regular file, which never ends
                    selector.register(connection, selectors.EVENT_READ)
            together = [name for name in self._names if name in SHORT]
            for group in (*([name] for name in self._names if name not in SHORT), together):
                self._start(children, selector, group)
            meanwhile()
            try:
                self._listen(children, selector)
            finally:
                for key in list(selector.get_map().values()):
                    if key.data is not None:
                        os.close(key.fd)
        return Answers(f"{time.time():.6f}-{os.getpid()}", self._rows, self._ended)

    def _start(self, children: Children, selector: selectors.BaseSelector, names: list[str]) -> None:
        if names:
            _, pipe = children.start(functools.partial(_work, tuple(names), self._root))
            selector.register(pipe, selectors.EVENT_READ, _Child(names, bytearray()))

    def _listen(self, children: Children, selector: selectors.BaseSelector) -> None:
        while (left := self._end - self._now()) > 0 and any(key.data for key in selector.get_map().values()):
            for key, _ in selector.select(min(left, max(self._split - self._now(), 0)) if self._split else left):
                piece = os.read(key.fd, 1 << 16)
                if key.data is None:
                    if not piece:
                        raise ConnectionEnded
                    continue
                self._hear(key.data, piece)
                if not piece or not key.data.names or len(key.data.buffer) > _LINE:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    self._replace(children, selector, key.data.names)
            if self._split and self._now() >= self._split:
                self._split = 0.0
                for child in [key.data for key in selector.get_map().values() if key.data is not None]:
                    for name in child.names[1:]:
                        self._start(children, selector, [name])
                    del child.names[1:]

    def _hear(self, child: _Child, piece: bytes) -> None:
        child.buffer.extend(piece)
        for line in _lines(child.buffer):
            if child.names and _take(line, self._rows[child.names[0]], self._ended, child.names[0]):
                del child.names[0]

    def _replace(self, children: Children, selector: selectors.BaseSelector, names: list[str]) -> None:
        """A child ended: the collector that it was at has failed, and those behind it get a child of their own."""
        for name in names[:1]:
            self._ended.setdefault(name, _SILENT)
        for name in names[1:]:
            self._start(children, selector, [name])


def _lines(buffer: bytearray) -> Iterator[bytes]:
    while (end := buffer.find(b"\n")) >= 0:
        yield bytes(buffer[:end])
        del buffer[: end + 1]


def _take(line: bytes, rows: list[Any], ended: dict[str, dict[str, Any]], name: str) -> bool:
    """Keep one line of a child. Returns whether it was the last one of this collector."""
    try:
        said = json.loads(line)
    except ValueError:
        return False
    if isinstance(said, dict):
        ended[name] = said
    else:
        rows.append(said)
    return isinstance(said, dict)


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


def _work(names: Sequence[str], root: Root, pipe: int) -> None:
    """In a child: what these collectors say, one after the other."""
    with os.fdopen(pipe, "w", encoding="utf-8") as out:
        for name in names:
            root.denied.clear()
            root.odd.clear()
            for said in answer(name, root):
                out.write(json.dumps(said) + "\n")
                out.flush()  # a row that was read before the node hangs counts


def _module(name: str) -> Collector:
    module: Collector = importlib.import_module(f"nccl_doctor.node.{MODULES[name]}")
    return module


def answer(name: str, root: Root) -> Iterator[list[Any] | dict[str, Any]]:
    """What a collector says, fit for JSON: its rows as lists, at the end how it fared. Never raises."""
    started = time.monotonic()
    outcome, note, looked = "ok", "", []
    kept: list[list[Any]] = []  # rows of a tree, which count when all of them were read
    try:
        module = _module(name)
        for row in module.collect(root):
            *values, seen = row if isinstance(row[-1], Seen) else (*row, Seen(name, ""))
            table = table_name(type(row))
            cells = [_kept(*one) for one in zip(values, column_types(by_name()[table]).values(), strict=False)]
            said = [table, [*cells, None], [_kept(seen.path, str), _kept(seen.text[:2000], str), seen.line]]
            if root.live:
                yield said
            else:
                kept.append(said)
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
    if root.odd:  # what is missing then says nothing of the node, and rows that lack it would
        outcome, note, looked = "failed", "cannot be the copy of a file: " + ", ".join(dict.fromkeys(root.odd[:5])), []
    else:
        yield from kept
    if isinstance(root, Recorder):
        root.finish()
    yield {"outcome": outcome, "seconds": time.monotonic() - started, "note": note, "looked": looked}


def _kept(value: Any, wanted: type) -> Any:
    """A value as a column of this type can hold it, else None; what a node or a kept tree says may be anything."""
    if not isinstance(value, _FITS.get(wanted, wanted)):
        return None
    if isinstance(value, str):
        return value[:_TEXT].encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return value


def _words(error: BaseException) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())[:300]
