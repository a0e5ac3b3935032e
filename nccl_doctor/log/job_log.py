"""The log of a job (NCCL, a framework, a launcher, the kernel; one stream or many files): makes rows from the counts of `parallel`.

Ranks are resolved over all files of the job.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import channel_counts, nccl_header, rank_progress
from nccl_doctor.log.channel_counts import Origin
from nccl_doctor.log.counts import CollectiveCalls, LogCounts
from nccl_doctor.log.line_patterns import Pattern, load
from nccl_doctor.log.parallel import without_garbage_collection
from nccl_doctor.log.rank_map import Membership, RankMap
from nccl_doctor.log.rank_progress import RankProgress
from nccl_doctor.log.rows import COMMUNICATOR, Context, communicator, rows

LogPart = tuple[str, LogCounts, RankProgress]  # a log: its name, what was counted, and what its end shows
Lives = list[re.Match[str] | None]  # of each event: what it says where it names a rank of a communicator

_ALWAYS = (
    "message",
    "known_message",
    "process",
    "python_error",
    "process_end",
    "xid",
    "watchdog",
    "progress",
    "cuda_error",
)
_OF_CARDS = ("ib_error", "ib_event", "verbs_error")
_WITH_NCCL = (*_OF_CARDS, "socket_error", "trail")
_WITH_INFO = ("communicator", "network", "interface", "net_device", "plugin", "env", "library", "gdr")


def parse_record(line: str) -> nccl_header.Record | None:
    """An NCCL line taken apart, or None for any other line."""
    found = nccl_header.split_record(line)
    return nccl_header.Record(nccl_header.parse_header(found[0]), *found[1:]) if found else None


def add(facts: Facts, parts: list[LogPart]) -> None:
    """Add the facts of all logs of a job. RankMap are known job-wide.

    Consumes the counters, so that a large log is not held twice.
    """
    with without_garbage_collection():
        _add(facts, parts)


def _add(facts: Facts, parts: list[LogPart]) -> None:
    for _, counts, _ in parts:
        counts.sort_calls()
    lives = [_lives(counts) for _, counts, _ in parts]
    ranks = RankMap(
        [member for (_, counts, _), lived in zip(parts, lives, strict=True) for member in _members(counts, lived)],
        [counts.headers[number] for _, counts, _ in parts for number in counts.in_order()],
    )
    has_nccl = has_info = has_cards = False
    patterns = load()
    for (file, counts, _), lived in zip(parts, lives, strict=True):
        levels = {(key.pattern, key.level) for key in counts.events}
        known = [patterns[number] for number in {number for number, _ in levels} if number >= 0]
        has_nccl |= counts.nccl_lines > 0 or any(pattern.where == "nccl" for pattern in known)
        # a program that reports cards in one of these forms reports them in the others too: UCX, perftest, drivers
        has_cards |= any(map(_of_cards, known))
        has_info |= any(level == "INFO" for _, level in levels) or any(counts.channels)
        log = _LogRows(facts, file, counts, ranks, lived)
        facts.add(log.events())
        found = [(log.who[number], counts.channels[number]) for number in counts.in_order()]
        facts.fill(tables.Connection, channel_counts.rows(facts, file, found))
        facts.add(log.processes())
    for file, counts, end in parts:
        facts.add(rank_progress.rows(facts, file, end, counts.lines, ranks))
    facts.mark_covered(*_ALWAYS)
    if has_nccl:
        facts.mark_covered(*_WITH_NCCL)
    elif has_cards:
        facts.mark_covered(*_OF_CARDS)
    if has_info:
        facts.mark_covered(*_WITH_INFO)


def _of_cards(pattern: Pattern) -> bool:
    return pattern.table in _OF_CARDS or pattern.name.startswith(("ucx-", "perftest-", "mlx5-"))


def _lives(counts: LogCounts) -> Lives:
    telling = {pattern.order: pattern.compiled.match for pattern in load() if pattern.rank_groups}
    return [telling[key.pattern](key.body) if key.pattern in telling else None for key in counts.events]


def _members(counts: LogCounts, lives: Lives) -> Iterator[Membership]:
    """Which process took which rank, each pair once."""
    groups = {pattern.order: pattern.rank_groups for pattern in load()}
    named = ((key, match) for key, match in zip(counts.events, lives, strict=True) if match is not None)
    taken = dict.fromkeys((key.header, match.group(*groups[key.pattern])) for key, match in named)
    for number, (comm_rank, nranks, *dev) in taken:
        head = counts.headers[number]
        cuda_dev = int(dev[0]) if dev and dev[0] else None
        yield Membership(head.host, head.pid, head.tid, cuda_dev, int(comm_rank), int(nranks))


class _LogRows:
    """Makes rows from the counts of one log: who wrote the lines of each header, and where they are."""

    def __init__(self, facts: Facts, file: str, counts: LogCounts, ranks: RankMap, lives: Lives) -> None:
        self._facts = facts
        self._file = file
        self._counts = counts
        self._ranks = ranks
        self._lives = lives
        self._cleaned: dict[str, str] = {}
        self.who = [
            Origin(ranks.place(head), ranks.rank(head), head.pid, head.tid, head.source) for head in counts.headers
        ]

    def _clean(self, left: str) -> str:
        clean = self._cleaned.get(left)
        if clean is None:
            clean = self._cleaned[left] = prefixes.clean(left)
        return clean

    def events(self) -> Iterator[Any]:
        """Rows of all events other than channel lines. Consumes the counters."""
        patterns = load()
        calls: dict[tuple[Any, ...], tables.Collective] = {}
        events = self._counts.events
        waiting = list(zip(events, self._lives, strict=True))[::-1]
        self._lives.clear()
        while waiting:
            key, life = waiting.pop()
            event = events.pop(key)
            pattern = patterns[key.pattern] if key.pattern >= 0 else None
            text = event.text if isinstance(event, CollectiveCalls) else key.body
            token = f"{nccl_header.TOKEN}{key.level} " if key.level else ""
            ref = self._facts.evidence(self._file, event.first, f"{self._clean(event.left)}{token}{text}")
            who = self.who[key.header]
            if life is not None and pattern is not None and pattern.reader == COMMUNICATOR:
                members = {**life.groupdict(), **pattern.set} if pattern.set else life.groupdict()
                yield communicator(*who[:4], members, event.n, event.stamp, ref)
                if key.level not in nccl_header.SHOWN:
                    continue
            fields = {"text": key.body} if pattern is None else pattern.match(key.body, key.level) or {}
            left = self._clean(event.left)
            context = Context(*who, key.level, event.n, event.last, event.stamp, ref, key.body, left)
            if context.host is None and fields.get("rank") and "host" not in fields:
                context = context._replace(host=self._ranks.host_of_rank(int(fields["rank"])))
            if isinstance(event, CollectiveCalls):
                for row in rows(pattern, context, fields):
                    _merge(calls, row._replace(first_op=event.low, last_op=event.high))
            else:
                yield from rows(pattern, context, fields)
        yield from calls.values()

    def processes(self) -> Iterator[tables.Process]:
        processes: dict[tuple[str | None, int], list[Any]] = {}
        for number in self._counts.in_order():
            span = self._counts.spans[number]
            host, rank, pid, *_ = self.who[number]
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
    """CollectiveCalls of one process and kind are one row, whatever stood in front of their lines."""
    same = row[: row._fields.index("first_op")]
    old = calls.get(same)
    calls[same] = row if old is None else old._replace(
        n=old.n + row.n, first_op=min(old.first_op, row.first_op), last_op=max(old.last_op, row.last_op)
    )  # fmt: skip


def unknown(counts: LogCounts) -> list[tuple[str, int]]:
    """The most frequent shapes of NCCL messages that no pattern knows: (text with numbers replaced, lines)."""
    shapes: Counter[str] = Counter()
    for body, n in counts.unknown.items():
        shapes[re.sub(r"0x[0-9a-f]+|\d+", "#", prefixes.clean(body))[:160]] += n
    return shapes.most_common(20)
