"""Groups of equal lines: lines of a block that differ only in their channel and the time stamp in front.

Nine of ten lines of a large NCCL log say `Channel 07/0 : 3[3] -> 4[4] via …`, once for each channel of an edge, or another
sentence that all ranks repeat. Reading each in Python takes longer than all other work; numpy hashes the writer and the
message of each, without its channel, and counts by hash. The caller reads each writer and each message once.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import (
    MIX,
    ROW,
    WORD,
    Flags,
    Keys,
    Numbers,
    mix,
    no_flags,
    rows_of,
    true_places,
    words_at,
)
from nccl_doctor.log.groups import collective_calls
from nccl_doctor.log.groups.edge_lines import EdgeParts, edge_parts
from nccl_doctor.log.groups.line_dates import has_dates, timeless

_U = np.uint64
_NCCL_INFO, _NCCL_WARN, _O_CHANNEL, _NCCL, _O, _N, _BLANK = (
    _U(int.from_bytes(part, "little")) for part in (b"NCCL INF", b"NCCL WAR", b"O Channe", b"NCCL ", b"O ", b"N ", b" ")
)
_FIVE, _TWO, _BYTE = (_U((1 << 8 * size) - 1) for size in (5, 2, 1))  # bytes of a word
_TOKEN = len("NCCL INFO ")
_SLASHED, _BARE = len("NCCL INFO Channel 07/0 : "), len("NCCL INFO Channel 07 : ")
_LONGEST = 1_024  # bytes of a text; longer ones do not come twice
_LEFT = 256  # bytes of the text before `NCCL INFO`
_CHANNELS = 64  # bits of a mask
_LEAST = np.iinfo(np.int64).min
_SPREAD = _U(0xD6E8FEB86659FD93)  # odd, so that no two writers fall together

_channel_of = np.full(1 << 16, _CHANNELS, np.uint8)  # by two digits as they lie in memory
for _channel in range(_CHANNELS):
    _channel_of[int.from_bytes(b"%02d" % _channel, "little")] = _channel
_bit_of = np.append(_U(1) << np.arange(_CHANNELS, dtype=_U), _U(0))

# `l 07/0 :` and `l 07 : 3` without the channel
_CLEAR_SLASHED, _SLASHED_WORD, _CLEAR_BARE, _BARE_WORD = (
    _U(int.from_bytes(part, "little"))
    for part in (b"\xff\xff\0\0\xff\0\xff\xff", b"l \0\0/\0 :", b"\xff\xff\0\0\xff\xff\xff\xff", b"l \0\0 : \0")
)

TEXT, EDGE, CALL = range(3)  # kinds of lines: a whole message, a Channel line, a collective call


class LineGroups(NamedTuple):
    """BlockGroups of equal lines of a block, one entry a group. Lines are numbered from 0."""

    key: Keys  # of their text; the same in all blocks
    mask: Keys  # one bit a channel
    n: Numbers
    first: Numbers
    last: Numbers
    low: Numbers  # the least and the greatest opCount, 0 where there is none
    high: Numbers


class PlainLines(NamedTuple):
    """Lines of one writer and one level, one entry a line: keys, and where their parts lie."""

    number: Numbers
    kind: npt.NDArray[np.uint8]
    channel: npt.NDArray[np.uint8]
    op: Numbers
    writer: Keys
    message: Keys
    start: Numbers
    at: Numbers
    text: Numbers
    end: Numbers

    def chosen(self, which: Numbers | Flags) -> "PlainLines":
        return PlainLines._make(column[which] for column in self)

    def left_places(self) -> Iterator[tuple[int, int]]:
        """Where the text before `NCCL ` begins and ends."""
        return zip(self.start.tolist(), self.at.tolist(), strict=True)


class BlockLines:
    """The lines of `block[:end]`, which ends at a line unless the log ends there. No line ends with a carriage return."""

    def __init__(self, block: bytes, end: int, shaped: "Callable[[bytes, PlainLines], Keys] | None" = None) -> None:
        """`shaped` gives the keys of messages where lines that hold no fact and differ only in numbers count as equal."""
        self._block = block.ljust(end + ROW)
        self.dated = has_dates(self._block)
        self._rows = rows_of(self._block)
        self._marks, self._is_stop = _marks(np.frombuffer(block, np.uint8, count=end), b"\r" in block)
        stops = self._marks[self._is_stop]
        self.stops = stops if len(stops) and stops[-1] == end - 1 else np.append(stops, end)  # behind each line's text
        self._lines = self._plain()
        if shaped is not None:
            self._lines = self._lines._replace(message=shaped(self._block, self._lines))
        self.groups = self._grouped()

    def _plain(self) -> PlainLines:
        """The plain lines: those of one writer, with one record of INFO or WARN, and not too long."""
        number, start, at, end = self._records()
        words = words_at(self._rows, at)
        level, is_info = words[:, 1] & _TWO, words[:, 0] == _NCCL_INFO
        is_record = (is_info & (level == _O)) | ((words[:, 0] == _NCCL_WARN) & (level == _N))
        if not is_record.all():
            number, start, at, end, words = (part[is_record] for part in (number, start, at, end, words))
        channel, behind = _channels(words, end - at)
        kind = (behind > 0).astype(np.uint8)
        text = at + np.maximum(behind, _TOKEN)
        left = rows_of(timeless(self._block)) if self.dated else self._rows
        size = at - start  # the last word may hold the first bytes of `NCCL INFO`
        writer = mix(size.view(_U) * MIX, left, start, start + (size + (WORD - 1) & ~(WORD - 1)))
        message, op = ((end - at) << 1 | kind).view(_U) * MIX, np.zeros(len(at), np.int64)
        long = np.flatnonzero(end - text > ROW)
        calls = collective_calls.find(self._block, self._rows, text[long], end[long]) if len(long) else None
        if calls is None:
            message = mix(message, self._rows, at, end, words)
        else:  # a call is known by its function and what follows its buffers
            found = long[calls.which]
            of_call = ((end[found] - calls.sizes) << 16 | (calls.function_end - at[found])).view(_U) * MIX
            of_call = mix(of_call, self._rows, at[found], calls.function_end, words[found])
            message[found] = mix(of_call, self._rows, calls.sizes, end[found])
            kind[found], op[found] = CALL, calls.op
            rest = np.flatnonzero(kind != CALL)
            message[rest] = mix(message[rest], self._rows, at[rest], end[rest], words[rest])
        return PlainLines(number, kind, channel, op, writer, message, start, at, text, end)

    def _records(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Lines with a mark that are no longer than plain ones: number, start, first mark, end. No line holds `NCCL ` twice."""
        marks, stop = self._marks, self._is_stop
        stops = np.flatnonzero(stop)
        have = np.flatnonzero(np.diff(stops) > 1)  # lines with a mark, by the stop before them
        first = stops[have] + 1
        start, at, end = marks[first - 1] + 1, marks[first], marks[stops[have + 1]]
        inside = (at - start >= WORD) & (at - start <= _LEFT)
        inside &= (end - at >= _TOKEN + 2 * WORD) & (end - at <= _LONGEST)
        more = np.flatnonzero(~stop[1:] & ~stop[:-1]) + 1  # second and further marks of a line
        if len(more):
            twice = (words_at(self._rows, marks[more])[:, 0] & _FIVE) == _NCCL
            twice |= np.frombuffer(self._block, np.uint8)[marks[more]] == ord("\r")
            of = np.searchsorted(first, more[twice], side="right") - 1
            inside[of[of >= 0]] = False
        number = have + 1
        return (number, start, at, end) if inside.all() else (number[inside], start[inside], at[inside], end[inside])

    def _grouped(self) -> LineGroups:
        lines = self._lines
        key = lines.writer * _SPREAD ^ lines.message
        self._order = order = np.argsort(key)
        key, numbers = key[order], lines.number[order]
        place = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        if not len(place):
            return LineGroups(key, key, *[order] * 5)
        mask = np.bitwise_or.reduceat(_bit_of[lines.channel[order]], place)
        first, last = np.minimum.reduceat(numbers, place), np.maximum.reduceat(numbers, place)
        low = high = np.zeros(len(place), np.int64)
        if (lines.kind == CALL).any():
            op = lines.op[order]
            low, high = np.minimum.reduceat(op, place), np.maximum.reduceat(op, place)
        return LineGroups(key[place], mask, np.diff(place, append=len(key)), first, last, low, high)

    def first_lines(self, groups: Numbers) -> PlainLines:
        """The first lines of groups."""
        return self._lines.chosen(np.searchsorted(self._lines.number, self.groups.first[groups]))

    def last_lines(self, known: Flags) -> PlainLines:
        """The last line of each writer in known groups, in their order."""
        last = np.sort(np.searchsorted(self._lines.number, self.groups.last[known]))[::-1]
        _, behind = np.unique(self._lines.writer[last], return_index=True)
        return self._lines.chosen(np.sort(last[behind]))

    def left(self, start: int, at: int) -> str:
        """The text before `NCCL INFO`."""
        return self.part(start, at)

    def messages(self, lines: PlainLines) -> tuple[list[str], str]:
        """Levels of lines, and their messages, one a line."""
        is_info = np.frombuffer(self._block, np.uint8)[lines.at + len("NCCL ")] == ord("I")
        return ["INFO" if info else "WARN" for info in is_info.tolist()], self._joined(lines.text, lines.end)

    def edges(self, lines: PlainLines) -> EdgeParts:
        """The parts of Channel lines."""
        return edge_parts(self._block, self._rows, lines.text, lines.end)

    def channels(self, lines: PlainLines) -> tuple[list[str], Numbers]:
        """The different texts of channels such as `07/0` in Channel lines, and which of them each line has."""
        start, end = lines.at + (_TOKEN + len("Channel ")), lines.text - len(" : ")
        texts = words_at(self._rows, start)[:, 0] & ((_U(1) << ((end - start) << 3).view(_U)) - _U(1))
        _, at, of = np.unique(texts, return_index=True, return_inverse=True)
        return [self.part(start[place], end[place]) for place in at.tolist()], of

    def _joined(self, start: Numbers, end: Numbers) -> str:
        """Parts of the block, one a line."""
        places = zip(start.tolist(), end.tolist(), strict=True)
        return b"\n".join([self._block[begin:stop] for begin, stop in places]).decode("utf-8", "replace")

    def part(self, start: int, end: int) -> str:
        return self._block[start:end].decode("utf-8", "replace")

    def others(self, known: Flags) -> Numbers:
        """The numbers of the lines in no group that is known."""
        others = np.ones(len(self.stops), bool)
        others[self._lines.number[self._order[np.repeat(known, self.groups.n)]]] = False
        return np.flatnonzero(others)

    def joined(self, numbers: Numbers) -> bytes:
        """These lines, each with its end."""
        stops = self.stops[numbers]
        starts = np.where(numbers > 0, self.stops[numbers - 1] + 1, 0)
        lines = [self._block[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return b"\n".join([*lines, b""])


class GroupCounts:
    """Counts of equal lines over all blocks of a log, in columns."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, _U)  # ascending
        self._places: Numbers = np.empty(0, np.int64)  # of the keys among the entries
        self._size = 0
        self._what, self._author, self._n, self._first, self._last, self._low, self._high = (
            np.empty(0, np.int64) for _ in range(7)
        )
        self._mask: Keys = np.empty(0, _U)

    def __len__(self) -> int:
        return self._size

    def add(self, groups: LineGroups, offset: int, targets: Callable[[Numbers], tuple[Numbers, Numbers]]) -> Flags:
        """Count the groups of a block behind `offset` lines. Returns which of them were counted.

        `targets` is asked what new groups count for and who wrote them, as numbers; the least one where lines have to be
        read one by one.
        """
        at, known = self._find(groups.key)
        if not known.all():
            new = np.flatnonzero(~known)
            new = new[np.argsort(groups.first[new])]
            what, author = targets(new)
            clear = what != _LEAST
            if clear.any():
                self._extend(groups.key[new[clear]], what[clear], author[clear])
                at, known = self._find(groups.key)
        place = self._places[at[known]]
        self._mask[place] |= groups.mask[known]
        self._n[place] += groups.n[known]
        self._first[place] = np.minimum(self._first[place], groups.first[known] + offset)
        self._last[place] = groups.last[known] + offset
        self._low[place] = np.minimum(self._low[place], groups.low[known])
        self._high[place] = np.maximum(self._high[place], groups.high[known])
        return known

    def _find(self, key: Keys) -> tuple[Numbers, Flags]:
        if not len(self._keys):
            return np.zeros(len(key), np.int64), np.zeros(len(key), bool)
        at = np.searchsorted(self._keys, key)
        return at, self._keys.take(at, mode="clip") == key

    def _extend(self, key: Keys, what: Numbers, author: Numbers) -> None:
        begin, end = self._size, self._size + len(key)
        if end > len(self._n):
            self._grow(end - len(self._n) + len(self._n) // 2)
        self._size = end
        self._what[begin:end], self._author[begin:end] = what, author
        order = np.argsort(key)
        at = np.searchsorted(self._keys, key[order])
        self._keys = np.insert(self._keys, at, key[order])
        self._places = np.insert(self._places, at, np.arange(begin, end)[order])

    def _grow(self, more: int) -> None:
        """Make room for more entries that count none yet."""
        zeros = np.zeros(more, np.int64)
        largest = np.full(more, np.iinfo(np.int64).max)
        self._what, self._author = np.append(self._what, zeros), np.append(self._author, zeros)
        self._mask = np.append(self._mask, zeros.view(_U))
        self._n, self._last, self._high = (np.append(old, zeros) for old in (self._n, self._last, self._high))
        self._first, self._low = np.append(self._first, largest), np.append(self._low, largest)

    def columns(self) -> tuple[Any, ...]:
        """Of all entries: what they count for, author, mask, number of lines, first and last, low and high."""
        every = (
            self._what, self._author, self._mask, self._n, self._first, self._last, self._low, self._high,
        )  # fmt: skip
        return tuple(column[: self._size] for column in every)


def _channels(words: Keys, size: Numbers) -> tuple[npt.NDArray[np.uint8], Numbers]:
    """The channels of Channel lines, and where the text behind these begins; 0 for another line.

    `words` are those of `NCCL INFO Channel 07/0 : 3[3]`, in which the channel is cleared.
    """
    may_be = words[:, 1] == _O_CHANNEL
    if not may_be.any():
        return np.full(len(words), _CHANNELS, np.uint8), np.zeros(len(words), np.int64)
    word = words[:, 2].copy()
    channel = _channel_of[(word >> _U(16) & _TWO).view(np.int64)]
    slashed = (word & _CLEAR_SLASHED == _SLASHED_WORD) & (words[:, 3] & _BYTE == _BLANK)
    bare = (word & _CLEAR_BARE) & _U((1 << 56) - 1) == _BARE_WORD
    behind = np.where(slashed, _SLASHED, np.where(bare, _BARE, 0))
    behind[~may_be | (channel == _CHANNELS) | (size - behind < WORD)] = 0
    channel[behind == 0] = _CHANNELS
    words[:, 2] = np.where(
        behind == _SLASHED, word & _CLEAR_SLASHED, np.where(behind == _BARE, word & _CLEAR_BARE, word)
    )
    return channel, behind


def _marks(text: npt.NDArray[np.uint8], returns: bool) -> tuple[Numbers, Flags]:
    """The offsets of line ends, of `NC` and of carriage returns; and which of them are line ends."""
    size = len(text)
    marks = no_flags(size)
    np.equal(text[:-1], ord("N"), out=marks[: size - 1])
    other = np.equal(text, ord("C"))
    marks[: size - 1] &= other[1:]
    for character in "\n\r" if returns else "\n":
        marks[:size] |= np.equal(text, ord(character), out=other)
    at = true_places(marks)
    return at, text[at] == ord("\n")
