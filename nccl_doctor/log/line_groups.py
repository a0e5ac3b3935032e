"""Groups of equal lines: lines of a block that differ only in their channel and the time stamp in front.

Nine of ten lines of a large NCCL log say `Channel 07/0 : 3[3] -> 4[4] via …`, once for each channel of an edge, or another
sentence that all ranks repeat. Reading each in Python takes longer than all other work; numpy hashes the text of
each without its channel and counts by hash. The caller reads the first line of a group.
"""

import re
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nccl_doctor.log import collective_calls

E = TypeVar("E")
Numbers = npt.NDArray[np.int64]  # offsets in a block, or numbers of lines
Keys = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_U = np.uint64
_NCCL, _INFO, _CHANNEL = (_U(int.from_bytes(part, "little")) for part in (b"NCCL INF", b"CL INFO ", b"Channel "))
_COLON = _U(int.from_bytes(b" : ", "little"))
_TOKEN = len("NCCL INFO ")
_WORD = 8  # bytes read at once
_SHORT = 64  # bytes of a text; longer ones do not come twice
_LEFT = 256  # bytes of the text before `NCCL INFO`
_CHANNELS = 64  # bits of a mask
_MIX = _U(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio
_DATE = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d")
_DATES = 1 << 13  # bytes in which a block with dates has one
_FRACTION = 9  # digits
_SHAPES = (0, b"0000-00-"), (8, b"00T00:00"), (11, b"00:00:00")  # parts of a date and their offsets
_ZEROS, _BEYOND_9, _HIGHEST = (_U(byte * 0x0101010101010101) for byte in (ord("0"), 0x7F - 9, 0x80))
_BYTE = _U(0x0001020304050607)  # times 1 << 8n: n in the highest byte

_channel_of = np.full(1 << 16, _CHANNELS, np.uint8)  # by two digits as they lie in memory
for _channel in range(_CHANNELS):
    _channel_of[int.from_bytes(b"%02d" % _channel, "little")] = _channel
_bit_of = np.append(_U(1) << np.arange(_CHANNELS, dtype=_U), _U(0))


class LineGroups(NamedTuple):
    """BlockGroups of equal lines of a block, one entry a group. Lines are numbered from 0."""

    key: Keys  # of their text; the same in all blocks
    mask: Keys  # one bit a channel
    n: Numbers
    first: Numbers
    last: Numbers
    low: Numbers  # the least and the greatest opCount, 0 where there is none
    high: Numbers


class KnownGroups(NamedTuple):
    """Groups of a block that were seen in earlier blocks."""

    flags: Flags  # of all groups
    places: Numbers  # of those that are known: what they count for


class BlockLines:
    """The lines of `block[:end]`, which ends at a line unless the log ends there. No line ends with a carriage return."""

    def __init__(self, block: bytes, end: int) -> None:
        self._block = block.ljust(_WORD)
        self.dated = _DATE.search(self._block, 0, _DATES) is not None
        self._marks, self._is_stop = _marks(np.frombuffer(block, np.uint8, count=end), b"\r" in block)
        stops = self._marks[self._is_stop]
        self.stops = stops if len(stops) and stops[-1] == end - 1 else np.append(stops, end)  # behind each line's text
        self.groups = self._grouped(*self._keys())

    def _keys(self) -> tuple[Keys, npt.NDArray[np.uint8], Numbers | None]:
        """Keys, channels and operation counts of plain lines: those of one writer, with one mark, and short or a call."""
        block, stop = self._block, self._is_stop
        here = np.flatnonzero(stop[:-2] & ~stop[1:-1] & stop[2:])
        start, at, end = self._marks[here] + 1, self._marks[here + 1], self._marks[here + 2]
        inside = (at - start >= _WORD) & (at - start <= _LEFT) & (end - at >= _TOKEN + 2 * _WORD)
        if not inside.all():
            here, start, at, end = here[inside], start[inside], at[inside], end[inside]
        words = _words(block)
        code = words[at + (_TOKEN + _WORD)]  # `07/0 : 3` or `07 : 3[3`
        channel = _channel_of[(code & _U(0xFFFF)).view(np.int64)]
        code >>= _U(16)
        slash = code & _U(0xFF) == ord("/")
        colon = np.where(slash, code >> _U(16), code) & _U(0xFFFFFF)
        edge = np.where(slash, len("Channel 07/0 : "), len("Channel 07 : "))
        is_edge: Flags = (words[at + _TOKEN] == _CHANNEL) & (colon == _COLON) & (channel < _CHANNELS)
        channel[~is_edge] = _CHANNELS
        text = at + _TOKEN + np.where(is_edge, edge, 0)
        plain = (words[at] == _NCCL) & (words[at + 2] == _INFO) & (end - text >= _WORD)
        long = np.flatnonzero(plain & (end - text > _SHORT))
        calls = collective_calls.find(block, words, at[long] + _TOKEN, end[long]) if len(long) else None
        of_calls = [part[long[calls.which]] for part in (here, start, at, end)] if calls is not None else []
        plain[long] = False
        if not plain.all():
            here, start, at, end, text = here[plain], start[plain], at[plain], end[plain], text[plain]
            is_edge, channel = is_edge[plain], channel[plain]
        number_of: Numbers = np.cumsum(stop, dtype=np.int64)
        left = _timeless(block) if self.dated else words
        key = (((at - start) << 8 | (end - text)) << 1 | is_edge).view(_U) * _MIX
        key = _mix(_mix(key, left, start, at), words, text, end)
        self._numbers, self._parts = number_of[here], [start, at, text, end]
        if calls is None:
            return key, channel, None
        # A call is known by its writer, its function and what follows its buffers.
        here, start, at, end = of_calls
        of_call = (((at - start) << 16 | (end - calls.sizes)) << 16 | (calls.function_end - at)).view(_U) * _MIX
        of_call = _mix(_mix(of_call, left, start, at), words, at + _TOKEN, calls.function_end)
        of_call = _mix(of_call, words, calls.sizes, end)
        numbers = np.append(self._numbers, number_of[here])
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        added = (start, at, at + _TOKEN, end)
        self._parts = [np.append(old, new)[order] for old, new in zip(self._parts, added, strict=True)]
        channel = np.append(channel, np.full(len(here), _CHANNELS, np.uint8))
        return np.append(key, of_call)[order], channel[order], np.append(np.zeros(len(key), np.int64), calls.op)[order]

    def _grouped(self, key: Keys, channel: npt.NDArray[np.uint8], op: Numbers | None) -> LineGroups:
        self._order = order = np.argsort(key)
        key, numbers = key[order], self._numbers[order]
        place = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        if not len(place):
            return LineGroups(key, key, *[order] * 5)
        mask = np.bitwise_or.reduceat(_bit_of[channel[order]], place)
        first, last = np.minimum.reduceat(numbers, place), np.maximum.reduceat(numbers, place)
        low = high = np.zeros(len(place), np.int64)
        if op is not None:
            op = op[order]
            low, high = np.minimum.reduceat(op, place), np.maximum.reduceat(op, place)
        return LineGroups(key[place], mask, np.diff(place, append=len(key)), first, last, low, high)

    def openings(self, groups: Numbers) -> Iterator[tuple[int, str, str | None, str]]:
        """The first lines of groups: number, the text before `NCCL INFO`, channel, text.

        The channel is `07/0`, and the text an edge; no channel where it is another line, and the text is its message.
        """
        numbers = self.groups.first[groups]
        where = np.searchsorted(self._numbers, numbers)
        places = (part[where].tolist() for part in self._parts)
        for number, start, at, text, end in zip(numbers.tolist(), *places, strict=True):
            channel = self._part(at + _TOKEN + _WORD, text - len(" : ")) if text > at + _TOKEN else None
            yield number, self._part(start, at), channel, self._part(text, end)

    def closings(self, groups: Numbers) -> Iterator[tuple[int, str]]:
        """The last lines of groups: number, and the text before `NCCL INFO`."""
        numbers = self.groups.last[groups]
        where = np.searchsorted(self._numbers, numbers)
        start, at, _, _ = (part[where].tolist() for part in self._parts)
        return zip(numbers.tolist(), map(self._part, start, at), strict=True)

    def _part(self, start: int, end: int) -> str:
        return self._block[start:end].decode("utf-8", "replace")

    def others(self, known: Flags) -> Numbers:
        """The numbers of the lines in no group that is known."""
        others = np.ones(len(self.stops), bool)
        others[self._numbers[self._order[np.repeat(known, self.groups.n)]]] = False
        return np.flatnonzero(others)

    def text(self, numbers: Numbers) -> bytes:
        """These lines, each with its end."""
        stops = self.stops[numbers]
        starts = np.where(numbers > 0, self.stops[numbers - 1] + 1, 0)
        lines = [self._block[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return b"\n".join([*lines, b""])


class GroupCounts(Generic[E]):
    """Counts of equal lines over all blocks of a log."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._entries: list[E] = []
        self._keys: Keys = np.empty(0, _U)  # ascending
        self._places: Numbers = np.empty(0, np.int64)  # of the keys among the entries
        self._mask: Keys = np.empty(0, _U)
        self._n, self._first, self._last, self._low, self._high = (np.empty(0, np.int64) for _ in range(5))

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, lines: BlockLines, offset: int, entry: Callable[[int, str, str | None, str], E | None]
    ) -> KnownGroups:
        """Count the lines of a block behind `offset` others.

        `entry` is asked what a new group of lines counts for, with an opening; None where it has to be read line by line.
        """
        groups = lines.groups
        at, known = self._find(groups.key)
        if not known.all():
            new = np.flatnonzero(~known)
            new = new[np.argsort(groups.first[new])]
            openings = lines.openings(new)
            entries = [entry(number + offset, left, channel, text) for number, left, channel, text in openings]
            clear = [what for what in entries if what is not None]
            if clear:
                self._extend(groups.key[new[[what is not None for what in entries]]], clear)
                at, known = self._find(groups.key)
        place = self._places[at[known]]
        self._mask[place] |= groups.mask[known]
        self._n[place] += groups.n[known]
        self._first[place] = np.minimum(self._first[place], groups.first[known] + offset)
        self._last[place] = groups.last[known] + offset
        self._low[place] = np.minimum(self._low[place], groups.low[known])
        self._high[place] = np.maximum(self._high[place], groups.high[known])
        return KnownGroups(known, place)

    def closings(self, lines: BlockLines, counted: KnownGroups) -> Iterator[tuple[E, int, str]]:
        """The last lines of a block's groups in their order: its entry, number, the text before `NCCL INFO`."""
        order = np.argsort(lines.groups.last[counted.flags])
        entries = (self._entries[place] for place in counted.places[order].tolist())
        closings = lines.closings(np.flatnonzero(counted.flags)[order])
        return ((entry, *closing) for entry, closing in zip(entries, closings, strict=True))

    def _find(self, key: Keys) -> tuple[Numbers, Flags]:
        if not len(self._keys):
            return np.zeros(len(key), np.int64), np.zeros(len(key), bool)
        at = np.searchsorted(self._keys, key)
        return at, self._keys.take(at, mode="clip") == key

    def _extend(self, key: Keys, entries: list[E]) -> None:
        places = np.arange(len(self._entries), len(self._entries) + len(key))
        self._entries += entries
        order = np.argsort(key)
        at = np.searchsorted(self._keys, key[order])
        self._keys = np.insert(self._keys, at, key[order])
        self._places = np.insert(self._places, at, places[order])
        self._mask = np.append(self._mask, np.zeros(len(key), _U))
        self._n = np.append(self._n, np.zeros(len(key), np.int64))
        largest = np.full(len(key), np.iinfo(np.int64).max)
        self._first, self._low = np.append(self._first, largest), np.append(self._low, largest)
        self._high = np.append(self._high, np.zeros(len(key), np.int64))
        self._last = np.append(self._last, np.zeros(len(key), np.int64))

    def taken(self) -> Iterator[tuple[E, int, int, int, int, int, int]]:
        """Remove all entries; returns each with its mask, its number of lines, the numbers of the first and the last, low and high."""
        counted = (self._mask, self._n, self._first, self._last, self._low, self._high)
        columns = (column.tolist() for column in counted)
        rows = zip(self._entries, *columns, strict=True)
        self._clear()
        return rows


def _marks(text: npt.NDArray[np.uint8], returns: bool) -> tuple[Numbers, Flags]:
    """The offsets of line ends, of `NC` and of carriage returns; and which of them are line ends."""
    size = len(text)
    marks = np.empty(-(-size // _WORD) * _WORD, bool)
    marks[size - 1 :] = False
    np.equal(text[:-1], ord("N"), out=marks[: size - 1])
    other = np.equal(text, ord("C"))
    marks[: size - 1] &= other[1:]
    for character in "\n\r" if returns else "\n":
        marks[:size] |= np.equal(text, ord(character), out=other)
    words = marks.view(_U)
    full = np.flatnonzero(words != 0)  # twice as fast as to ask each byte
    found = words[full]
    if (found & (found - _U(1))).any():  # two in one word
        at = np.flatnonzero(marks)
    else:
        at = full * _WORD + (found * _BYTE >> _U(56)).view(np.int64)
    return at, text[at] == ord("\n")


def _words(block: bytes | bytearray) -> Keys:
    """The words that begin at each byte of a block; those of a bytearray can be changed."""
    first = np.frombuffer(block, "<u8", count=1)
    return np.lib.stride_tricks.as_strided(first, (len(block) - _WORD + 1,), (1,))


def _timeless(block: bytes) -> Keys:
    """The words of a block in which dates with a time, and their fractions of a second, have no digit but 0."""
    masked = bytearray(block)
    text, words = np.frombuffer(masked, np.uint8), _words(masked)
    colon = text == ord(":")
    at = np.flatnonzero(colon[: -len("00:")] & colon[len("00:") :]) - len("0000-00-00T00")
    at = at[(at >= 0) & (at < len(block) - len("0000-00-00T00:00:00.") - _FRACTION)]
    for place, characters in ((4, b"-/"), (7, b"-/"), (10, b"T _")):
        at = at[_is_one_of(text[at + place], characters)]
    for place, shape in _SHAPES:
        at = at[_has_shape(words[at + place], shape)]
    for place, shape in _SHAPES:
        words[at + place] = _U(int.from_bytes(shape, "little"))
    at += len("0000-00-00T00:00:00")
    at = at[_is_one_of(text[at], b".,")] + 1
    for _ in range(_FRACTION):
        at = at[text[at] - np.uint8(ord("0")) < 10]
        text[at] = ord("0")
        at += 1
    return words


def _is_one_of(text: npt.NDArray[np.uint8], characters: bytes) -> Flags:
    found: Flags = np.logical_or.reduce([text == character for character in characters])
    return found


def _has_shape(words: Keys, shape: bytes) -> Flags:
    """Which words have digits where the shape has; its other characters match any."""
    digits = _U(int.from_bytes(bytes(0xFF if chr(character).isdigit() else 0 for character in shape), "little"))
    values = (words ^ _ZEROS) & digits
    shaped: Flags = ((values + _BEYOND_9) | values) & _HIGHEST == 0
    return shaped


def _mix(key: Keys, words: Keys, start: Numbers, end: Numbers) -> Keys:
    """Mix texts of at least a word into their keys, word by word; the last word may overlap the one before."""
    if not len(key):
        return key
    last, at, size = end - _WORD, start, end - start
    shortest = size.min()
    for place in range(0, size.max(), _WORD):
        mixed = words[at if place + _WORD <= shortest else np.minimum(at, last)]
        mixed ^= key
        mixed *= _MIX
        mixed ^= mixed >> _U(32)
        key = mixed if place < shortest else np.where(at < end, mixed, key)
        at = at + _WORD
    return key
