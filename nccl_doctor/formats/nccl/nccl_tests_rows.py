"""Rows of a table of nccl-tests: rows that differ in digits only have their numbers at the same places."""

import re
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from nccl_doctor.inputs.prefixes import ZEROS

_LONGEST = 400  # bytes of a row whose form is remembered
_MOST = 1 << 12  # forms that are remembered
_WORDS = 13  # of a row: size, count, type, operation, root, and four numbers of each placement
_LONGEST_WORD = 40

Placement = tuple[float, float, float, bytes]  # microseconds, algbw, busbw, wrong as printed
WholeRow = tuple[int, int, Placement, Placement]  # size, elements, out of place, in place


class Cells(NamedTuple):
    """What a row says."""

    size: int
    elements: int
    kind: bytes
    redop: bytes | None
    root: int | None
    numbers: list[Placement]


class _Form(NamedTuple):
    words: Callable[[bytes], tuple[bytes, ...]]  # size, count, type, root where there is one, numbers
    redop: bytes | None
    has_root: bool


class RowForms:
    """The forms of the rows of tables with the same titles."""

    def __init__(self) -> None:
        self._forms: dict[bytes, _Form] = {}
        self._kinds: set[bytes] = set()

    def cells(self, line: bytes) -> Cells | None:
        """The cells of a row whose form is known; None for another line."""
        form = self._forms.get(line.translate(ZEROS))
        if form is None:
            return None
        size, count, kind, *rest = form.words(line)
        if kind not in self._kinds:
            return None
        root = int(rest.pop(0)) if form.has_root else None
        numbers = [
            (float(rest[at]), float(rest[at + 1]), float(rest[at + 2]), rest[at + 3]) for at in range(0, len(rest), 4)
        ]
        return Cells(int(size), int(count), kind, form.redop, root, numbers)

    def learn(self, line: bytes, head: re.Match[bytes], has_root: bool, numbers: Iterable[tuple[int, int]]) -> None:
        """Remember where a row has its cells; `numbers` are the places of four numbers of each placement."""
        if len(line) > _LONGEST:
            return
        if len(self._forms) >= _MOST:
            self._forms.clear()
        spans = [head.span(1), head.span(2), head.span(3), *([head.span(5)] if has_root else []), *numbers]
        self._kinds.add(head[3])
        words = itemgetter(*(slice(start, stop) for start, stop in spans))
        self._forms[line.translate(ZEROS)] = _Form(words, head[4], has_root)


def whole_rows(lines: list[bytes], kind: bytes, redop: bytes, root: int) -> list[WholeRow] | None:
    """What lines of one width say that are rows with both placements of one type, operation and root; None where one is another line."""
    words = b" ".join(lines).split()
    if len(words) != _WORDS * len(lines) or len(set(map(len, lines))) > 1 or max(map(len, words)) > _LONGEST_WORD:
        return None
    sizes, counts, *names = (words[at::_WORDS] for at in range(5))
    if [{kind}, {redop}, {b"%d" % root}] != list(map(set, names)) or not b"".join(sizes + counts).isdigit():
        return None
    columns: list[list[float]] = []
    for place in (5, 9):
        for at in range(place, place + 3):
            column = words[at::_WORDS]
            joined = b"".join(column)
            points = len(joined) - len(joined.replace(b".", b""))
            if joined.translate(None, b"0123456789.") or (at > place and points != len(column)):
                return None
            try:
                columns.append(list(map(float, column)))
            except ValueError:
                return None
        if not all(word.isdigit() or word == b"N/A" for word in set(words[place + 3 :: _WORDS])):
            return None
    out, in_place = (zip(*columns[at : at + 3], words[8 + 4 * (at > 0) :: _WORDS], strict=True) for at in (0, 3))
    return list(zip(map(int, sizes), map(int, counts), out, in_place, strict=True))
