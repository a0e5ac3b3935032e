"""Lines of a stream of bytes, numbered, in constant memory."""

import csv
import io
import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.prefix_splitter import PrefixSplitter
from nccl_doctor.inputs.prefixes import Label
from nccl_doctor.inputs.streams import InputProblem, Readable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 18
LONGEST = 1 << 16  # characters of a line that `lines` gives; what follows in it is dropped
_SECTION_BLOCK = 1 << 20
_BATCH, _LARGEST_BATCH = 1 << 13, 1 << 16  # bytes of lines of a section that are looked at together, in a long one
_NEWLINE = ord("\n")
_LISTED = compiled(r'\s{1,80}("(?:[^"\\]|\\.){1,4000}"),?\s{0,8}$')
LONGEST_PIECE = 1 << 21  # bytes of a line that `numbered` keeps together


class _Raw(io.RawIOBase):
    """A stream as `io.BufferedReader` wants it."""

    def __init__(self, stream: Readable) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._stream.read(len(view))
        view[: len(data)] = data
        return len(data)


def buffered(stream: Readable) -> io.BufferedReader:
    """A stream with `readline`. Closing it leaves the stream open."""
    return io.BufferedReader(_Raw(stream), _BLOCK)


def numbered(stream: Readable) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes without line end) of every line; a very long one comes in pieces of one number."""
    reader = buffered(stream)
    number, whole = 0, True
    while piece := reader.readline(LONGEST_PIECE):
        if whole or piece != b"\n":
            number += whole
            yield number, piece.removesuffix(b"\n")
        whole = piece.endswith(b"\n")


def line_lists(stream: Readable) -> Iterator[tuple[int, list[str]]]:
    """(number of the first, texts without line ends) of the lines of one block after the other; undecodable bytes are replaced."""
    cut = False  # the last line of the block before goes on
    for data, first in blocks(stream, _SECTION_BLOCK):
        text = data.decode("utf-8", "replace")
        texts = text.split("\n")
        if cut:
            del texts[0]
            first += 1
        cut = not text.endswith("\n")
        if not cut:
            texts.pop()
        if "\r" in text or "\ufeff" in text:
            texts = [line.rstrip("\r").removeprefix("\ufeff") for line in texts]
        if max(map(len, texts), default=0) > LONGEST:
            texts = [line[:LONGEST] for line in texts]
        yield first, texts


def lines(stream: Readable) -> Iterator[tuple[int, str]]:
    """(number from 1, text without line end) of every line; undecodable bytes are replaced."""
    for first, texts in line_lists(stream):
        yield from enumerate(texts, first)


def read_head(stream: Readable, size: int) -> bytes:
    """The first bytes of a stream, fewer only where it ends before."""
    head = bytearray()
    while len(head) < size and (data := stream.read(size - len(head))):
        head += data
    return bytes(head)


def read_ahead(stream: Readable, size: int) -> bytes:
    """The same, fewer also where the stream breaks off: who reads on is told."""
    ahead = bytearray()
    with suppress(InputProblem):
        while len(ahead) < size and (data := stream.read(size - len(ahead))):
            ahead += data
    return bytes(ahead)


def plain_lines(stream: Readable) -> Iterator[tuple[int, Label, str]]:
    """(number, who wrote it as the launcher's prefixes say, text without them) of every line."""
    for first, label, texts in plain_batches(stream):
        for number, text in enumerate(texts, first):
            yield number, label, text


def plain_batches(stream: Readable) -> Iterator[tuple[int, Label, list[str]]]:
    """The same lines, many at once: number of the first, the fields of the prefix of all, their texts."""
    splitter = PrefixSplitter()
    first = 1
    for text in _whole_lines(stream):
        for label, texts in splitter.split(text):
            yield first, label, texts
            first += len(texts)


def _whole_lines(stream: Readable) -> Iterator[bytes]:
    """The lines of a stream, many at once with the ends between them, the first `LONGEST` bytes of each."""
    rest = b""
    while block := stream.read(_BLOCK):
        data = rest + block
        end = data.rfind(b"\n")
        rest = data[end + 1 : end + 1 + LONGEST]
        if end >= 0:
            yield _bounded(data[:end])
    if rest:
        yield rest


def _bounded(data: bytes) -> bytes:
    """The first `LONGEST` bytes of each line."""
    half = LONGEST // 2
    if all(data.find(b"\n", at, at + half) >= 0 for at in range(0, len(data) - half, half)):
        return data
    return b"\n".join(line[:LONGEST] for line in data.split(b"\n"))


class LineNumbers:
    """Which line of a stream each of the lines is that were taken from it."""

    def __init__(self) -> None:
        self._given = 0
        self._starts = array("Q", [1])  # lines that were taken from which on those of the stream are …
        self._places = array("Q", [1])  # … these, one after another

    def add(self, number: int, count: int = 1) -> None:
        """The next lines that are taken are so many of the stream from line `number` on."""
        self._given += 1
        if self._places[-1] + self._given - self._starts[-1] != number:
            self._starts.append(self._given)
            self._places.append(number)
        self._given += count - 1

    def source_line(self, line: int) -> int:
        """The number in the stream of a line that was taken."""
        at = bisect_right(self._starts, line) - 1
        return self._places[at] + max(line - self._starts[at], 0) if at >= 0 else line


class Joined:
    """A stream whose first bytes were read already: gives these, then the rest."""

    def __init__(self, head: bytes, stream: Readable) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._stream.read(size)


class Translated:
    """A stream with some bytes replaced by others, as `bytes.translate` does it."""

    def __init__(self, stream: Readable, table: bytes) -> None:
        self._stream = stream
        self._table = table

    def read(self, size: int) -> bytes:
        return self._stream.read(size).translate(self._table)


class Sections:
    """Those lines of a stream that may belong to sections of interest: from the line before each match of `heads` on.

    They come as in `plain_lines`, and without the quotes of a list (`"stdout_lines"` of Ansible); the line before may
    name the device of a table. A section ends after `keep` lines that were not `used`. All else is passed over
    without being decoded, so that one table in a large log costs little more than to find it.
    """

    def __init__(self, stream: Readable, heads: re.Pattern[bytes], keep: int = 40) -> None:
        self._stream = stream
        self._heads = heads
        self._keep = keep
        self._splitter = PrefixSplitter(_unlisted)
        self._until = 0  # the line with which the section ends, should no more of it be used
        self._data = b""  # the block that is being looked at, from where, and to where its whole lines go
        self._at = self._end = 0
        self._size = _BATCH  # bytes from there on that are split next
        self._first = 0  # lines in front of that place
        self._runs = 0  # that were taken of these lines
        self._number = 0  # of the line that was given last
        self.lines = 0  # of the stream, as far as it was read

    def used(self, number: int = 0) -> None:
        """The line that was given last, or this one of those that were given together, belongs to a section."""
        self._until = (number or self._number) + self._keep

    def run(self, rows: re.Pattern[bytes], number: int = 0) -> tuple[int, bytes] | None:
        """Takes the lines behind that line as far as `rows` matches them: number of the first, and their bytes.

        They are not given again. A table of one shape is read many times faster as one run than line by line.
        """
        number = number or self._number
        at = self._behind(number)
        found = rows.match(self._data, at, self._end)
        if found is None or found.end() == at:
            return None
        self._at, self._runs = found.end(), self._runs + 1
        taken = found[0].count(b"\n")
        self._until += taken
        self.lines = number + taken
        return number + 1, found[0]

    def __iter__(self) -> Iterator[tuple[int, Label, str]]:
        for first, label, texts in self.batches():
            runs = self._runs
            for number, text in enumerate(texts, first):
                self._number = number
                yield number, label, text
                if self._runs != runs:  # a run took what follows
                    break

    def batches(self) -> Iterator[tuple[int, Label, list[str]]]:
        """The same lines, some at once: number of the first, the fields of the prefix of all, their texts."""
        rest = b""
        while block := self._stream.read(_SECTION_BLOCK):
            data = rest + block
            end = data.rfind(b"\n") + 1
            if not end and len(data) < LONGEST_PIECE:
                rest = data
                continue
            yield from self._of(data, end or len(data))
            rest = data[end or len(data) :]
        if rest:
            yield from self._of(rest, len(rest))
            self.lines += not rest.endswith(b"\n")

    def _of(self, data: bytes, end: int) -> Iterator[tuple[int, Label, list[str]]]:
        self._data, self._at, self._end = data, 0, end
        while (at := self._at) < end:
            if self.lines >= self._until:
                head = self._heads.search(data, at, end)
                start = end
                if head is not None:
                    line = data.rfind(b"\n", at, head.start()) + 1 or at
                    start = data.rfind(b"\n", at, max(line - 1, at)) + 1 or at
                self.lines += data.count(b"\n", at, start)
                self._at = start
                self._until = self.lines + (self._keep if head is not None else 0)
                continue
            yield from self._window()

    def _window(self) -> Iterator[tuple[int, Label, list[str]]]:
        """The next lines, as far as the section goes; one alone that is long or has no end."""
        at = self._at
        stop = self._data.rfind(b"\n", at, min(at + self._size, self._end)) + 1
        if stop:
            text = self._data[at : stop - 1]
        else:
            stop = self._data.find(b"\n", at, self._end) + 1 or self._end
            text = self._data[at : min(stop - (self._data[stop - 1] == _NEWLINE), at + LONGEST)]
        self._first, self._runs = self.lines, 0
        size, self._size = self._size, _BATCH
        for label, texts in self._splitter.split(text):
            given = 0
            while given < len(texts):
                most = self._until - self.lines
                if most <= 0:
                    self._at = self._behind(self.lines)
                    return
                some = texts[given : given + most] if given or most < len(texts) else texts
                given += len(some)
                first = self.lines + 1
                self.lines += len(some)
                yield first, label, some
                if self._runs:  # a run took what follows
                    return
        self._at, self._size = stop, min(2 * size, _LARGEST_BATCH)
        unended = self._data[stop - 1] != _NEWLINE
        self.lines -= unended
        self._until -= unended

    def _behind(self, number: int) -> int:
        """Where a line ends that was given."""
        at = self._at
        for _ in range(number - self._first):
            at = self._data.find(b"\n", at, self._end) + 1 or self._end
        return at


def _unlisted(line: str) -> str:
    """The text of a line that was printed as an item of a JSON list; else the line."""
    found = _LISTED.match(line) if '"' in line[:80] else None
    if found is None:
        return line
    try:
        return str(json.loads(found[1]))
    except ValueError:
        return line


def line_numbers(text: str) -> Callable[[int], int]:
    """Returns the line, counted from 1, of a place in a text; counting its line ends each time would be quadratic."""
    ends = array("Q", (found.start() for found in re.finditer("\n", text)))
    return lambda place: bisect_left(ends, place) + 1


def cells_of(line: str, sign: str = ",") -> list[str]:
    """What stands between the commas, or other signs, of a line, quotes taken off.

    None where it is no line of a table: with a line end inside, as a torn file has them, or with a cell of more than 128 kB.
    """
    try:
        return next(csv.reader([line], delimiter=sign), [])
    except csv.Error:
        return []
