"""Lines of a stream of bytes, numbered, in constant memory."""

import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.prefix_checks import kind_of
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.inputs.streams import Readable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 18
LONGEST = 1 << 16  # characters of a line that `lines` gives; what follows in it is dropped
_SECTION_BLOCK = 1 << 20
_BATCH = 1 << 13  # bytes of lines of a section that are looked at together
_FEW, _MANY = 8, 512  # lines that are looked at together behind one with another prefix, and in the middle
_SHAPES = 1 << 14  # texts without digits that are remembered
_KINDS = 1 << 8  # of prefixes
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
        if any(map(LONGEST.__lt__, map(len, texts))):
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


def plain_lines(stream: Readable) -> Iterator[tuple[int, Label, str]]:
    """(number, fields of the launcher's prefixes, text without them) of every line."""
    for first, label, texts in plain_batches(stream):
        for number, text in enumerate(texts, first):
            yield number, label, text


def plain_batches(stream: Readable) -> Iterator[tuple[int, Label, list[str]]]:
    """The same lines, many at once: number of the first, the fields of the prefix of all, their texts."""
    splitter = PrefixSplitter()
    first = 1
    for whole in _whole_lines(stream):
        for label, texts in splitter.split(whole):
            yield first, label, texts
            first += len(texts)


def _whole_lines(stream: Readable) -> Iterator[list[bytes]]:
    """The lines of a stream, many at once, the first `LONGEST` bytes of each."""
    rest = b""
    while block := stream.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        rest = rest[:LONGEST]
        yield whole if max(map(len, whole), default=0) <= LONGEST else [line[:LONGEST] for line in whole]
    if rest:
        yield [rest]


class PrefixSplitter:
    """Takes the prefixes off many lines, as `prefixes.split` does off one.

    Most lines have the prefix of the line before them, and differ from an earlier line in digits only: these are not examined
    again, see `prefixes.layout`.
    """

    def __init__(self, opened: Callable[[str], str] = str) -> None:
        """`opened` gives the line that another one wraps."""
        self._opened = opened
        self._prefix = b""
        self._label = NOTHING
        self._most = _FEW
        self._run = 0  # lines since the prefix was another; the next writer may have as many
        self._behind: dict[
            object, dict[bytes, bool]
        ] = {}  # kind of prefix -> text without digits -> has no further prefix
        self._alike: dict[
            bytes, tuple[str, bool]
        ] = {}  # prefixes that are one word: its field, and whether its digits matter
        self._known = self._behind.setdefault(b"", {})  # those behind the prefix

    def split(self, lines: Sequence[bytes]) -> Iterator[tuple[Label, list[str]]]:
        """The lines one after another, without line ends: as many as have the same label, and their texts."""
        at = 0
        while at < len(lines):
            texts = self._same(lines[at : at + self._most]) if lines[at].startswith(self._prefix) else []
            if texts:
                yield self._label, texts
                at += len(texts)
                self._run += len(texts)
            if len(texts) == self._most:
                self._most = min(2 * self._most, _MANY)
            elif at < len(lines):
                self._most, self._run = min(self._run or _FEW, _MANY), 0
                if not self._switch(lines[at]):
                    yield self._single(lines[at].rstrip(b"\r"))
                    at += 1

    def _same(self, lines: Sequence[bytes]) -> list[str]:
        """The texts of the first lines, as far as they have the prefix and no other."""
        begin = b"\n" + self._prefix
        text = b"\n" + b"\n".join(lines)
        if text.count(begin) < len(lines):
            lines = list(takewhile(lambda line: line.startswith(self._prefix), lines))
            text = b"\n" + b"\n".join(lines)
        text = text.replace(begin, b"\n")[1:]
        if b"\r" in text:
            text = b"\n".join(line.rstrip(b"\r") for line in text.split(b"\n"))
        shapes = text.translate(prefixes.ZEROS).split(b"\n") if lines else []
        plain = len(lines)
        if not all(map(self._known.get, shapes)):
            pairs = zip(shapes, text.split(b"\n"), strict=True)
            plain = next((at for at, pair in enumerate(pairs) if not self._is_plain(*pair)), plain)
        return text.decode("utf-8", "replace").split("\n")[:plain]

    def _is_plain(self, shape: bytes, text: bytes) -> bool:
        known = self._known.get(shape)
        if known is None:
            if len(self._known) >= _SHAPES:
                self._known.clear()
            line = (self._prefix + text).decode("utf-8", "replace")
            found = prefixes.layout(line) if self._opened(line) == line else None
            size = len(line) - len(text.decode("utf-8", "replace"))
            known = self._known[shape] = (
                found is not None
                and all(end <= size for _, end in found.words)
                and prefixes.split(line) == (self._label, line[size:])
            )
        return known

    def _switch(self, raw: bytes) -> bool:
        """Whether a line has the prefix of another writer of a known kind, which `_same` then looks for."""
        prefix = raw[: raw.find(b": ") + 2]
        shape = prefix.translate(prefixes.ZEROS)
        field, asked = self._alike.get(shape, ("", False))
        word = prefix[:-2].decode("ascii", "replace")
        known = self._behind.get((shape, (kind_of(word),) if asked else ())) if field else None
        if known is None or prefix == self._prefix:
            return False
        self._prefix, self._known = prefix, known
        self._label = Label(host=word) if field == "host" else Label(rank=int(word))
        return True

    def _single(self, raw: bytes) -> tuple[Label, list[str]]:
        line = self._opened(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
        label, text = prefixes.split(prefixes.clean(line))
        found = prefixes.layout(line) if label.stamp is None else None
        prefix = line[: found.end].encode() if found is not None else b""
        if found is not None and raw.startswith(prefix) and bool(prefix) == (label != NOTHING):
            kinds = tuple(kind_of(line[start:end]) for start, end in found.words if end <= found.end)
            self._prefix, self._label = prefix, label
            if len(self._behind) >= _KINDS:
                self._behind.clear()
                self._alike.clear()
            shape = prefix.translate(prefixes.ZEROS)
            self._known = self._behind.setdefault((shape, kinds), {})
            fields = [name for name, *span in found.fields if prefix.isascii() and span == [0, len(prefix) - 2]]
            if prefix.endswith(b": ") and fields in (["host"], ["weak"]):
                self._alike[shape] = fields[0], bool(kinds)
        return label, [text]


class LineNumbers:
    """Which line of a stream each of the lines is that were taken from it."""

    def __init__(self) -> None:
        self._given = 0
        self._starts = [1]  # lines that were taken from which on those of the stream are …
        self._places = [1]  # … these, one after another

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
        self._batch: list[bytes] = []  # lines from there on, of which some were given
        self._first = 0  # lines in front of them
        self._stop = 0  # where they end
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
        self._at, self._batch = found.end(), []
        taken = found[0].count(b"\n")
        self._until += taken
        self.lines = number + taken
        return number + 1, found[0]

    def __iter__(self) -> Iterator[tuple[int, Label, str]]:
        for first, label, texts in self.batches():
            batch = self._batch
            for number, text in enumerate(texts, first):
                self._number = number
                yield number, label, text
                if self._batch is not batch:  # a run took what follows
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
            batch, self._stop = self._next(self._until - self.lines)
            self._batch, self._first = batch, self.lines
            for label, texts in self._splitter.split(batch):
                first = self.lines + 1
                self.lines += len(texts)
                yield first, label, texts
                if self._batch is not batch:  # a run took what follows
                    break
            else:
                self._at = self._stop
                unended = data[self._at - 1] != ord("\n")
                self.lines -= unended
                self._until -= unended

    def _next(self, most: int) -> tuple[list[bytes], int]:
        """The next lines, and where they end; one alone that is long or has no end."""
        at = self._at
        whole = self._data.rfind(b"\n", at, min(at + _BATCH, self._end))
        if whole >= 0:
            batch = self._data[at:whole].split(b"\n", most)[:most]
            return batch, at + sum(map(len, batch)) + len(batch)
        stop = self._data.find(b"\n", at, self._end)
        end = self._end if stop < 0 else stop
        return [self._data[at : min(end, at + LONGEST)]], min(end + 1, self._end)

    def _behind(self, number: int) -> int:
        """Where a line ends that was given."""
        given = self._batch[: number - self._first]
        return self._stop if len(given) == len(self._batch) else self._at + sum(map(len, given)) + len(given)


def _unlisted(line: str) -> str:
    """The text of a line that was printed as an item of a JSON list; else the line."""
    found = _LISTED.match(line) if '"' in line[:80] else None
    if found is None:
        return line
    try:
        return str(json.loads(found[1]))
    except ValueError:
        return line
