"""The last blocks of a log, so that of the lines of steps only those are copied that evidence shows."""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.formats.training.lines.block_lines import LONGEST

_KEPT = 32 << 20  # bytes
_LEAVING = 8 << 20  # bytes of blocks that leave together
_SIZE = 12  # bits for the size of a line


class RecentLines:
    """The last blocks, and where they begin in the log. A place of a line is its offset in the log and its size in one number."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._begins: list[int] = []
        self.end = 0  # of the last block

    def add(self, block: bytes) -> None:
        self._blocks.append(block)
        self._begins.append(self.end)
        self.end += len(block)

    def places(self, start: Numbers, stop: Numbers) -> Numbers:
        """The places of lines that begin and end there in the last block."""
        places: Numbers = (start + self._begins[-1]) << _SIZE | np.minimum(stop - start, LONGEST)
        return places

    def copies(self, places: npt.NDArray[np.object_] | Numbers) -> npt.NDArray[np.object_]:
        """The lines at places; what is a copy already stays it."""
        copied = np.empty(len(places), object)
        which = np.arange(len(places))
        if places.dtype == object:
            copied[:] = places
            which = np.array([at for at, place in enumerate(places) if type(place) is not bytes], np.int64)
            places = places[which].astype(np.int64)
        if len(which):
            start = places >> _SIZE
            of = np.searchsorted(self._begins, start, side="right") - 1
            start -= np.array(self._begins)[of]
            stop = start + (places & ((1 << _SIZE) - 1))
            blocks = self._blocks
            spans = zip(of.tolist(), start.tolist(), stop.tolist(), strict=True)
            texts = np.empty(len(which), object)
            texts[:] = [blocks[block][begin:end] for block, begin, end in spans]
            copied[which] = texts
        return copied

    def leaving(self) -> Iterator[int]:
        """Where blocks that are too old end, as a place; lines of them that are needed must be copied before the next one."""
        if self.end - self._begins[0] > _KEPT + _LEAVING:
            count = bisect_left(self._begins, self.end - _KEPT)
            yield (self._begins[count] if count < len(self._begins) else self.end) << _SIZE
            del self._blocks[:count], self._begins[:count]
