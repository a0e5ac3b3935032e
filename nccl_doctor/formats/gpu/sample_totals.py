"""Totals of GPU samples by GPU: histograms, highest values, and counts of clock event reasons. Memory does not grow with the file."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.formats.gpu.columns import REASON_NAMES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Place = tuple[int, str]  # line number and text
BUSY, SPINNING, IDLE = 80, 95, 5  # % of utilisation
DIP = (10, 25)  # % of utilisation
MANY = 20_000  # samples that are summed up at once
LARGEST = 1 << 53  # of a value; whole numbers beyond it are not exact
WATT, MHZ = 1, 5  # width of a bin of the histograms of power and clock
_HISTOGRAMS = {
    "util": (101, 1), "power_high": (1536, WATT), "power_busy": (1536, WATT), "power": (1536, WATT),
    "clock_busy": (700, MHZ), "clock": (700, MHZ),
}  # fmt: skip
"""Name -> number of bins and width of one. `busy` and `high` count only samples with utilisation of BUSY or SPINNING and more."""
_HIGHEST = ("memory", "memory_total", "temperature", "power_limit", "clock_max", "width_max")


class Gpu(NamedTuple):
    """The GPU of a slot of the sums."""

    host: str | None
    number: int | None  # index as the tool counts
    uuid: str | None = None
    model: str | None = None


class Batch(NamedTuple):
    """Some samples in the order of the file; a value that is not known is NaN."""

    slots: Ints
    columns: dict[str, Floats]  # util, memory, power, clock, mask, counter:NAME, … as in gpu_columns
    times: Floats | None  # seconds since the epoch
    place: Callable[[int], Place]

    def part(self, start: int, stop: int) -> "Batch":
        return Batch(
            self.slots[start:stop],
            {name: values[start:stop] for name, values in self.columns.items()},
            None if self.times is None else self.times[start:stop],
            lambda row: self.place(row + start),
        )

    def plausible(self) -> "Batch":
        """Without numbers that no tool measures, whose sum with others may be infinite."""
        known = self.columns.items()
        return self._replace(
            columns={name: np.where(np.abs(values) < LARGEST, values, np.nan) for name, values in known}
        )

    def column(self, name: str) -> Floats:
        known = self.columns.get(name)
        return known if known is not None else np.full(len(self.slots), np.nan)


class Waiting:
    """Samples that come in small groups and are summed up many at once."""

    def __init__(self, add: Callable[[Batch], None]) -> None:
        self._add = add
        self._groups: list[Batch] = []
        self._rows = 0

    def add(self, group: Batch) -> None:
        """Take samples. All groups have times or none has."""
        self._groups.append(group)
        self._rows += len(group.slots)
        if self._rows >= MANY:
            self.flush()

    def flush(self) -> None:
        """Sum up what waits; samples of no GPU are left out."""
        groups, self._groups, self._rows = self._groups, [], 0
        if not groups:
            return
        whole = _joined(groups) if len(groups) > 1 else groups[0]
        keep = np.flatnonzero(whole.slots >= 0)
        times = None if whole.times is None else whole.times[keep]
        if len(keep):
            self._add(
                Batch(
                    whole.slots[keep],
                    {name: values[keep] for name, values in whole.columns.items()},
                    None if times is None or np.isnan(times).all() else times,
                    lambda row: whole.place(int(keep[row])),
                )
            )


def _joined(groups: list[Batch]) -> Batch:
    ends = np.cumsum([len(group.slots) for group in groups])

    def place(row: int) -> Place:
        at = int(np.searchsorted(ends, row, "right"))
        return groups[at].place(row - int(ends[at]) + len(groups[at].slots))

    names = dict.fromkeys(name for group in groups for name in group.columns)
    return Batch(
        np.concatenate([group.slots for group in groups]),
        {name: np.concatenate([group.column(name) for group in groups]) for name in names},
        np.concatenate([group.times for group in groups if group.times is not None])
        if groups[0].times is not None
        else None,
        place,
    )


class Totals:
    """Sums over samples of `size` slots."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.samples = np.zeros(size, np.int64)
        self.dips = np.zeros(size, np.int64)
        self.hist = {name: np.zeros((size, bins), np.int32) for name, (bins, _) in _HISTOGRAMS.items()}
        self.highest = {name: np.full(size, np.nan) for name in _HIGHEST}
        self.width_min = np.full(size, np.nan)
        self.sm = np.zeros((size, 2))
        self.reasons = {bit: np.zeros(size, np.int64) for bit in REASON_NAMES}
        self.first = np.nan
        self.last = np.nan

    def add(self, batch: Batch, entries: npt.NDArray[np.bool_]) -> None:
        slots, size = batch.slots, self.size
        self.samples += np.bincount(slots, minlength=size)
        self.dips += np.bincount(slots[entries], minlength=size)
        util = batch.column("util")
        for name, (bins, width) in _HISTOGRAMS.items():
            column, _, part = name.partition("_")
            values = batch.columns.get(column)
            if values is None:
                continue
            keep = ~np.isnan(values)
            if part:
                keep &= util >= (SPINNING if part == "high" else BUSY)
            cells = slots[keep] * bins + np.clip(np.rint(values[keep] / width), 0, bins - 1).astype(np.int64)
            self.hist[name] += np.bincount(cells, minlength=size * bins).reshape(size, bins).astype(np.int32)
        for name in _HIGHEST:
            if name in batch.columns:
                np.fmax.at(self.highest[name], slots, batch.columns[name])
        if "width" in batch.columns:
            np.fmin.at(self.width_min, slots, batch.columns["width"])
        if "sm_active" in batch.columns:
            known = ~np.isnan(batch.columns["sm_active"])
            self.sm[:, 0] += np.bincount(slots[known], batch.columns["sm_active"][known], size)
            self.sm[:, 1] += np.bincount(slots[known], minlength=size)
        if "mask" in batch.columns:
            mask = bits(batch.columns["mask"])
            for bit, counts in self.reasons.items():
                counts += np.bincount(slots[mask & bit != 0], minlength=size)
        if batch.times is not None and len(batch.times):
            self.first = float(np.fmin(self.first, np.nanmin(batch.times)))
            self.last = float(np.fmax(self.last, np.nanmax(batch.times)))

    def merge(self, other: "Totals") -> None:
        self.samples += other.samples
        self.dips += other.dips
        for name, counts in other.hist.items():
            self.hist[name] += counts
        for name, values in other.highest.items():
            np.fmax(self.highest[name], values, out=self.highest[name])
        np.fmin(self.width_min, other.width_min, out=self.width_min)
        self.sm += other.sm
        for bit, known in other.reasons.items():
            self.reasons[bit] += known
        self.first = float(np.fmin(self.first, other.first))
        self.last = float(np.fmax(self.last, other.last))


def bits(values: Floats) -> Ints:
    """Masks that came as numbers; none where the number is missing or has more than 53 bits."""
    return np.where((values >= 0) & (values < 1 << 53), values, 0).astype(np.int64)


def known_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def whole_or_none(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def share(counts: Counts, of: int) -> float | None:
    return float(counts.sum() / of) if of else None


def median(counts: Counts, width: int = 1) -> float | None:
    """Median of values given as a histogram with bins around the multiples of `width`."""
    total = int(counts.sum())
    if not total:
        return None
    running = np.cumsum(counts)
    low, high = np.searchsorted(running, [(total - 1) // 2, total // 2], side="right")
    return float((low + high) / 2) * width
