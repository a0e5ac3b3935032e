"""Tells the GPUs of a table apart that names none: nvidia-smi prints one row a GPU, in the order of their index, then waits."""

import numpy as np

from nccl_doctor.formats.gpu.sample_totals import Floats, Ints

MOST = 16  # GPUs of a node
_CLEAR = 3  # times that the wait between two sweeps is longer than the steps inside one
_LEAST = 3  # sweeps that show the pattern


class Sweeps:
    """Where in its sweep each row is, from one block of rows to the next."""

    def __init__(self) -> None:
        self._wait: float | None = None  # seconds from which a new sweep begins; None where the rows are of one GPU
        self._known = False
        self._last: float | None = None
        self._place = -1

    def places(self, times: Floats) -> Ints:
        """The place of each row in its sweep: 0 for all rows of one GPU."""
        if not self._known:
            self._wait, self._known = _wait_of(times), True
        places = np.zeros(len(times), np.int64)
        if self._wait is None:
            return places
        for row, time in enumerate(times.tolist()):
            new = self._last is None or not 0 <= time - self._last < self._wait
            self._place = 0 if new else min(self._place + 1, MOST)
            places[row], self._last = self._place, time
        return places


def _wait_of(times: Floats) -> float | None:
    """Half of the shortest wait between two sweeps; None where no number of rows a sweep explains the times."""
    steps = np.diff(times)
    if not len(steps) or np.isnan(steps).any() or (steps < 0).any():
        return None
    for gpus in range(2, MOST + 1):
        if len(times) < _LEAST * gpus:
            return None
        between = np.arange(len(steps)) % gpus == gpus - 1
        if steps[between].min() > _CLEAR * steps[~between].max():
            return float(steps[between].min()) / 2
    return None
