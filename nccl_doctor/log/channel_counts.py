"""Channel lines: counted by process and edge while a log is read, merged, and made rows of `connection`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from nccl_doctor.facts.store import BATCH, Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.rows import Edge, parse_edge

_MASKS = 50_000  # texts of channels remembered


class ChannelCounts:
    """Channel lines of one process for one edge of a graph."""

    __slots__ = ("channel", "first", "last", "left", "mask", "n")

    def __init__(self, mask: int, n: int, first: int, last: int, channel: str, left: str) -> None:
        self.mask = mask  # one bit a channel
        self.n = n
        self.first = first
        self.last = last
        self.channel = channel  # `00/0` of the first line
        self.left = left

    def extend(self, mask: int, n: int, last: int) -> None:
        """Count more lines, none of them before the first."""
        self.mask |= mask
        self.n += n
        self.last = max(self.last, last)


ChannelsByEdge = dict[str, ChannelCounts]  # `0[0] -> 1[1] via …` -> its lines


class ChannelMasks(dict[str, int]):
    """`05/0` -> a bit for channel 5; no bit for text that is not a number."""

    def __missing__(self, channel: str) -> int:
        digits = channel.partition("/")[0].strip()
        mask = 1 << int(digits) if digits.isdecimal() and len(digits) < 4 else 0
        if len(self) < _MASKS:
            self[channel] = mask
        return mask


class PackedChannels(NamedTuple):
    """ChannelCounts of several processes in columns: many times as fast between processes of ours as the objects themselves."""

    sizes: list[int]  # how many edges each process has
    texts: str  # one a line
    columns: list[tuple[Any, ...]]  # the fields of ChannelCounts; empty without edges


def pack(edges: Iterable[ChannelsByEdge]) -> PackedChannels:
    edges = list(edges)
    rows = [(e.mask, e.n, e.first, e.last, e.channel, e.left) for one in edges for e in one.values()]
    return PackedChannels(
        [len(one) for one in edges], "\n".join(chain.from_iterable(edges)), list(zip(*rows, strict=True))
    )


def unpack(packed: PackedChannels) -> list[ChannelsByEdge]:
    if not packed.columns:
        return [{} for _ in packed.sizes]
    each = zip(packed.texts.split("\n"), map(ChannelCounts, *packed.columns), strict=True)
    return [dict(islice(each, size)) for size in packed.sizes]


def append(
    edges: Sequence[ChannelsByEdge], numbers: Iterable[int], more: Iterable[ChannelsByEdge], offset: int
) -> None:
    """Add the edges of a part that begins `offset` lines later; `numbers` are the indexes of its processes. Consumes `more`."""
    for number, one in zip(numbers, more, strict=True):
        known = edges[number]
        for text, added in one.items():
            old = known.get(text)
            if old is None:
                added.first += offset
                added.last += offset
                known[text] = added
            else:
                old.extend(added.mask, added.n, added.last + offset)


def _first(edge: tuple[str, ChannelCounts]) -> int:
    return edge[1].first


class Origin(NamedTuple):
    """The process behind a head."""

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    source: str | None


def rows(facts: Facts, file: str, processes: Iterable[tuple[Origin, ChannelsByEdge]]) -> Iterator[tuple[Any, ...]]:
    """Rows of `connection`, those of a process in the order of their lines. Their evidence goes to `facts`. Consumes the edges."""
    cleaned: dict[str, str] = {}
    waiting: list[tuple[Origin, ChannelCounts, Edge]] = []
    lines: list[str] = []
    for origin, one in processes:
        for text, entry in sorted(one.items(), key=_first) if len(one) > 1 else one.items():
            parsed = parse_edge(text)
            if parsed is not None:
                left = cleaned.get(entry.left)
                if left is None:
                    left = cleaned[entry.left] = f"{prefixes.clean(entry.left)}{nccl_header.TOKEN}INFO Channel "
                waiting.append((origin, entry, parsed))
                lines.append(f"{left}{entry.channel} : {text}")
        if len(waiting) >= BATCH:
            yield from _rows(facts, file, waiting, lines)
            waiting, lines = [], []
        one.clear()
    yield from _rows(facts, file, waiting, lines)


def _rows(
    facts: Facts, file: str, waiting: Sequence[tuple[Origin, ChannelCounts, Edge]], lines: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    refs = facts.evidence_of(file, [entry.first for _, entry, _ in waiting], lines)
    for (origin, entry, edge), ref in zip(waiting, refs, strict=True):
        yield *origin[:4], *edge, entry.mask.bit_count() or 1, entry.n, ref
