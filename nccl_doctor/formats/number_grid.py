"""Tables in columns of blanks whose rows are equally wide, read with numpy: all rows of a block at once."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

_BLANK, _ZERO, _NINE, _DOT, _LAST = (ord(sign) for sign in " 09.~")
_BASE = 10
_DIGITS = 15  # of a number that is exact as a float, whatever its point
_WIDEST, _CELLS = 24, 1 << 16  # characters of a cell, and cells that are looked at together
_POWERS = 10.0 ** np.arange(_DIGITS + 1)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Grid:
    """Those of some lines that have one width and their words in the same columns: plain ASCII, one word a column."""

    def __init__(self, rows: npt.NDArray[np.int64], signs: Bytes, columns: list[slice]) -> None:
        self.rows = rows  # which of the lines they are
        self.columns = columns  # where each word is, with the blanks that belong to its column
        self._signs = signs  # one row a line

    def part(self, start: int, stop: int) -> "Grid":
        """Some of the rows."""
        return (
            self
            if stop - start == len(self.rows)
            else Grid(self.rows[start:stop], self._signs[start:stop], self.columns)
        )

    def only(self, keep: Bools, among: Sequence[int]) -> "Grid":
        """Those rows; `among` says which lines the ones are that were given."""
        rows = np.array(among, np.int64)[self.rows]
        return (
            Grid(rows, self._signs, self.columns) if keep.all() else Grid(rows[keep], self._signs[keep], self.columns)
        )

    def words(self, column: int) -> Bytes:
        """The signs of a column, a row a line."""
        return self._signs[:, self.columns[column]]

    def texts(self, column: int, at: npt.NDArray[np.int64]) -> list[str]:
        """The words of a column in those rows."""
        return [word.tobytes().decode("ascii").strip() for word in self.words(column)[at]]

    def is_word(self, column: int, word: bytes) -> Bools:
        """Where a column holds just that word."""
        signs = self.words(column)
        width = signs.shape[1]
        if len(word) > width:
            return np.zeros(len(signs), bool)
        found = np.zeros(len(signs), bool)
        for padded in {word.ljust(width), word.rjust(width)}:
            found |= (signs == np.frombuffer(padded, np.uint8)).all(axis=1)
        return found

    def is_decimal(self, column: int) -> Bools:
        """Where a column holds a whole number of few digits."""
        signs = self.words(column)
        digits = (signs >= _ZERO) & (signs <= _NINE)
        found: Bools = (digits | (signs == _BLANK)).all(axis=1) & (digits.sum(axis=1) <= _DIGITS)
        return found

    def numbers(self, column: int) -> Floats:
        """The numbers of a column as `float` reads them; NaN for another word."""
        return numbers_in(self.words(column), number_of)


def numbers_in(signs: Bytes, other: Callable[[str], float]) -> Floats:
    """The numbers that rows of signs and blanks hold, exactly as `float` reads them; `other` reads words that are no plain decimals."""
    columns = ((signs[:, at], signs[:, at] != _BLANK) for at in range(signs.shape[1]))
    values, is_odd = _decimals(len(signs), columns)
    if is_odd.any():
        words = [word.tobytes().decode("ascii", "replace").strip() for word in signs[is_odd]]
        known = {word: other(word) for word in {*words}}
        values[is_odd] = [known[word] for word in words]
    return values


def cell_numbers(text: bytes, ends: npt.NDArray[np.int64], other: Callable[[str], float]) -> Floats | None:
    """The same of the cells of a text that end at these places, with one sign between them; NaN for an empty cell.

    None where a cell is too wide.
    """
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts
    if (widest := int(widths.max())) > _WIDEST:
        return None
    signs = np.frombuffer(text + b" " * widest, np.uint8)
    numbers = []
    for first in range(0, len(starts), _CELLS):
        begins, sizes = starts[first : first + _CELLS], widths[first : first + _CELLS]
        columns = ((signs[begins + at], sizes > at) for at in range(int(sizes.max())))
        values, is_odd = _decimals(len(begins), columns)
        values[sizes == 0] = np.nan
        odd = np.flatnonzero(is_odd & (sizes > 0))
        if len(odd):
            spans = zip(begins[odd].tolist(), (begins + sizes)[odd].tolist(), strict=True)
            words = [text[begin:end] for begin, end in spans]
            known = {word: other(word.decode("ascii", "replace")) for word in {*words}}
            values[odd] = [known[word] for word in words]
        numbers.append(values)
    return np.concatenate(numbers)


def _decimals(count: int, columns: Iterable[tuple[Bytes, Bools]]) -> tuple[Floats, Bools]:
    """So many numbers, of which each column holds a sign, and whether it is part of the number; and which are no plain decimals."""
    values, has_point, is_odd = np.zeros(count), np.zeros(count, bool), np.zeros(count, bool)
    digits, behind = np.zeros(count, np.int32), np.zeros(count, np.int32)  # and those of them behind the point
    for sign, inside in columns:
        digit = sign - np.uint8(_ZERO)  # of other signs more than 9
        is_digit = (digit < _BASE) & inside
        is_point = (sign == _DOT) & inside
        is_odd |= (inside ^ is_digit ^ is_point) | (is_point & has_point)
        values = np.where(is_digit, values * _BASE + digit, values)
        digits += is_digit
        behind += is_digit & has_point
        has_point |= is_point
    is_odd |= (digits > _DIGITS) | (digits == 0)
    if has_point.any():
        values /= _POWERS[np.minimum(behind, _DIGITS)]
    return values, is_odd


def number_of(word: str) -> float:
    """The number that a word is; NaN for another word."""
    try:
        return float(word)
    except ValueError:
        return float("nan")


def read_grid(lines: Sequence[str], words: int) -> Grid | None:
    """The lines that are as wide as the first and have so many words, each in a column of its own; None where they have no columns."""
    width = len(lines[0])
    rows = np.flatnonzero(np.fromiter(map(len, lines), np.int64, len(lines)) == width)
    text = "".join(lines if len(rows) == len(lines) else [line for line in lines if len(line) == width])
    if not width or not text.isascii():
        return None
    signs = np.asfortranarray(np.frombuffer(text.encode(), np.uint8).reshape(-1, width))
    filled = signs > _BLANK
    starts = filled.copy(order="F")
    starts[:, 1:] &= ~filled[:, :-1]
    fits = (starts.sum(axis=1) == words) & ((signs >= _BLANK) & (signs <= _LAST)).all(axis=1)
    if not fits.all():
        rows, signs, filled = rows[fits], signs[fits], filled[fits]
    edges = np.flatnonzero(np.diff(filled.any(axis=0), prepend=False, append=False)).reshape(-1, 2)
    if len(edges) != words or not all(filled[:, start:stop].any(axis=1).all() for start, stop in edges):
        return None
    return Grid(rows, signs, [slice(int(start), int(stop)) for start, stop in edges])
