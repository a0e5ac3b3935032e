"""The times over which GPUs were held back, from samples with a mask of clock event reasons, or did nothing."""

import numpy as np

from nccl_doctor.formats.gpu.columns import REASON_NAMES
from nccl_doctor.formats.gpu.sample_totals import Batch, Ints, bits

MOST = 500  # spans of one reason of one GPU; a reason that comes and goes more often says nothing about single steps
NO_WORK = 0  # in the place of a reason: the GPU did nothing
_IDLE_BELOW = 20  # % of utilisation; what is left of the kernels before and after may be in the sample


class ThrottleSpans:
    """For each GPU and reason the spans in which all samples show it; memory does not grow with the file."""

    def __init__(self) -> None:
        self._spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self._active: set[tuple[int, int]] = set()  # in the last sample

    def add(self, batch: Batch) -> None:
        """Take samples in the order of their times."""
        if batch.times is None:
            return
        mask = bits(batch.columns["mask"]) if "mask" in batch.columns else None
        idle = batch.column("util") < _IDLE_BELOW
        if not self._active and not idle.any() and (mask is None or not mask.any()):
            return
        order = np.argsort(batch.slots, kind="stable")
        order = order[~np.isnan(batch.times[order])]
        edges = np.flatnonzero(np.diff(batch.slots[order])) + 1
        for rows in np.split(order, edges):
            if len(rows):
                slot, times = int(batch.slots[rows[0]]), batch.times[rows]
                self._take((slot, NO_WORK), times, idle[rows].astype(np.int64))
                if mask is not None:
                    for bit in REASON_NAMES:
                        self._take((slot, bit), times, mask[rows] & bit)

    def _take(self, key: tuple[int, int], times: "np.typing.NDArray[np.float64]", held: Ints) -> None:
        """Add the samples of one GPU and one reason."""
        spans = self._spans.setdefault(key, [])
        if key in self._active:
            spans[-1] = (spans[-1][0], float(times[0]))
        changes = np.flatnonzero(np.diff((held != 0).astype(np.int8), prepend=0, append=0))
        for first, after in zip(changes[::2], changes[1::2], strict=True):
            end = float(times[min(after, len(times) - 1)])
            if first == 0 and key in self._active:
                spans[-1] = (spans[-1][0], end)
            elif len(spans) <= MOST:
                spans.append((float(times[first]), end))
        if len(times) and held[-1] and len(spans) <= MOST:
            self._active.add(key)
        else:
            self._active.discard(key)

    def of(self, slot: int, bit: int) -> list[tuple[float, float]]:
        """(start, end) of the spans of a GPU and reason; none where there are more than can be told apart."""
        spans = self._spans.get((slot, bit), [])
        return spans if len(spans) <= MOST else []
