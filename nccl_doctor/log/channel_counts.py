"""Channel lines: counted by process and edge, merged, and made rows of `connection`.

A job of 1,024 ranks that exchange all with all has two million edges: what stays of each is numbers and one text.
"""

import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_doctor.facts.store import BATCH, Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.rows import parse_ends, parse_medium

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_EDGE_LINES = re.compile(
    r"^Channel \S+ : (\d{1,9})(?:\[[0-9a-f]+\])? -> (\d{1,9})(?:\[[0-9a-f]+\])?(?: \[(send|receive)\])? via (\S*\w)$",
    re.MULTILINE,
).findall
_MASKS = 50_000  # texts of channels remembered
_MASK = (1 << 64) - 1  # channels of which a column has a bit
_UNREADABLE = ("", "")  # stands for what carries an edge whose text is torn
_NUMBERS = ("header", "n", "first", "last", "src", "dst", "carrier")

Carrier = tuple[str, str]  # `send`, `receive` or nothing; what follows ` via `


class Carriers(dict[Carrier, int]):
    """Numbers of what carries edges, in the order in which they are asked for."""

    def __missing__(self, carrier: Carrier) -> int:
        number = self[carrier] = len(self)
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


class ChannelColumns:
    """Edges, one an entry of each column."""

    def __init__(self) -> None:
        self.key, self.mask = array("Q"), array("Q")  # of the text of an edge, 0 where not known; one bit a channel
        self.header, self.n, self.first, self.last, self.src, self.dst, self.carrier = (array("q") for _ in _NUMBERS)
        self.carriers = Carriers()
        self.text: list[str] = []  # `Channel 00/0 : 0[0] -> 1[1] via …` of the first line
        self.left: list[str] = []  # the text before `NCCL ` in it
        self.wide: dict[tuple[int, str], int] = {}  # header and edge -> the bits of channels that `mask` cannot hold

    def __len__(self) -> int:
        return len(self.n)

    def parse(self, text: str) -> Sequence[bool]:
        """Add what whole Channel lines say, one a line, and return which of them were added; the others may be of another kind."""
        found, lines = _EDGE_LINES(text), text.split("\n")
        if len(found) < len(lines) or "\ufffd" in text:
            return [flag for line in lines for flag in (self.parse(line) if len(lines) > 1 else [False])]
        src, dst, direction, via = zip(*found, strict=True)
        self.src.extend(map(int, src))
        self.dst.extend(map(int, dst))
        self.carrier.extend(map(self.carriers.__getitem__, zip(direction, via, strict=True)))
        self.text += lines
        return [True] * len(lines)

    def add(self, header: int, edges: ChannelsByEdge) -> None:
        """Add what was counted line by line for one header."""
        for text, one in edges.items():
            ends, (_, _, via) = parse_ends(text), text.partition(" via ")
            readable = ends is not None and parse_medium(via) is not None
            src, dst, direction = ends if readable and ends is not None else (0, 0, None)
            self.carrier.append(self.carriers[(direction or "", via) if readable else _UNREADABLE])
            numbers = (header, one.n, one.first, one.last, src, dst)
            for column, value in zip(self._numbers(), numbers, strict=False):
                column.append(value)
            self.key.append(0)
            self.mask.append(one.mask & _MASK)
            if one.mask > _MASK:
                self.wide[header, text] = self.wide.get((header, text), 0) | one.mask & ~_MASK
            self.text.append(f"Channel {one.channel} : {text}")
            self.left.append(one.left)

    def extend(self, columns: Mapping[str, "Array"], texts: Sequence[str], left: Sequence[str]) -> None:
        """Add edges given as columns."""
        for name in ("key", "mask", *_NUMBERS):
            getattr(self, name).frombytes(columns[name].tobytes())
        self.text += texts
        self.left += left

    def merge(self, other: "ChannelColumns", headers: Sequence[int], offset: int) -> None:
        """Append the edges of a part that begins `offset` lines later; `headers` are the numbers of its headers here."""
        import numpy as np

        if not len(other):
            return
        columns = other.arrays()
        columns["header"] = np.array(headers, np.int64)[columns["header"]]
        columns["first"] = columns["first"] + offset
        columns["last"] = columns["last"] + offset
        columns["carrier"] = np.array([self.carriers[one] for one in other.carriers], np.int64)[columns["carrier"]]
        self.extend(columns, other.text, other.left)
        for (header, text), bits in other.wide.items():
            mine = headers[header], text
            self.wide[mine] = self.wide.get(mine, 0) | bits

    def _numbers(self) -> Sequence["array[int]"]:
        return [getattr(self, name) for name in _NUMBERS]

    def arrays(self) -> dict[str, "Array"]:
        """All columns of numbers."""
        return self.arrays_of("key", "mask", *_NUMBERS)

    def arrays_of(self, *names: str) -> dict[str, "Array"]:
        """These columns of numbers."""
        import numpy as np

        columns: dict[str, array[int]] = {name: getattr(self, name) for name in names}
        return {name: np.frombuffer(column, column.typecode) for name, column in columns.items()}

    def fold(self) -> None:
        """Make the entries of one edge of one header one, in the order of headers and edges."""
        import numpy as np

        from nccl_doctor.common.text_keys import edge_keys

        if len(self) < 2:
            return
        columns = self.arrays()
        unknown = np.flatnonzero(columns["key"] == 0)
        if len(unknown):
            key = columns["key"].copy()
            key[unknown] = edge_keys([self.text[at].partition(" : ")[2].encode() for at in unknown.tolist()])
            columns["key"] = key
        order = np.lexsort((columns["first"], columns["key"], columns["header"]))
        key, header = columns["key"][order], columns["header"][order]
        start = np.flatnonzero(np.append(True, (key[1:] != key[:-1]) | (header[1:] != header[:-1])))
        if len(start) == len(order):
            return
        kept = order[start]
        folded = {name: column[kept] for name, column in columns.items()}
        folded["n"] = np.add.reduceat(columns["n"][order], start)
        folded["last"] = np.maximum.reduceat(columns["last"][order], start)
        folded["mask"] = np.bitwise_or.reduceat(columns["mask"][order], start)
        texts, left = ([column[at] for at in kept.tolist()] for column in (self.text, self.left))
        for name in ("key", "mask", *_NUMBERS):
            setattr(self, name, array(getattr(self, name).typecode))
        self.text, self.left = [], []
        self.extend(folded, texts, left)

    def spans(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each header the number of lines, the first and the last."""
        import numpy as np

        if not len(self):
            return
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

    def _channels(self, part: Sequence[int]) -> Iterator[int]:
        """How many different channels each of these edges has."""
        bits: Iterator[int] = map(int.bit_count, [self.mask[at] for at in part])
        if self.wide:
            edges = [(self.header[at], self.text[at].partition(" : ")[2]) for at in part]
            bits = (low + self.wide.get(edge, 0).bit_count() for low, edge in zip(bits, edges, strict=True))
        return (number or 1 for number in bits)

    def _order(self, headers: Sequence[int]) -> Sequence[int]:
        """The edges in the order of their headers, given in theirs, and of their first lines."""
        place = [0] * (max(headers, default=-1) + 1)
        for number, header in enumerate(headers):
            place[header] = number
        if "numpy" not in sys.modules:
            return sorted(range(len(self)), key=lambda at: (place[self.header[at]], self.first[at]))
        import numpy as np

        columns = self.arrays()
        return np.lexsort((columns["first"], np.array(place)[columns["header"]])).tolist() if len(self) else []

    def rows(self, facts: Facts, file: str, who: Sequence[Origin], headers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Rows of `connection`, by header in this order. Their evidence goes to `facts`. Consumes the texts."""
        cleaned: dict[str, str] = {}
        carried = [_carried(carrier) for carrier in self.carriers]
        order = [at for at in self._order(headers) if carried[self.carrier[at]]]
        authors = [one[:4] for one in who]
        for begin in range(0, len(order), BATCH):
            part = order[begin : begin + BATCH]
            channels_of, lines = list(self._channels(part)), []
            for at in part:
                left = cleaned.get(self.left[at])
                if left is None:
                    left = cleaned[self.left[at]] = f"{prefixes.clean(self.left[at])}{nccl_header.TOKEN}INFO "
                lines.append(left + self.text[at])
                self.text[at] = ""
            refs = facts.evidence_of(file, [self.first[at] for at in part], lines)
            columns = (
                [column[at] for at in part] for column in (self.header, self.src, self.dst, self.carrier, self.n)
            )
            for header, src, dst, carrier, n, channels, ref in zip(*columns, channels_of, refs, strict=True):
                yield (*authors[header], src, dst, *carried[carrier], channels, n, ref)


def _carried(carrier: Carrier) -> tuple[Any, ...]:
    """The columns of a row that say what carries an edge; none where that cannot be read."""
    direction, via = carrier
    medium = parse_medium(via)
    return () if medium is None else (*medium, direction or None)
