"""Lines of a stream of bytes, numbered, in constant memory."""

from collections.abc import Iterator

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefixes import Label
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
LONGEST = 1 << 16  # bytes of a line that are given; what follows in it is dropped


def lines(stream: Readable) -> Iterator[tuple[int, str]]:
    """(number from 1, text without line end) of every line; undecodable bytes are replaced."""
    number, rest, cut = 0, b"", False
    while block := stream.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            yield number, line[:LONGEST].decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")
        if len(rest) > LONGEST:
            rest, cut = rest[:LONGEST], True
    if rest or cut:
        yield number + 1, rest.decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")


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
