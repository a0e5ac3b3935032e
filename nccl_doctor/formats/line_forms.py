"""Lines that differ in digits only have their words at the same places: one is taken apart for all, and numbers are read with numpy."""

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nccl_doctor.inputs.prefixes import ZEROS

_MOST = 1 << 12  # forms that are remembered
_LONGEST = 1_000  # bytes of a line whose form is remembered
_NEW: Any = object()  # stands for a form that is not known
_ZERO = ord("0")
Span = tuple[int, int]
T = TypeVar("T")


class Group(NamedTuple, Generic[T]):
    """Lines of one form."""

    form: T
    rows: list[int]  # which of the lines they are
    lines: list[str]

    def whole_numbers(self, spans: Sequence[Span]) -> list[npt.NDArray[np.float64]]:
        """The numbers that the lines hold at places where the form has digits alone."""
        text = "".join(self.lines)
        try:
            signs = np.frombuffer(text.encode("latin-1"), np.uint8)
        except UnicodeEncodeError:
            signs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint8)
        digits = signs.reshape(len(self.lines), -1).T - np.uint8(_ZERO)
        numbers = []
        for start, stop in spans:
            number = np.zeros(len(self.lines))
            for at in range(start, stop):
                number = number * 10 + digits[at]
            numbers.append(number)
        return numbers


class FormMemo(Generic[T]):
    """What `parse` says of a line, asked once for all lines that differ in digits only; it must not depend on which digits they are."""

    def __init__(self, parse: Callable[[str], T]) -> None:
        self._parse = parse
        self._known: dict[bytes, T] = {}  # line without digits -> what is said of it

    def of(self, line: str) -> T:
        """What is said of a line."""
        shape = line.encode("utf-8", "surrogatepass").translate(ZEROS)
        try:
            return self._known[shape]
        except KeyError:
            return self.of_shape(shape, line)

    def of_all(self, lines: Sequence[str]) -> list[T]:
        """The same of many lines."""
        shapes = _shapes(lines)
        found: list[Any] = list(map(self._known.get, shapes, repeat(_NEW)))
        if _NEW in found:
            found = list(map(self.of_shape, shapes, lines))
        return found

    def of_shape(self, shape: bytes, line: str) -> T:
        """The same of a line that is this with each digit as 0."""
        if shape in self._known:
            return self._known[shape]
        known = self._parse(line)
        if len(shape) <= _LONGEST:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[shape] = known
        return known


def _shapes(lines: Sequence[str]) -> list[bytes]:
    """The lines with each digit as 0."""
    return "\n".join(lines).encode("utf-8", "surrogatepass").translate(ZEROS).split(b"\n") if lines else []


class LineForms(Generic[T]):
    """Takes lines apart by their forms. `parse` says what the form of a line is; None where it has none that is read."""

    def __init__(self, parse: Callable[[str], T | None]) -> None:
        self._forms = FormMemo(parse)

    def groups(self, lines: Sequence[str]) -> tuple[list[Group[T]], list[int]]:
        """The lines of each form, and which of the others there are."""
        by_shape: dict[bytes, list[int]] = {}
        for at, shape in enumerate(_shapes(lines)):
            rows = by_shape.get(shape)
            if rows is None:
                rows = by_shape[shape] = []
            rows.append(at)
        groups, others = [], []
        for shape, rows in by_shape.items():
            form = self._forms.of_shape(shape, lines[rows[0]])
            if form is None:
                others += rows
            else:
                groups.append(Group(form, rows, [lines[at] for at in rows]))
        return groups, sorted(others)


class RowSpans(FormMemo[tuple[Span, ...] | None]):
    """Where the groups of an expression are in lines, which is searched once for all lines that differ in digits only.

    The expression must not ask which digit it is. Of a line that it matches from its start these are the places of all groups,
    (-1, -1) of one without a match.
    """

    def __init__(self, row: re.Pattern[str]) -> None:
        super().__init__(lambda line: found.regs[1:] if (found := row.match(line)) is not None else None)
