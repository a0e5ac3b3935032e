"""The log of a job (NCCL, a framework, a launcher, the kernel; one stream or many files): makes rows from the counts of `parallel`.

Ranks are resolved over all files of the job.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.channel_counts import ChannelColumns
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.event_rows import EventRows, Lives
from nccl_doctor.log.line_patterns import Pattern, load
from nccl_doctor.log.parallel import without_garbage_collection
from nccl_doctor.log.ranks import rank_progress
from nccl_doctor.log.ranks.file_ranks import writers
from nccl_doctor.log.ranks.peer_hosts import PeerHosts
from nccl_doctor.log.ranks.rank_map import Membership, RankMap
from nccl_doctor.log.ranks.rank_progress import RankProgress

LogPart = tuple[str, LogCounts, RankProgress]  # a log: its name, what was counted, and what its end shows

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
        counts.finish()
    lives = [_lives(counts) for _, counts, _ in parts]
    ranks = RankMap(
        [member for (_, counts, _), lived in zip(parts, lives, strict=True) for member in _members(counts, lived)],
        [counts.headers[number] for _, counts, _ in parts for number in counts.in_order()],
    )
    logs = [EventRows(facts, file, counts, ranks, lived) for (file, counts, _), lived in zip(parts, lives, strict=True)]
    owners = writers({file: log.who for (file, _, _), log in zip(parts, logs, strict=True)}, ranks)
    peers = PeerHosts(member for log in logs for member in log.members())
    covered = {*_ALWAYS}.union(*(_covered(counts) for _, counts, _ in parts))
    for (file, counts, _), log in zip(parts, logs, strict=True):
        facts.expect(file, counts.lines, len(counts.columns) + len(counts.edges))
        if (owner := owners.get(file)) is not None:
            log.belongs_to(owner)
        log.add_events()
        facts.fill(tables.Connection, counts.edges.rows(facts, file, log.who, counts.in_order(), peers.of))
        counts.edges = ChannelColumns()
        facts.add(log.processes())
    for file, counts, end in parts:
        facts.add(rank_progress.rows(facts, file, end, counts.lines, ranks, owners.get(file)))
    facts.mark_covered(*sorted(covered))


def _covered(counts: LogCounts) -> Iterator[str]:
    """The tables of which a log would show rows if there were something to show, by the programs that wrote it."""
    patterns = load()
    levels = {(one.pattern, one.level) for one in counts.columns.messages}
    levels |= {(key.pattern, key.level) for key in counts.events}
    known = [patterns[number] for number in {number for number, _ in levels} if number >= 0]
    if counts.nccl_lines > 0 or any(pattern.where == "nccl" for pattern in known):
        yield from _WITH_NCCL
    # a program that reports cards in one of these forms reports them in the others too: UCX, perftest, drivers
    if any(map(_of_cards, known)):
        yield from _OF_CARDS
    if any(level == "INFO" for _, level in levels) or len(counts.edges) > 0:
        yield from _WITH_INFO


def _of_cards(pattern: Pattern) -> bool:
    return pattern.table in _OF_CARDS or pattern.name.startswith(("ucx-", "perftest-", "mlx5-"))


@cache
def _telling() -> dict[int, Pattern]:
    """The patterns that tell ranks, by their order."""
    return {pattern.order: pattern for pattern in load() if pattern.rank_groups}


def _lives(counts: LogCounts) -> Lives:
    telling = _telling()
    lives: Lives = [None] * len(counts.columns.messages)
    for number in set(counts.columns.message):  # the START of a communicator that came up has no event any more
        message = counts.columns.messages[number]
        pattern = telling.get(message.pattern)
        match = pattern.compiled.match(message.body) if pattern is not None else None
        if pattern is not None and match is not None:
            lives[number] = {**match.groupdict(), **pattern.set} if pattern.set else match.groupdict()
    return lives


def _members(counts: LogCounts, lives: Lives) -> Iterator[Membership]:
    """Which process took which rank of its largest communicators, each pair once, in the order of the lines."""
    named: list[tuple[str, int, str | None] | None] = [
        None if life is None else (life["comm_rank"], int(life["nranks"]), life.get("cuda_dev")) for life in lives
    ]
    columns = counts.columns
    places = [
        (first, number, taken)
        for first, number, taken in zip(
            columns.first, columns.header, map(named.__getitem__, columns.message), strict=True
        )
        if taken is not None
    ]
    events = [(number, taken) for _, number, taken in sorted(places, key=lambda place: (place[:2], place[2][0]))]
    largest: dict[int, int] = {}
    for number, (_, nranks, _) in events:
        if nranks > largest.get(number, -1):
            largest[number] = nranks
    for number, (comm_rank, nranks, dev) in dict.fromkeys(events):
        if nranks == largest[number]:
            head = counts.headers[number]
            yield Membership(head.host, head.pid, head.tid, int(dev) if dev else None, int(comm_rank), nranks)


def unknown(counts: LogCounts) -> list[tuple[str, int]]:
    """The most frequent shapes of NCCL messages that no pattern knows: (text with numbers replaced, lines)."""
    shapes: Counter[str] = Counter()
    for body, n in counts.unknown.items():
        shapes[re.sub(r"0x[0-9a-f]+|\d+", "#", prefixes.clean(body))[:160]] += n
    return shapes.most_common(20)
