"""The log of a job, whoever wrote it: NCCL, a framework, a launcher, the kernel, in one stream or in many files.

`scan` reads and counts, `facts_of` turns what was counted into rows. Large plain files are read by two processes.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from nccl_doctor import tables
from nccl_doctor.facts import Facts
from nccl_doctor.sources import heads, prefixes
from nccl_doctor.sources.census import census
from nccl_doctor.sources.nccl_rows import Context, edge, rows
from nccl_doctor.sources.patterns import load
from nccl_doctor.sources.ranks import Membership, Ranks
from nccl_doctor.sources.scan import Event, Key, Partial, Readable, Scanner

PARALLEL = 96 << 20  # bytes from which a second process pays
TAIL = 4 << 20  # bytes at the end that the progress census reads

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
    at = line.find(heads.TOKEN)
    parsed = heads.level_of(line[at + len(heads.TOKEN) :]) if at >= 0 else None
    return heads.Record(heads.parse(line[:at]), *parsed) if parsed else None


def scan(stream: Readable) -> tuple[Partial, bytes]:
    """Read a whole stream. Returns what was counted and the last bytes for the census."""
    tail = _Tail(stream)
    return Scanner().read(tail), bytes(tail.kept)


def scan_file(path: Path) -> tuple[Partial, bytes]:
    """Read a plain file, large ones in two processes."""
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        if size < PARALLEL or (os.cpu_count() or 1) < 2:
            return scan(file)
        middle = _line_start(file, size // 2)
    with ProcessPoolExecutor(1) as pool:
        second = pool.submit(_stretch, path, middle, size - middle)
        partial = _stretch(path, 0, middle)
        partial.merge(second.result())
    with path.open("rb") as file:
        file.seek(max(size - TAIL, 0))
        return partial, file.read()


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the first line behind an offset starts; the offset itself where a line has no end."""
    file.seek(offset)
    for start in range(0, 64 << 20, 1 << 16):
        at = file.read(1 << 16).find(b"\n")
        if at >= 0:
            return offset + start + at + 1
    return offset


def _stretch(path: Path, start: int, length: int) -> Partial:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return Scanner().read(file, length)


class _Tail:
    """A stream that remembers its end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.kept = bytearray()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self.kept += data
        if len(self.kept) > 4 * TAIL:
            del self.kept[:-TAIL]
        return data


def add(facts: Facts, parts: list[tuple[str, Partial, bytes]], progress: Callable[[str], None] | None = None) -> None:
    """Add the facts of all logs of a job: (file name, what was counted, last bytes) each. Ranks are known job-wide."""
    members = [m for _, partial, _ in parts for m in _members(partial)]
    ranks = Ranks(members, [head for _, partial, _ in parts for head in partial.heads])
    has_nccl = has_info = False
    for file, partial, _ in parts:
        has_nccl |= partial.nccl_lines > 0
        has_info |= any(key.level == "INFO" for key in partial.events) or any(partial.edges)
        facts.add(_event_rows(facts, file, partial, ranks))
        facts.add(_edge_rows(facts, file, partial, ranks))
        facts.add(_process_rows(facts, file, partial, ranks))
    for file, partial, tail in parts:
        first = partial.lines - tail.count(b"\n") - (not tail.endswith(b"\n") and bool(tail))
        facts.add(census(facts, file, tail[-TAIL:], first + tail[:-TAIL].count(b"\n"), ranks))
    facts.look(*_ALWAYS)
    if has_nccl:
        facts.look(*_WITH_NCCL)
    if has_info:
        facts.look(*_WITH_INFO)


def _members(partial: Partial) -> Iterator[Membership]:
    orders = {p.order for p in load() if p.reader == "communicator" or p.name == "comm-nodes"}
    for key in partial.events:
        if key.pattern in orders:
            head, fields = partial.heads[key.head], load()[key.pattern].match(key.body, key.level) or {}
            if fields.get("comm_rank") is not None:
                dev = fields.get("cuda_dev")
                yield Membership(
                    head.host,
                    head.pid,
                    head.tid,
                    int(dev) if dev else None,
                    int(fields["comm_rank"]),
                    int(fields["nranks"]),
                )


def _context(facts: Facts, file: str, ranks: Ranks, head: heads.Head, key: Key, event: Event) -> Context:
    token = f"{heads.TOKEN}{key.level} " if key.level else ""
    left = prefixes.clean(event.left)
    text = f"{left}{token}{key.body}"
    ref = facts.evidence(file, event.first, text)
    return Context(
        ranks.place(head), ranks.rank(head), head.pid, head.tid, head.source, key.level, event.n, event.last, event.stamp,
        ref, key.body, left,
    )  # fmt: skip


def _event_rows(facts: Facts, file: str, partial: Partial, ranks: Ranks) -> Iterator[Any]:
    patterns = load()
    merged: dict[tuple[Any, ...], Any] = {}
    for key, event in partial.events.items():
        head = partial.heads[key.head]
        pattern = patterns[key.pattern] if key.pattern >= 0 else None
        context = _context(facts, file, ranks, head, key, event)
        fields = {"text": key.body} if pattern is None else pattern.match(key.body, key.level) or {}
        if (
            pattern is not None
            and "rank" in fields
            and "host" not in fields
            and context.host is None
            and fields["rank"]
        ):
            context = context._replace(host=ranks.host_of_rank(int(fields["rank"])))
        for row in rows(pattern, context, fields):
            if type(row) is tables.Collective:
                same = (type(row), *row[:10])
                old = merged.get(same)
                merged[same] = row if old is None else old._replace(
                    n=old.n + row.n, first_op=min(old.first_op, row.first_op), last_op=max(old.last_op, row.last_op)
                )  # fmt: skip
            else:
                yield row
    yield from merged.values()


def _edge_rows(facts: Facts, file: str, partial: Partial, ranks: Ranks) -> Iterator[Any]:
    every = ((head, *item) for head, edges in zip(partial.heads, partial.edges, strict=True) for item in edges.items())
    for head, text, entry in every:
        parsed = edge(text)
        if parsed is None:
            continue
        line = f"{prefixes.clean(entry.left)}{heads.TOKEN}INFO Channel {entry.channel} : {text}"
        ref = facts.evidence(file, entry.first, line)
        yield tables.Connection(
            ranks.place(head), ranks.rank(head), head.pid, head.tid, *parsed, entry.mask.bit_count() or 1, entry.n, ref
        )


def _process_rows(facts: Facts, file: str, partial: Partial, ranks: Ranks) -> Iterator[Any]:
    processes: dict[tuple[str | None, int], list[Any]] = {}
    for head, (n, first, last, stamp) in zip(partial.heads, partial.spans, strict=True):
        if not n or head.pid is None:
            continue
        host = ranks.place(head)
        old = processes.get((host, head.pid))
        if old is None:
            processes[host, head.pid] = [ranks.rank(head), n, first, last, stamp]
        else:
            old[0] = old[0] if old[0] is not None else ranks.rank(head)
            old[1] += n
            old[2], old[3] = min(old[2], first), max(old[3], last)
            old[4] = stamp if stamp is not None else old[4]
    for (host, pid), (rank, n, first, last, stamp) in processes.items():
        ref = facts.evidence(file, first, f"{host}:{pid} …")
        yield tables.Process(host, pid, rank, ranks.size.get((host, pid)), n, first, last, stamp, ref)


def unknown(partial: Partial) -> list[tuple[str, int]]:
    """The most frequent shapes of NCCL messages that no pattern knows: (text with numbers replaced, lines)."""
    shapes: Counter[str] = Counter()
    for body, n in partial.unknown.items():
        shapes[re.sub(r"0x[0-9a-f]+|\d+", "#", prefixes.clean(body))[:160]] += n
    return shapes.most_common(20)
