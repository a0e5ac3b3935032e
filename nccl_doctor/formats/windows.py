"""The parts of a log around some literals: what a reader of sections inside logs needs of it, without all the rest.

One `free -h` in front of ten million lines of training output must not cost the reading of these.
"""

from collections.abc import Iterator, Sequence

from nccl_doctor.inputs.blocks import Block, blocks, newlines
from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LineNumbers

SIZE = 1 << 20  # bytes of whole lines that are looked at or passed over together


class Parts:
    """A stream with pieces of another one, which knows from which of its lines they are."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._numbers = LineNumbers()
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        self._rest = self._rest or next(self._pieces, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def source_line(self, line: int) -> int:
        """The number in the other stream of a line that was read."""
        return self._numbers.source_line(line)


class Windows(Parts):
    """A stream with those blocks of another one that hold a literal, the one before, and those that follow within `reach` bytes.

    The first block is always given. An empty line stands for what is passed over, so that no section goes on behind it.
    The automaton of the literals is kept under `name`.
    """

    def __init__(self, stream: Readable, literals: Sequence[bytes], reach: int, name: str) -> None:
        super().__init__(self._near(stream, reach))
        self.lines = 0  # of the other stream, as far as it was read
        self._literals = literals
        self._name = name

    def _near(self, stream: Readable, reach: int) -> Iterator[bytes]:
        left = 0  # bytes that are still near a literal
        before: Block | None = None  # passed over, unless the next one holds a literal
        gap = False  # more was passed over in front of that
        for block in blocks(stream, SIZE):
            data = block.data
            self.lines = block.first - 1 + newlines(data) + (not data.endswith(b"\n"))
            if self._is_near(block):
                left = reach + len(data)
                if before is not None:
                    if gap:
                        self._numbers.add(before.first - 1)
                        yield b"\n"
                    yield self._given(before)
                before, gap = None, False
            if left > 0 or block.first == 1:
                left -= len(data)
                yield self._given(block)
            else:
                gap = gap or before is not None
                before = block

    def _is_near(self, block: Block) -> bool:
        """Whether a block holds a literal. One may begin with the line end in front of it."""
        text = b"\n" + block.data
        if block.first == 1:  # most logs have no other one
            return any(literal in text for literal in self._literals)
        return bool(prefilter(frozenset(), frozenset(self._literals), self._name).scan(text)[1])

    def _given(self, block: Block) -> bytes:
        """The text of a block that is read. The piece of a line of many megabytes ends here, for the next may be passed over."""
        data = block.data if block.data.endswith(b"\n") else block.data + b"\n"
        self._numbers.add(block.first, newlines(data))
        return data
