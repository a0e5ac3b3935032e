"""Joins single values of GPUs, as exporters and collectors write them, to rows of samples."""

from itertools import islice

import numpy as np

from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place

_ROWS = 5_000  # of a batch


class ValueRows:
    """Joins the values of each GPU and moment to a row, and sums the rows up in the order of time."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.used = 0  # values
        self._waiting: dict[tuple[float, int], tuple[dict[str, float], list[Place]]] = {}

    def slot(self, gpu: Gpu) -> int:
        return self.samples.slot((gpu.host, gpu.number if gpu.number is not None else gpu.uuid), lambda: gpu)

    def add(self, slot: int, time: float, column: str, value: float, number: int, line: str) -> None:
        """Take one value, from a line."""
        self.used += 1
        if slot < 0:
            return
        row = self._waiting.get((time, slot))
        if row is None:
            if len(self._waiting) >= 2 * _ROWS:
                self.flush(_ROWS)
            row = self._waiting[time, slot] = {}, [(number, line[:600])]
        if column == "mask":  # metrics of events tell one bit each
            value = float(int(value) | int(row[0].get("mask", 0)))
        row[0][column] = value
        if column.startswith("counter:xid") and value:
            row[1].append((number, line[:600]))

    def flush(self, most: int | None = None) -> None:
        """Sum up those rows that wait longest, which are complete; without a number all."""
        ordered = sorted((at, *self._waiting.pop(at)) for at in list(islice(self._waiting, most)))
        for start in range(0, len(ordered), _ROWS):
            part = ordered[start : start + _ROWS]
            names = sorted({name for _, values, _ in part for name in values})
            times = np.array([time for (time, _), _, _ in part])
            self.samples.add(
                Batch(
                    np.array([slot for (_, slot), _, _ in part], np.int64),
                    {name: np.array([values.get(name, np.nan) for _, values, _ in part]) for name in names},
                    times if times.max() > 1e8 else None,  # smaller numbers only count the answers
                    lambda row, part=part: part[row][2][-1],  # type: ignore[misc]
                )
            )
