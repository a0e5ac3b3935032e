"""The log of a job, whoever wrote it: NCCL, a framework, a launcher, the kernel, in one stream or in many files.

`scan` reads and counts, `facts_of` turns what was counted into rows. Large plain files are read by two processes.
"""

import gc
import os
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from nccl_doctor import tables
from nccl_doctor.facts import Facts
from nccl_doctor.sources import census, formats, heads, prefixes
from nccl_doctor.sources.census import Census
from nccl_doctor.sources.nccl_rows import Context, communicator, edge, rows
from nccl_doctor.sources.partial import Calls, Partial
from nccl_doctor.sources.patterns import load
from nccl_doctor.sources.ranks import Membership, Ranks
from nccl_doctor.sources.scan import Readable, Scanner

PARALLEL = 48 << 20  # bytes that are worth a process of their own
PROCESSES = 8  # more of them would only wait for their sums to be added up

Part = tuple[str, Partial, Census]  # a log: its name, what was counted, and what its end shows

_ALWAYS = (
    "message",
    "process",
    "python_error",
    "process_end",
    "xid",
    "watchdog",
    "horovod_stall",
    "progress",
    "cuda_error",
)
_WITH_NCCL = ("ib_error", "ib_event", "verbs_error", "socket_error", "trail")
_WITH_INFO = ("communicator", "network", "interface", "net_device", "plugin", "env", "library", "gdr")


def head_of(line: str) -> heads.Record | None:
    """An NCCL line taken apart, or None for any other line."""
    found = heads.record(line)
    return heads.Record(heads.parse(found[0]), *found[1:]) if found else None


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: millions of tuples without a cycle would be walked again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


Tell = Callable[[int], None]  # takes the number of bytes that were read since the last call


def scan(stream: Readable) -> tuple[Partial, Census]:
    """Read a whole stream. Returns what was counted and what the end of it shows."""
    tail = _Tail(stream)
    with uncollected():
        return _scanner().read(tail), census.collect(bytes(tail.kept))


def scan_file(path: Path, tell: Tell | None = None) -> tuple[Partial, Census]:
    """Read a plain file, large ones in several processes. `tell` hears of progress, the other processes' share guessed."""
    size = path.stat().st_size
    count = min(size // PARALLEL, _processors(), PROCESSES)
    with path.open("rb", buffering=0) as file:
        if count < 2:
            return scan(Told(file, tell))
        cuts = [_line_start(file, size * part // count) for part in range(1, count)]
    with ProcessPoolExecutor(count) as pool, uncollected():
        end = pool.submit(_end, path, size)
        others = [pool.submit(_packed, path, start, stop - start) for start, stop in pairwise([*cuts, size])]
        partial = _stretch(path, 0, cuts[0], tell and (lambda size: tell(size * count)))
        for other in others:
            partial.merge(pickle.loads(other.result()))
        return partial, end.result()


def _processors() -> int:
    """How many processors this process may use; a batch system grants fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the first line behind an offset starts; the offset itself where a line has no end."""
    file.seek(offset)
    for start in range(0, 64 << 20, 1 << 16):
        at = file.read(1 << 16).find(b"\n")
        if at >= 0:
            return offset + start + at + 1
    return offset


def _stretch(path: Path, start: int, length: int, tell: Tell | None = None) -> Partial:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return _scanner().read(Told(file, tell), length)


def _end(path: Path, size: int) -> Census:
    with path.open("rb") as file:
        file.seek(max(size - census.TAIL, 0))
        return census.collect(file.read())


def _packed(path: Path, start: int, length: int) -> bytes:
    with uncollected():
        return pickle.dumps(_stretch(path, start, length), pickle.HIGHEST_PROTOCOL)


def _scanner() -> Scanner:
    return Scanner(marks=[literal for known in formats.FORMATS for literal in known.inside])


class Told:
    """A stream that tells how much was read of it."""

    def __init__(self, stream: Readable, tell: Tell | None) -> None:
        self._stream = stream
        self._tell = tell

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        if self._tell is not None:
            self._tell(len(data))
        return data

    def close(self) -> None:
        getattr(self._stream, "close", lambda: None)()


class _Tail:
    """A stream that remembers its end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.kept = bytearray()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self.kept += data
        if len(self.kept) > 4 * census.TAIL:
            del self.kept[: -census.TAIL]
        return data


def add(facts: Facts, parts: list[Part]) -> None:
    """Add the facts of all logs of a job. Ranks are known job-wide.

    What was counted is used up, so that a large log is not held twice.
    """
    with uncollected():
        _add(facts, parts)


def _add(facts: Facts, parts: list[Part]) -> None:
    ranks = Ranks(
        [member for _, partial, _ in parts for member in _members(partial)],
        [head for _, partial, _ in parts for head in partial.heads],
    )
    has_nccl = has_info = False
    for file, partial, _ in parts:
        has_nccl |= partial.nccl_lines > 0
        has_info |= any(key.level == "INFO" for key in partial.events) or any(partial.edges)
        log = _Log(facts, file, partial, ranks)
        facts.add(log.events())
        facts.fill(tables.Connection, log.edges())
        facts.add(log.processes())
    for file, partial, end in parts:
        facts.add(census.rows(facts, file, end, partial.lines, ranks))
    facts.look(*_ALWAYS)
    if has_nccl:
        facts.look(*_WITH_NCCL)
    if has_info:
        facts.look(*_WITH_INFO)


def _members(partial: Partial) -> Iterator[Membership]:
    telling = {p.order: p for p in load() if p.reader == "communicator" or p.name == "comm-nodes"}
    for key in partial.events:
        pattern = telling.get(key.pattern)
        match = pattern.compiled.match(key.body) if pattern is not None else None
        if match is None:
            continue
        dev = match["cuda_dev"] if "cuda_dev" in match.re.groupindex else None
        if match["comm_rank"] is not None:
            head = partial.heads[key.head]
            cuda_dev = int(dev) if dev else None
            yield Membership(head.host, head.pid, head.tid, cuda_dev, int(match["comm_rank"]), int(match["nranks"]))


class _Log:
    """One log on its way into the fact base: who wrote the lines of each head, and where the lines stand."""

    def __init__(self, facts: Facts, file: str, partial: Partial, ranks: Ranks) -> None:
        self._facts = facts
        self._file = file
        self._partial = partial
        self._ranks = ranks
        self._cleaned: dict[str, str] = {}
        self._who = [(ranks.place(head), ranks.rank(head), head.pid, head.tid, head.source) for head in partial.heads]

    def _clean(self, left: str) -> str:
        clean = self._cleaned.get(left)
        if clean is None:
            clean = self._cleaned[left] = prefixes.clean(left)
        return clean

    def _ref(self, line: int, left: str, token: str, text: str) -> int:
        return self._facts.evidence(self._file, line, f"{self._clean(left)}{token}{text}")

    def events(self) -> Iterator[Any]:
        patterns = load()
        calls: dict[tuple[Any, ...], tables.Collective] = {}
        events = self._partial.events
        waiting = list(reversed(events))
        while waiting:
            key = waiting.pop()
            event = events.pop(key)
            pattern = patterns[key.pattern] if key.pattern >= 0 else None
            text = event.text if isinstance(event, Calls) else key.body
            ref = self._ref(event.first, event.left, f"{heads.TOKEN}{key.level} " if key.level else "", text)
            who = self._who[key.head]
            fields = {"text": key.body} if pattern is None else pattern.match(key.body, key.level) or {}
            if pattern is not None and pattern.reader == "communicator" and key.level not in heads.SHOWN:
                yield communicator(*who[:4], fields, event.n, event.stamp, ref)
                continue
            left = self._clean(event.left)
            context = Context(*who, key.level, event.n, event.last, event.stamp, ref, key.body, left)
            if context.host is None and fields.get("rank") and "host" not in fields:
                context = context._replace(host=self._ranks.host_of_rank(int(fields["rank"])))
            if isinstance(event, Calls):
                for row in rows(pattern, context, fields):
                    _merge(calls, row._replace(first_op=event.low, last_op=event.high))
            else:
                yield from rows(pattern, context, fields)
        yield from calls.values()

    def edges(self) -> Iterator[tuple[Any, ...]]:
        """Rows of `connection`."""
        note, file, clean, channel = self._facts.evidence, self._file, self._clean, f"{heads.TOKEN}INFO Channel "
        for (host, rank, pid, tid, _), edges in zip(self._who, self._partial.edges, strict=True):
            for text, entry in edges.items():
                parsed = edge(text)
                if parsed is not None:
                    ref = note(file, entry.first, f"{clean(entry.left)}{channel}{entry.channel} : {text}")
                    yield host, rank, pid, tid, *parsed, entry.mask.bit_count() or 1, entry.n, ref
            edges.clear()

    def processes(self) -> Iterator[tables.Process]:
        processes: dict[tuple[str | None, int], list[Any]] = {}
        for (host, rank, pid, *_), span in zip(self._who, self._partial.spans, strict=True):
            if not span.n or pid is None:
                continue
            old = processes.get((host, pid))
            if old is None:
                processes[host, pid] = [rank, span.n, span.first, span.last, span.stamp]
            else:
                old[0] = old[0] if old[0] is not None else rank
                old[1] += span.n
                old[2], old[3] = min(old[2], span.first), max(old[3], span.last)
                old[4] = span.stamp if span.stamp is not None else old[4]
        for (host, pid), (rank, n, first, last, stamp) in processes.items():
            ref = self._facts.evidence(self._file, first, f"{host}:{pid} …")
            yield tables.Process(host, pid, rank, self._ranks.size.get((host, pid)), n, first, last, stamp, ref)


def _merge(calls: dict[tuple[Any, ...], tables.Collective], row: tables.Collective) -> None:
    """Calls of one process and kind are one row, whatever stood in front of their lines."""
    same = row[: row._fields.index("first_op")]
    old = calls.get(same)
    calls[same] = row if old is None else old._replace(
        n=old.n + row.n, first_op=min(old.first_op, row.first_op), last_op=max(old.last_op, row.last_op)
    )  # fmt: skip


def unknown(partial: Partial) -> list[tuple[str, int]]:
    """The most frequent shapes of NCCL messages that no pattern knows: (text with numbers replaced, lines)."""
    shapes: Counter[str] = Counter()
    for body, n in partial.unknown.items():
        shapes[re.sub(r"0x[0-9a-f]+|\d+", "#", prefixes.clean(body))[:160]] += n
    return shapes.most_common(20)
