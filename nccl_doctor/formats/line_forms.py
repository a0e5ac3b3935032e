"""Lines that differ in digits only have their words at the same places: one is taken apart for all, and numbers are read with numpy."""

import re
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nccl_doctor.inputs.prefixes import ZEROS

_MOST = 1 << 12  # forms that are remembered
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


class LineForms(Generic[T]):
    """Takes lines apart by their forms. `parse` says what the form of a line is; None where it has none that is read."""

    def __init__(self, parse: Callable[[str], T | None]) -> None:
        self._parse = parse
        self._known: dict[bytes, T | None] = {}

    def groups(self, lines: Sequence[str]) -> tuple[list[Group[T]], list[int]]:
        """The lines of each form, and which of the others there are."""
        if not lines:
            return [], []
        by_form: dict[bytes, list[int]] = {}
        for at, shape in enumerate("\n".join(lines).encode("utf-8", "surrogatepass").translate(ZEROS).split(b"\n")):
            rows = by_form.get(shape)
            if rows is None:
                rows = by_form[shape] = []
            rows.append(at)
        groups, others = [], []
        for shape, rows in by_form.items():
            if shape not in self._known:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[shape] = self._parse(lines[rows[0]])
            form = self._known[shape]
            if form is None:
                others += rows
            else:
                groups.append(Group(form, rows, [lines[at] for at in rows]))
        return groups, sorted(others)


class RowSpans:
    """Where the groups of an expression are in lines, which is searched once for all lines that differ in digits only.

    The expression must not ask which digit it is.
    """

    def __init__(self, row: re.Pattern[str]) -> None:
        self._row = row
        self._known: dict[bytes, tuple[Span, ...] | None] = {}

    def match(self, line: str) -> tuple[Span, ...] | None:
        """The places of all groups, (-1, -1) of one without a match, where the expression matches from the start of the line."""
        form = line.encode("utf-8", "surrogatepass").translate(ZEROS)
        try:
            return self._known[form]
        except KeyError:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._row.match(line)
            spans = self._known[form] = found.regs[1:] if found is not None else None
            return spans
