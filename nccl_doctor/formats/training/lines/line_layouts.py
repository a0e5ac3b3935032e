"""Lines that have one layout: the same text, with digits at the same places.

Most lines of a long log have one of few layouts. Such a line is recognised by comparing its words with those of its layout, and its
numbers are columns of a matrix; its text is neither searched nor hashed.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import WORD, Keys, Numbers
from nccl_doctor.formats.training.lines.block_lines import BlockLines
from nccl_doctor.formats.training.lines.line_numbers import MOST_DIGITS, Floats, LineNumbers, value_of

LEAST = 64  # lines of a block from which on a layout is worth it to be known
_LONGEST = 1_024  # bytes of a line that has a layout
_MOST = 64  # layouts
_SIZES = 4  # of the lines of one form that are looked at for new ones
_DIGITS = compiled(rb"\d+")
_LOW, _HIGH = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)


class Layout:
    """Lines that differ in their digits only and have them at the same places."""

    def __init__(self, line: bytes, key: int, literals: tuple[int, ...]) -> None:
        """`key` is that of their form, `literals` those that they hold."""
        self.key = key
        self.literals = literals
        self.size = len(line)
        self.width = -(-len(line) // WORD) * WORD  # bytes that are compared, some of what follows among them
        self.runs = [match.span() for match in _DIGITS.finditer(line)]
        self.shape = _DIGITS.sub(lambda match: b"0" * len(match[0]), line)
        shape = np.frombuffer(self.shape.ljust(self.width, b"\0"), np.uint8)
        # Where a digit is, its distance from 0 may be 9, else 0: with this added none has its highest bit.
        room = np.where(shape == ord("0"), np.uint8(0x7F - 9), np.uint8(0x7F))
        self._shape, self._room = shape.view("<u8"), room.view("<u8")
        self._last = np.uint64(
            (1 << 8 * (len(line) - self.width + WORD)) - 1
        )  # the part of the last word that is compared

    def matches(self, words: Keys) -> Numbers:
        """Which rows of words are lines of the layout."""
        other = np.zeros(len(words), np.uint64)
        last = words.shape[1] - 1
        for column in range(last + 1):
            apart = words[:, column] ^ self._shape[column]
            if column == last:
                apart &= self._last
            other |= apart
            apart &= _LOW
            apart += self._room[column]
            other |= apart
        return np.flatnonzero(other & _HIGH == 0)


class LayoutNumbers(LineNumbers):
    """The numbers of lines of one layout."""

    def __init__(self, layout: Layout, words: Keys) -> None:
        super().__init__(len(words))
        self._layout = layout
        self._bytes = words.view(np.uint8)

    def digits(self, run: int) -> int:
        begin, end = self._layout.runs[run]
        return end - begin

    def whole(self, run: int) -> Floats:
        begin, end = self._layout.runs[run]
        if end - begin > MOST_DIGITS:
            return np.full(self.count, np.inf)
        value = np.zeros(self.count, np.int64)
        for stop in range(end - (end - begin - 1) // WORD * WORD, end + 1, WORD):
            start = max(begin, stop - WORD)
            at = min(start, self._layout.width - WORD)
            words = self._bytes[:, at : at + WORD].view("<u8")[:, 0] >> np.uint64(8 * (start - at))
            value = value * 10**WORD + value_of(words, stop - start)
        return value.astype(float)

    def text(self, line: int, first: int, last: int) -> bytes:
        begin, end = self._layout.runs[first][0], self._layout.runs[last][1]
        return self._bytes[line, begin:end].tobytes()

    def chosen(self, which: "Numbers | slice") -> "LayoutNumbers":
        """Those of some of the lines."""
        return LayoutNumbers(self._layout, self._bytes.view("<u8")[which])


class Alike(NamedTuple):
    """Lines of a block that have one layout."""

    layout: Layout
    parts: Numbers  # of the block
    numbers: LayoutNumbers

    def split(self, part: int) -> "tuple[Alike, Alike]":
        """Those before a part of the block, and the others."""
        cut = int(np.searchsorted(self.parts, part))
        first, rest = slice(cut), slice(cut, None)
        return (
            Alike(self.layout, self.parts[first], self.numbers.chosen(first)),
            Alike(self.layout, self.parts[rest], self.numbers.chosen(rest)),
        )


class Layouts:
    """The layouts that many lines of the last blocks had."""

    def __init__(self) -> None:
        self._known: dict[bytes, Layout] = {}  # by their shapes

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        self._known.clear()

    def find(self, lines: BlockLines) -> list[Alike]:
        """The lines of a block that have a known layout. Layouts that few lines have are forgotten."""
        found = []
        sizes = lines.stop - lines.start
        waiting: dict[int, Numbers] = {}  # parts of a size that have no layout yet
        for layout in list(self._known.values()):
            parts = waiting.get(layout.size)
            if parts is None:
                parts = np.flatnonzero(sizes == layout.size)
                # a row reaches behind its line
                parts = parts[: np.searchsorted(lines.start[parts], len(lines.block) - layout.width, side="right")]
            matching = np.empty(0, np.int64)
            if len(parts) >= LEAST:
                words = _rows(lines.block, lines.start[parts], layout.width)
                matching = layout.matches(words)
                if len(matching) == len(parts):
                    found.append(Alike(layout, parts, LayoutNumbers(layout, words)))
                    parts = parts[:0]
                elif len(matching):
                    found.append(Alike(layout, parts[matching], LayoutNumbers(layout, words[matching])))
                    parts = np.delete(parts, matching)
            waiting[layout.size] = parts
            if len(matching) < LEAST:
                del self._known[layout.shape]
        return found

    def learn(self, lines: BlockLines, parts: Numbers, key: int, literals: tuple[int, ...]) -> None:
        """Take new layouts from lines of one form."""
        if len(parts) < LEAST:
            return
        sizes = lines.stop[parts] - lines.start[parts]
        known, first, count = np.unique(sizes, return_index=True, return_counts=True)
        for index in np.argsort(-count)[:_SIZES].tolist():
            if count[index] < LEAST or known[index] > _LONGEST or len(self._known) >= _MOST:
                continue
            layout = Layout(lines.text(int(parts[first[index]])), key, literals)
            self._known.setdefault(layout.shape, layout)


def _rows(block: bytes, start: Numbers, width: int) -> Keys:
    """The words that begin at places of a block, a row each."""
    rows = np.lib.stride_tricks.as_strided(np.frombuffer(block, f"V{width}", 1), (len(block) - width + 1,), (1,))
    return rows[start].view("<u8").reshape(len(start), width // WORD)


def without(lines: BlockLines, found: Iterable[Alike]) -> tuple[bytes, Numbers, Numbers]:
    """What a block has beside these lines; where its pieces begin there, and how far each was moved to the front."""
    kept = np.ones(len(lines.start) + 2, bool)
    kept[0] = kept[-1] = False
    for alike in found:
        kept[alike.parts + 1] = False
    edges = np.flatnonzero(kept[1:] != kept[:-1])
    begin = lines.start[edges[::2]]
    end = np.minimum(lines.stop[edges[1::2] - 1] + 1, len(lines.block))
    rest = b"".join([lines.block[start:stop] for start, stop in zip(begin.tolist(), end.tolist(), strict=True)])
    at = np.append(0, np.cumsum(end - begin)[:-1])[: len(begin)]
    return rest, at, begin - at
