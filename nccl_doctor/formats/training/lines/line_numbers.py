"""The numbers in many lines at once: runs of digits, read in columns."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import MIX, ROW, WORD, Flags, Keys, Numbers, mix, rows_of

Floats = npt.NDArray[np.float64]

MOST_DIGITS = 18
_DIGITS = 15  # of a number that is exact as a float
_TENS_EXACT = 22  # the largest power of ten that is exact as a float
_TENS = np.array([float(10**power) for power in range(_TENS_EXACT + 1)])
_ZERO = ord("0")
_THOUSANDS = compiled(rb"[1-9]\d{0,2}(?:,\d{3}){1,6}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?")
# How eight digits, the last one in the highest byte, become a number: neighbours are added by one multiplication.
_HALVES = tuple(
    (np.uint64(mask), np.uint64(factor), np.uint64(shift))
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 10 << 8 | 1, 8),
        (0x00FF00FF00FF00FF, 100 << 16 | 1, 16),
        (0x0000FFFF0000FFFF, 10_000 << 32 | 1, 32),
    )
)
_PART = 10**WORD  # values of the digits of one word


class LineNumbers(ABC):
    """The numbers of lines of one form, one entry a line; a number is a run of digits, counted from 0 in its line."""

    def __init__(self, count: int) -> None:
        self.count = count  # lines

    @abstractmethod
    def digits(self, run: int) -> "Numbers | int":
        """How many digits a run has: in each line, or in all."""

    @abstractmethod
    def whole(self, run: int) -> Floats:
        """The values of runs of digits; infinite where one is too long."""

    @abstractmethod
    def text(self, line: int, first: int, last: int) -> bytes:
        """What a line has from one run of digits to another."""

    def decimal(self, first: int, form: bytes) -> Floats:
        """The values of numbers of a form as `float` would read them: `0.0`, `0e-0`, `0.0e+0`."""
        last = first + form.count(b"0") - 1
        places = self.digits(first + 1) if b"." in form else 0
        shift = np.minimum(self.whole(last), 1000.0) if b"e" in form else np.zeros(self.count)
        shift = places + shift if b"-" in form else places - shift
        exact = (places + self.digits(first) <= _DIGITS) & (abs(shift) <= _TENS_EXACT)
        value = self.whole(first)
        if b"." in form:
            value = value * _TENS[np.minimum(places, _TENS_EXACT)] + self.whole(first + 1)
        tens = _TENS[np.minimum(abs(shift), _TENS_EXACT).astype(np.int64)]
        found: Floats = np.where(shift > 0, value / tens, value * tens)
        for line in np.flatnonzero(~exact).tolist():
            found[line] = _value(self.text(line, first, last))
        return found

    def parsed(self, first: int, last: int) -> Floats:
        """The values of numbers of any form from one run of digits to another."""
        return np.array([_value(self.text(line, first, last)) for line in range(self.count)], float)

    def writers(self, runs: tuple[int, ...]) -> Keys:
        """One key for lines with equal numbers, and none for others, `01` and `1` being others."""
        key = np.zeros(self.count, np.uint64)
        for run in runs:
            size = np.asarray(self.digits(run), np.int64).view(np.uint64)
            key = (key ^ (self.whole(run).view(np.uint64) + size)) * MIX
            key ^= key >> np.uint64(29)
        return key


class Group(NamedTuple):
    """Lines of a batch that differ in their numbers only."""

    key: int
    rows: Numbers  # of the batch
    numbers: LineNumbers


class Texts:
    """Lines, and the numbers in them: runs of digits."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.text = b"\n".join(lines) + b"\n"
        padded = self.text + bytes(ROW)
        data = np.frombuffer(padded, np.uint8)[: len(self.text)]
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        starts = np.cumsum(sizes + 1) - sizes - 1
        is_digit = (data - np.uint8(_ZERO)) < 10
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
        if is_digit[0]:
            edges = np.append(0, edges)
        self.begin, self.end = edges[::2], edges[1::2]  # each line ends with a line end, so each run ends
        self.first = np.searchsorted(self.begin, starts)  # runs of digits before each line
        self._data = data
        self._words = np.lib.stride_tricks.as_strided(np.frombuffer(padded, f"V{WORD}", 1), (len(padded) - WORD,), (1,))
        self.keys = self._keys(is_digit, starts, sizes)

    def _keys(self, is_digit: Flags, starts: Numbers, sizes: Numbers) -> Keys:
        """Keys of the lines with each run of digits as one 0."""
        kept = ~is_digit
        kept[self.begin] = True
        short = np.append(self._data[kept], np.zeros(ROW, np.uint8))
        short[(short - np.uint8(_ZERO)) < 10] = _ZERO
        dropped = np.append(0, np.cumsum(self.end - self.begin - 1))
        begin = starts - dropped[self.first]
        end = starts + sizes - dropped[np.append(self.first[1:], len(self.begin))]
        return mix((end - begin + 1).view(np.uint64) * MIX, rows_of(short.tobytes()), begin, end)

    def groups(self) -> list[Group]:
        """The lines that have equal keys; in the order of their first lines."""
        order = np.argsort(self.keys, kind="stable")
        keys = self.keys[order]
        edges = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        found = [
            Group(int(keys[start]), order[start:end], TextNumbers(self, order[start:end]))
            for start, end in pairwise(edges)
        ]
        return sorted(found, key=lambda group: int(group.rows[0]))

    def whole(self, run: Numbers) -> Floats:
        """The values of runs of digits; infinite where one is too long."""
        begin, size = self.begin[run], self.end[run] - self.begin[run]
        longest = int(size.max(initial=0))
        value = np.zeros(len(run), np.int64)
        for place in range((min(longest, MOST_DIGITS) - 1) // WORD, -1, -1):  # the last digits last
            left = np.maximum(size - place * WORD, 0)
            words = self._words[begin + np.maximum(left - WORD, 0)].view("<u8")
            value = value * _PART + value_of(words, np.minimum(left, WORD))
        return value.astype(float) if longest <= MOST_DIGITS else np.where(size > MOST_DIGITS, np.inf, value)


class TextNumbers(LineNumbers):
    """The numbers of some of the lines of a text."""

    def __init__(self, texts: Texts, rows: Numbers) -> None:
        super().__init__(len(rows))
        self._texts = texts
        self._base = texts.first[rows]

    def digits(self, run: int) -> Numbers:
        at = self._base + run
        return self._texts.end[at] - self._texts.begin[at]

    def whole(self, run: int) -> Floats:
        return self._texts.whole(self._base + run)

    def text(self, line: int, first: int, last: int) -> bytes:
        base = self._base[line]
        return self._texts.text[self._texts.begin[base + first] : self._texts.end[base + last]]


def value_of(words: Keys, size: "Numbers | int") -> Numbers:
    """The values of so many digits at the beginnings of words."""
    words = words << (WORD * (WORD - np.asarray(size, np.int64))).view(np.uint64)
    for mask, factor, shift in _HALVES:
        words &= mask
        words *= factor
        words >>= shift
    return words.view(np.int64)


def _value(text: bytes) -> float:
    """A number: `1,820` has its thousands apart; `0,51` and `12,5` have a comma as decimal sign."""
    if b"," in text:
        text = text.replace(b",", b"" if _THOUSANDS.fullmatch(text) else b".")
    try:
        return float(text)
    except ValueError:
        return float("nan")
