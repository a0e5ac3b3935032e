"""Where the lines of a block are."""

import numpy as np

from nccl_doctor.common.text_keys import Numbers

LONGEST = 4_000  # bytes of a line that are looked at
_NEWLINE, _RETURN = b"\n\r"


def newlines(block: bytes) -> int:
    """How many line ends a block has."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == _NEWLINE))


class BlockLines:
    """The parts of the lines of a block; a carriage return ends a part too."""

    def __init__(self, block: bytes) -> None:
        self.block = block
        data = np.frombuffer(block, np.uint8)
        is_stop = data == _NEWLINE
        self._newlines: Numbers | None = None
        if b"\r" in block:
            self._newlines = np.flatnonzero(is_stop)
            is_stop |= data == _RETURN
        stops = np.flatnonzero(is_stop)
        self.ends = len(stops if self._newlines is None else self._newlines)  # line ends
        self.stop = np.append(stops, len(block))
        self.start = np.append(0, stops + 1)

    def numbers(self, part: Numbers) -> Numbers:
        """Of the lines, counted from 0."""
        return part if self._newlines is None else np.searchsorted(self._newlines, self.start[part])

    def text(self, part: int) -> bytes:
        """A part, cut where it is too long."""
        start = int(self.start[part])
        return self.block[start : min(int(self.stop[part]), start + LONGEST)]

    def texts(self, parts: Numbers) -> list[bytes]:
        """The same of many."""
        start = self.start[parts]
        ends = np.minimum(self.stop[parts], start + LONGEST)
        return [self.block[start:end] for start, end in zip(start.tolist(), ends.tolist(), strict=True)]
