"""Tables in columns of blanks whose rows are equally wide, read with numpy: all rows of a block at once."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

_BLANK, _ZERO, _NINE, _DOT, _LAST = (ord(sign) for sign in " 09.~")
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
    digits = (signs >= _ZERO) & (signs <= _NINE)
    points = signs == _DOT
    count, dots = digits.sum(axis=1), points.sum(axis=1)
    plain = (digits | points | (signs == _BLANK)).all(axis=1)
    plain &= (dots <= 1) & (count > 0) & (count <= _DIGITS)
    whole = np.zeros(len(signs))
    for at in range(signs.shape[1]):
        whole = np.where(digits[:, at], whole * 10 + (signs[:, at] - float(_ZERO)), whole)
    if dots.any():
        whole /= _POWERS[np.minimum((digits & (np.cumsum(points, axis=1) > 0)).sum(axis=1), _DIGITS)]
    odd = np.flatnonzero(~plain)
    if len(odd):
        words = [word.tobytes().decode("ascii", "replace").strip() for word in signs[odd]]
        values = {word: other(word) for word in {*words}}
        whole[odd] = [values[word] for word in words]
    return whole


def cell_numbers(text: bytes, separator: bytes, other: Callable[[str], float]) -> Floats | None:
    """The same of the cells of a text, between separators; None where one is too wide."""
    signs = np.frombuffer(text, np.uint8)
    stops = np.append(np.flatnonzero(signs == ord(separator)), len(signs))
    starts = np.insert(stops[:-1] + 1, 0, 0)
    widths = stops - starts
    if (width := int(widths.max())) > _WIDEST:
        return None
    signs = np.append(signs, np.full(width, _BLANK, np.uint8))
    numbers = []
    for at in range(0, len(starts), _CELLS):
        cells = signs[starts[at : at + _CELLS, None] + np.arange(width)]
        cells[np.arange(width) >= widths[at : at + _CELLS, None]] = _BLANK
        numbers.append(numbers_in(cells, other))
    return np.concatenate(numbers)


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
