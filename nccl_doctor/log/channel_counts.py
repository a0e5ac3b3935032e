"""Channel lines: counted by process and edge, merged, and made rows of `connection`.

A job of 1,024 ranks that exchange all with all has two million edges: what stays of each is numbers, from which its line is
made again where it is shown.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import BATCH, Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.rows import parse_medium

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_RANK, _GPU = r"(0|[1-9][0-9]{0,8})", r"(?:\[[0-9a-f]+\])?"
_ON_SRC, _ON_DST = rf"{_GPU} -> ", rf"{_GPU}(?: \[(?:send|receive)\])? via "
_BEHIND_SRC, _BEHIND_DST = compiled(_ON_SRC).fullmatch, compiled(rf"{_ON_DST}\S*\w").fullmatch
_ONE_EDGE = compiled(rf"{_RANK}({_ON_SRC}){_RANK}({_ON_DST}.*)", re.DOTALL).fullmatch
_CARRIER_ENDS = compiled(
    r"(?:\[([0-9a-f]+)\])? -> (?:\[([0-9a-f]+)\])?(?: \[(send|receive)\])? via (.*)", re.DOTALL
).fullmatch
_MASKS = 50_000  # texts of channels remembered
_MASK = (1 << 64) - 1  # channels of which a column has a bit
_NUMBERS = ("header", "n", "first", "last", "src", "dst", "carrier", "channel")

Carrier = tuple[
    str, str
]  # what stands behind the two ranks: `[0] -> ` and `[1] [send] via NET/IB/0`; a torn text and nothing


class Numbered(dict[Any, int]):
    """Numbers of values, in the order in which they are asked for."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


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


ChannelsByEdge = dict[str, ChannelCounts]  # `0[0] -> 1[1] via …` -> its lines


class ChannelMasks(dict[str, int]):
    """`05/0` -> a bit for channel 5; no bit for text that is not a number."""

    def __missing__(self, channel: str) -> int:
        digits = channel.partition("/")[0].strip()
        mask = 1 << int(digits) if digits.isdecimal() and len(digits) < 4 else 0
        if len(self) < _MASKS:
            self[channel] = mask
        return mask


class Origin(NamedTuple):
    """The process behind a head."""

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    source: str | None


HostsFor = Callable[[Origin], Callable[[int], str | None]]  # what gives the host of a rank as a process knows it


class ChannelColumns:
    """Edges, one an entry of each column."""

    def __init__(self, like: "ChannelColumns | None" = None) -> None:
        """`like` are columns whose numbers of carriers and channels these share."""
        self.mask = array("Q")  # one bit a channel
        self.header, self.n, self.first, self.last, self.src, self.dst, self.carrier, self.channel = (
            array("q") for _ in _NUMBERS
        )
        self.carriers: dict[Carrier, int] = Numbered() if like is None else like.carriers
        self.channels: dict[str, int] = Numbered() if like is None else like.channels  # `00/0`, of the first line
        self.left: list[str] = []  # the text before `NCCL ` in the first line
        self.wide: dict[tuple[int, str], int] = {}  # header and edge -> the bits of channels that `mask` cannot hold

    def __len__(self) -> int:
        return len(self.n)

    def carrier_number(self, behind_src: str, behind_dst: str) -> int | None:
        """The number of what carries the edges of whole Channel lines; None where these may be lines of another kind."""
        if not _BEHIND_SRC(behind_src) or not _BEHIND_DST(behind_dst) or "\ufffd" in behind_dst:
            return None
        return self.carriers[behind_src, behind_dst]

    def add(self, header: int, edges: ChannelsByEdge) -> None:
        """Add what was counted line by line for one header."""
        for text, one in edges.items():
            ends = _ONE_EDGE(text)
            src, behind_src, dst, behind_dst = ends.groups() if ends else (0, text, 0, "")
            numbers = (header, one.n, one.first, one.last, int(src), int(dst), self.carriers[behind_src, behind_dst])
            for column, value in zip(self._numbers(), (*numbers, self.channels[one.channel]), strict=True):
                column.append(value)
            self.mask.append(one.mask & _MASK)
            if one.mask > _MASK:
                self.wide[header, text] = self.wide.get((header, text), 0) | one.mask & ~_MASK
            self.left.append(one.left)

    def extend(self, columns: Mapping[str, "Array"], left: Sequence[str]) -> None:
        """Add edges given as columns."""
        for name in ("mask", *_NUMBERS):
            getattr(self, name).frombytes(columns[name].tobytes())
        self.left += left

    def merge(self, other: "ChannelColumns", headers: Sequence[int], offset: int) -> None:
        """Append the edges of a part that begins `offset` lines later; `headers` are the numbers of its headers here."""
        if not len(other):
            return
        import numpy as np

        columns = other.arrays()
        columns["header"] = np.array(headers, np.int64)[columns["header"]]
        columns["first"] = columns["first"] + offset
        columns["last"] = columns["last"] + offset
        columns["carrier"] = np.array([self.carriers[one] for one in other.carriers], np.int64)[columns["carrier"]]
        columns["channel"] = np.array([self.channels[one] for one in other.channels], np.int64)[columns["channel"]]
        self.extend(columns, other.left)
        for (header, text), bits in other.wide.items():
            mine = headers[header], text
            self.wide[mine] = self.wide.get(mine, 0) | bits

    def texts(self, edges: Iterable[int]) -> Iterator[str]:
        """What follows `Channel 00/0 : ` in the lines of these edges."""
        carriers = list(self.carriers)
        for at in edges:
            behind_src, behind_dst = carriers[self.carrier[at]]
            yield f"{self.src[at]}{behind_src}{self.dst[at]}{behind_dst}" if behind_dst else behind_src

    def _numbers(self) -> Sequence["array[int]"]:
        return [getattr(self, name) for name in _NUMBERS]

    def arrays(self) -> dict[str, "Array"]:
        """All columns of numbers."""
        return self.arrays_of("mask", *_NUMBERS)

    def arrays_of(self, *names: str) -> dict[str, "Array"]:
        """These columns of numbers."""
        import numpy as np

        columns: dict[str, array[int]] = {name: getattr(self, name) for name in names}
        return {name: np.frombuffer(column, column.typecode) for name, column in columns.items()}

    def fold(self) -> None:
        """Make the entries of one edge of one header one, in the order of headers and edges."""
        import numpy as np

        if len(self) < 2:
            return
        columns = self.arrays()
        header, edge = columns["header"], columns["src"] << 32 | columns["dst"]
        order = np.lexsort((columns["first"], columns["carrier"], edge, header))
        kinds = [column[order] for column in (header, edge, columns["carrier"])]
        start = np.flatnonzero(np.append(True, np.logical_or.reduce([kind[1:] != kind[:-1] for kind in kinds])))
        if len(start) == len(order):
            return
        kept = order[start]
        folded = {name: column[kept] for name, column in columns.items()}
        folded["n"] = np.add.reduceat(columns["n"][order], start)
        folded["last"] = np.maximum.reduceat(columns["last"][order], start)
        folded["mask"] = np.bitwise_or.reduceat(columns["mask"][order], start)
        left = [self.left[at] for at in kept.tolist()]
        for name in ("mask", *_NUMBERS):
            setattr(self, name, array(getattr(self, name).typecode))
        self.left = []
        self.extend(folded, left)

    def spans(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each header the number of lines, the first and the last."""
        if not len(self):
            return
        import numpy as np

        columns = self.arrays()
        order = np.argsort(columns["header"], kind="stable")
        header = columns["header"][order]
        start = np.flatnonzero(np.append(True, header[1:] != header[:-1]))
        found = (
            header[start],
            np.add.reduceat(columns["n"][order], start),
            np.minimum.reduceat(columns["first"][order], start),
            np.maximum.reduceat(columns["last"][order], start),
        )
        yield from zip(*(column.tolist() for column in found), strict=True)

    def _channels(self) -> Sequence[int]:
        """How many different channels each edge has."""
        if not self.wide:
            return [mask.bit_count() or 1 for mask in self.mask]
        edges = zip(self.header, self.texts(range(len(self))), strict=True)
        masks = (low | self.wide.get(edge, 0) for low, edge in zip(self.mask, edges, strict=True))
        return [mask.bit_count() or 1 for mask in masks]

    def _order(self, headers: Sequence[int]) -> Sequence[int]:
        """The edges in the order of their headers, given in theirs, and of their first lines; those of one line by their ranks."""
        place = [0] * (max(headers, default=-1) + 1)
        for number, header in enumerate(headers):
            place[header] = number
        if "numpy" not in sys.modules:
            where = zip(
                map(place.__getitem__, self.header), self.first, self.src, self.dst, range(len(self)), strict=False
            )
            return [at for *_, at in sorted(where)]
        import numpy as np

        columns = self.arrays()
        keys = columns["dst"], columns["src"], columns["first"], np.array(place)[columns["header"]]
        return np.lexsort(keys).tolist() if len(self) else []

    def rows(
        self, facts: Facts, file: str, who: Sequence[Origin], headers: Sequence[int], hosts_for: HostsFor
    ) -> Iterator[list[Any]]:
        """Rows of `connection`, by header in this order. Their evidence goes to `facts`."""
        fronts = {left: f"{prefixes.clean(left)}{nccl_header.TOKEN}INFO Channel " for left in dict.fromkeys(self.left)}
        channels = [f"{channel} : " for channel in self.channels]
        rows = self._rows(who, headers, hosts_for)
        while some := list(islice(rows, BATCH)):
            first = [at for at, _ in some]
            lines = [
                f"{fronts[self.left[at]]}{channels[self.channel[at]]}{text}"
                for at, text in zip(first, self.texts(first), strict=True)
            ]
            refs = facts.evidence_of(file, [self.first[at] for at in first], lines)
            for (_, row), ref in zip(some, refs, strict=True):
                row.append(ref)
                yield row

    def _rows(
        self, who: Sequence[Origin], headers: Sequence[int], hosts_for: HostsFor
    ) -> Iterator[tuple[int, list[Any]]]:
        """Rows without evidence, by their first lines, each behind the first of the edges of one header that it shows."""
        media = Numbered()
        carried = [_carried(carrier, media) for carrier in self.carriers]
        medium_of = [(own_gpu, columns) for own_gpu, *columns in media]
        src, dst, carrier, channels_of, lines_of = self.src, self.dst, self.carrier, self._channels(), self.n
        for header, edges in groupby(self._order(headers), self.header.__getitem__):
            writer = who[header]
            host_of, of_writer = hosts_for(writer), writer[:4]
            groups: dict[tuple[int, int, int | str | None], list[Any]] = {}  # first edge, peers, channels, lines
            for at in edges:
                one = carried[carrier[at]]
                if one is None:
                    continue
                medium, receives, inside, gpu = one
                own, peer = (dst[at], src[at]) if receives else (src[at], dst[at])
                key = own, medium, peer if inside else host_of(peer)
                group = groups.get(key)
                if group is None:
                    groups[key] = [at, [f"{peer}{gpu}"], channels_of[at], lines_of[at]]
                    continue
                group[1].append(f"{peer}{gpu}")
                group[2] += channels_of[at]
                group[3] += lines_of[at]
            for (own, medium, place), (at, peers, channels, lines) in groups.items():
                own_gpu, columns = medium_of[medium]
                host = place if not isinstance(place, int) else host_of(place) or writer.host
                counted = len(peers), channels, lines
                yield at, [*of_writer, own, own_gpu, host, ",".join(peers), *columns, *counted]


def _carried(carrier: Carrier, media: dict[tuple[Any, ...], int]) -> tuple[int, bool, bool, str] | None:
    """What carries an edge: the number of its medium, whether this side receives, whether it is inside a host, the peer's GPU.

    None where it cannot be read. The medium is the GPU of this side, and the columns of a row that say what carries it.
    """
    ends = _CARRIER_ENDS("".join(carrier))
    medium = ends and parse_medium(ends[4])
    if not ends or not medium:
        return None
    src_gpu, dst_gpu, direction, _ = ends.groups()
    receives = direction == "receive"
    own, peer = (dst_gpu, src_gpu) if receives else (src_gpu, dst_gpu)
    inside = medium.transport in ("P2P", "SHM") and medium.method != "MNNVL"
    return media[own, *medium, direction], receives, inside, f"[{peer}]" if peer else ""
