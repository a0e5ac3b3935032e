"""Cuts a stream into blocks of whole lines, and finds the line of an offset in a block."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nccl_doctor.inputs.streams import Readable

BLOCK = 8 << 20
LONGEST = 4 << 20  # bytes of a line that are kept together
_LONG = 4_000  # only a longer line can hold a number with more digits than Python converts
_DIGITS = re.compile(rb"(\d{20})\d{80,}")


class Block(NamedTuple):
    """Whole lines of a stream."""

    data: bytes
    first: int  # number of the first line, counted from 1


def newlines(block: bytes) -> int:
    """How many line ends a block has."""
    return block.count(b"\n")


def blocks(stream: Readable, size: int = BLOCK, count: Callable[[bytes], int] = newlines) -> Iterator[Block]:
    """Cut a stream at line ends into blocks of about this size; a line without end is cut anyway.

    `count` counts line ends; numpy does so faster where lines are short.
    """
    rest, number = b"", 1
    while data := stream.read(size):
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) < LONGEST:
                continue
            block, rest = rest, b""
        else:
            block, rest = b"".join((rest, memoryview(data)[:cut])), data[cut:]
        yield Block(block, number)
        number += count(block)
    if rest:
        yield Block(rest, number)


class Cursor:
    """Finds the lines of ascending places in a block. A carriage return ends a line too, but counts none."""

    __slots__ = (
        "_counted",
        "_has_returns",
        "_last",
        "_number",
        "_seen",
        "block",
        "end",
        "piece",
        "start",
        "stop",
        "used",
    )

    def __init__(self, block: bytes, number: int) -> None:
        self.block = block
        self.start = self.piece = 0  # of the line; of the part behind the last carriage return
        self.stop = -1  # end of the line
        self.end = -1  # end of the piece that `line` gave
        self.used = -1  # end of the last piece that is done with
        self._number = number
        self._counted = self._seen = 0
        self._last = (0, 0, b"")  # of the line that was given: its piece, its end, its text
        self._has_returns = b"\r" in block

    def line(self, at: int) -> tuple[bytes, int]:
        """The line around a place, and its number."""
        block = self.block
        if at > self.stop:
            self.start = self.piece = block.rfind(b"\n", max(self.stop, 0), at) + 1 or self.start
            stop = block.find(b"\n", at)
            self.stop = stop if stop >= 0 else len(block)
            self._number += block.count(b"\n", self._counted, self.start)
            self._counted = self._seen = self.start
        end = -1
        if self._has_returns:
            self.piece = block.rfind(b"\r", self._seen, at) + 1 or self.piece
            self._seen = at
            end = block.find(b"\r", at, self.stop)
        self.end = end if end >= 0 else self.stop
        if self._last[:2] != (self.piece, self.end):
            line = block[self.piece : self.end]
            self._last = (self.piece, self.end, _DIGITS.sub(rb"\1", line) if len(line) > _LONG else line)
        return self._last[2], self._number

    def done(self) -> None:
        """Mark the last piece as read."""
        self.used = self.end

    def copy(self) -> "Cursor":
        """Another cursor at the same place; the block is not searched again."""
        other = Cursor.__new__(Cursor)
        other.move_to(self)
        return other

    def move_to(self, other: "Cursor") -> None:
        """Move to the position of another cursor of the block."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
