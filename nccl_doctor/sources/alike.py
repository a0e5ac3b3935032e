"""The lines of a block; Channel lines that differ in their channel only are found and counted at once.

Nine of ten lines of a large NCCL log say `Channel 07/0 : 3[3] -> 4[4] via …`, once for each channel of an edge. To look at
each in Python takes longer than all other work; numpy makes a number of each one's text without its channel and counts by
that. What a group of lines says is read from its first one, by whoever asks.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]  # offsets in a block, or numbers of lines

_U = np.uint64
_NCCL, _INFO = (_U(int.from_bytes(part, "little")) for part in (b"NCCL INF", b"CL INFO "))
_TOKEN = len("NCCL INFO ")
_CHANNEL = _U(int.from_bytes(b"Channel ", "little"))
_COLON = _U(int.from_bytes(b" : ", "little"))
_CHANNELS = 64  # bits of a mask
_WORD = 8  # bytes read at once
_MIX = _U(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio
_PLACES = _U((1 << 24) - 1)  # bits for the place of a line among others
_BYTE = _U(0x0001020304050607)  # times 1 << 8n: n in the highest byte

_channel_of = np.full(1 << 16, _CHANNELS, np.uint8)  # by two digits as they lie in memory
for _channel in range(_CHANNELS):
    _channel_of[int.from_bytes(b"%02d" % _channel, "little")] = _channel
_bit_of = _U(1) << np.arange(_CHANNELS, dtype=_U)


# Channel lines that differ in their channel only: key of their text (the same in all blocks), mask of their channels, how
# many, the numbers of the first and the last from 0, and a place for `opening`.
Group = tuple[int, int, int, int, int, int]


class Lines:
    """The lines of `block[:end]`, which ends at a line unless the log ends there. No line ends with a carriage return."""

    def __init__(self, block: bytes, end: int) -> None:
        self._block = block
        self._marks, self._is_stop = _marks(np.frombuffer(block, np.uint8, count=end), b"\r" in block)
        stops = self._marks[self._is_stop]
        self.stops = stops if len(stops) and stops[-1] == end - 1 else np.append(stops, end)  # behind each line's text
        self.groups = self._find()

    def _find(self) -> list[Group]:
        """Channel lines of two digits: the only mark in them is the `Ch` of `Channel`."""
        block, stop = self._block, self._is_stop
        here = np.flatnonzero(stop[:-2] & ~stop[1:-1] & stop[2:])
        start, at, end = self._marks[here] + 1, self._marks[here + 1], self._marks[here + 2]
        fits = (at - start >= _WORD + _TOKEN) & (at + 2 * _WORD <= len(block))
        if not fits.all():
            here, start, at, end = here[fits], start[fits], at[fits], end[fits]
        if not len(here):
            self._numbers = here
            return []
        first = np.frombuffer(block, "<u8", count=1)
        words = np.lib.stride_tricks.as_strided(first, (len(block) - _WORD + 1,), (1,), writeable=False)
        code = words[at + _WORD]  # `07/0 : 3` or `07 : 3[3`
        channel = _channel_of[(code & _U(0xFFFF)).view(np.int64)]
        code >>= _U(16)
        slash = code & _U(0xFF) == ord("/")
        edge = at + np.where(slash, len("Channel 07/0 : "), len("Channel 07 : "))
        colon = np.where(slash, code >> _U(16), code) & _U(0xFFFFFF)
        plain = (words[at] == _CHANNEL) & (words[at - _TOKEN] == _NCCL) & (words[at - _WORD] == _INFO)
        plain &= (channel < _CHANNELS) & (colon == _COLON) & (end - edge >= _WORD)
        if not plain.all():
            here, start, at, end, edge, channel = (one[plain] for one in (here, start, at, end, edge, channel))
        self._numbers = np.cumsum(stop)[here]
        self._parts = start, at, edge, end
        if not len(here):
            return []
        key = (at - start).view(_U) * _MIX + (end - edge).view(_U)
        _mix(key, words, start, at - _TOKEN)
        _mix(key, words, edge, end)
        return self._grouped(key, channel)

    def _grouped(self, key: npt.NDArray[np.uint64], channel: npt.NDArray[np.uint8]) -> list[Group]:
        order = key & ~_PLACES
        order |= np.arange(len(key), dtype=_U)
        order.sort()  # by numpy's vector code; sorting the places by their keys takes three times as long
        self._order = (order & _PLACES).view(np.int64)
        key = key[self._order]
        place = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        n = np.diff(place, append=len(key))
        mask = np.bitwise_or.reduceat(_bit_of[channel[self._order]], place)
        numbers = self._numbers[self._order]
        columns = key[place], mask, n, numbers[place], numbers[place + n - 1], place
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def opening(self, group: Group) -> tuple[str, str, str]:
        """What the first line of a group says: what stands before `NCCL INFO`, its channel, and its edge."""
        start, at, edge, end = (part[self._order[group[5]]] for part in self._parts)
        parts = self._block[start : at - _TOKEN], self._block[at + _WORD : edge - len(" : ")], self._block[edge:end]
        left, channel, text = (part.decode("utf-8", "replace") for part in parts)
        return left, channel, text

    def others(self, groups: Iterable[Group]) -> Numbers:
        """The numbers of the lines in no group, or in one of these."""
        others = np.ones(len(self.stops), bool)
        others[self._numbers] = False
        for group in groups:
            others[self._numbers[self._order[group[5] : group[5] + group[2]]]] = True
        return np.flatnonzero(others)

    def text(self, numbers: Numbers) -> bytes:
        """These lines, each with its end."""
        stops = self.stops[numbers]
        starts = np.where(numbers > 0, self.stops[numbers - 1] + 1, 0)
        lines = [self._block[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return b"\n".join([*lines, b""])


def _marks(text: npt.NDArray[np.uint8], returns: bool) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Where lines end, and where `Ch` or a carriage return stands in them; which of them are ends."""
    size = len(text)
    marks = np.empty(-(-size // _WORD) * _WORD, bool)
    marks[size - 1 :] = False
    np.equal(text[:-1], ord("C"), out=marks[: size - 1])
    other = np.equal(text, ord("h"))
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


def _mix(key: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64], start: Numbers, end: Numbers) -> None:
    """Mix texts of at least a word into their keys, word by word; the last word may overlap the one before."""
    last, at = end - _WORD, start
    for _ in range(0, int((end - start).max()), _WORD):
        key ^= words[np.minimum(at, last)]
        key *= _MIX
        key ^= key >> _U(32)
        at = at + _WORD
