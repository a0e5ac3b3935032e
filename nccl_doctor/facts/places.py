"""The numbers of evidence by the lines of a file: a dictionary, or a column where most lines are evidence."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import numpy.typing as npt

_DENSE = 16  # one line in so many is evidence: a column takes less memory than a dictionary


class Places(dict[int, int]):
    """Line -> number of its evidence."""

    def add_new(self, lines: Sequence[int], first: int) -> bool:
        """Number lines from `first` on, if none of them has a number or is there twice; return whether they were numbered."""
        if not self.keys().isdisjoint(lines) or len(set(lines)) < len(lines):
            return False
        self.update(zip(lines, range(first, first + len(lines)), strict=True))
        return True


class DensePlaces(Places):
    """The same in four bytes a line, for a file of so many lines. What lies behind them is in the dictionary."""

    def __init__(self, lines: int) -> None:
        import numpy as np

        super().__init__()
        self._numbers: npt.NDArray[numpy.uint32] = np.zeros(lines + 1, np.uint32)
        self._count = 0

    def __len__(self) -> int:
        return self._count + super().__len__()

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.get(line) is not None

    def get(self, line: int, default: int | None = None) -> int | None:  # type: ignore[override]
        """The number of a line."""
        if 0 <= line < len(self._numbers):
            return int(self._numbers[line]) or default
        return super().get(line, default)

    def __setitem__(self, line: int, number: int) -> None:
        if 0 <= line < len(self._numbers):
            self._count += not self._numbers[line]
            self._numbers[line] = number
        else:
            super().__setitem__(line, number)

    def add_new(self, lines: Sequence[int], first: int) -> bool:
        """Number lines from `first` on, if none of them has a number or is there twice; return whether they were numbered."""
        import numpy as np

        at = np.array(lines, np.int64)
        if not len(at) or at.min() < 0 or at.max() >= len(self._numbers) or self._numbers[at].any():
            return False
        numbers = np.arange(first, first + len(at), dtype=np.uint32)
        self._numbers[at] = numbers
        if (self._numbers[at] != numbers).any():  # a line is there twice
            self._numbers[at] = 0
            return False
        self._count += len(at)
        return True


def places_for(lines: int, evidence: int) -> Places:
    """Where the numbers of a file of so many lines fit in, of which about so many are evidence."""
    if "numpy" in sys.modules and evidence * _DENSE > lines:
        return DensePlaces(lines)
    return Places()
