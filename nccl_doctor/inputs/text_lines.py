"""Lines of a stream of bytes, numbered, in constant memory."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefixes import Label
from nccl_doctor.inputs.streams import Readable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 18
LONGEST = 1 << 16  # bytes of a line that `lines` gives; what follows in it is dropped
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


def lines(stream: Readable) -> Iterator[tuple[int, str]]:
    """(number from 1, text without line end) of every line; undecodable bytes are replaced."""
    last = 0
    for number, line in numbered(stream):
        if number != last:
            last = number
            yield number, line[:LONGEST].decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")


def read_head(stream: Readable, size: int) -> bytes:
    """The first bytes of a stream, fewer only where it ends before."""
    head = bytearray()
    while len(head) < size and (data := stream.read(size - len(head))):
        head += data
    return bytes(head)


def plain_lines(stream: Readable) -> Iterator[tuple[int, Label, str]]:
    """(number, fields of the launcher's prefixes, text without them) of every line."""
    for number, line in lines(stream):
        label, text = prefixes.split(prefixes.clean(line))
        yield number, label, text


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
