"""Samples of GPUs summed up while they are read: histograms a GPU, and sums a window of time. Memory does not grow with the file."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuCounter, GpuSample, GpuThrottle, GpuUse
from nccl_doctor.formats.gpu.columns import REASON_NAMES, limit_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Place = tuple[int, str]  # line number and text
BUSY, SPINNING, IDLE = 80, 95, 5  # % of utilisation
DIP = (10, 25)  # % of utilisation
IN_USE = 1024.0  # MiB; a driver alone holds less
LOW_POWER = 0.4  # of the limit: what waiting in a collective draws
WINDOW = 60.0  # seconds; doubled while a file needs more than MAX_WINDOWS of them
MAX_WINDOWS = 1000
_WATT, _MHZ = 2, 5  # width of a bin of the histograms of power and clock
_HISTOGRAMS = {
    "util": (101, 1), "power_high": (768, _WATT), "power_busy": (768, _WATT), "power": (768, _WATT),
    "clock_busy": (700, _MHZ), "clock": (700, _MHZ),
}  # fmt: skip
"""Name -> number of bins and width of one. `busy` and `high` count only samples with utilisation of BUSY or SPINNING and more."""
_HIGHEST = ("memory", "memory_total", "temperature", "power_limit", "clock_max", "width_max")


class Gpu(NamedTuple):
    """Who a slot of the sums is."""

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

    def column(self, name: str) -> Floats:
        known = self.columns.get(name)
        return known if known is not None else np.full(len(self.slots), np.nan)


class _Totals:
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
            mask = _bits(batch.columns["mask"])
            for bit, counts in self.reasons.items():
                counts += np.bincount(slots[mask & bit != 0], minlength=size)
        if batch.times is not None and len(batch.times):
            self.first = float(np.fmin(self.first, np.nanmin(batch.times)))
            self.last = float(np.fmax(self.last, np.nanmax(batch.times)))

    def merge(self, other: "_Totals") -> None:
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


class Samples:
    """Everything one file of samples says."""

    MAX_GPUS = 1024  # different ones in one file; what comes later is left out

    def __init__(self) -> None:
        self.gpus: list[Gpu] = []
        self.refused = False
        self._slots: dict[object, int] = {}
        self._size = 0
        self._job = self._before = self._after = _Totals(0)
        self._started = False
        self._dipping = np.zeros(0, bool)
        self._shown: dict[int, Place] = {}
        self._slack: dict[int, Place] = {}  # first sample below BUSY once the job had begun
        self._reason_at: dict[tuple[int, int], Place] = {}
        self._counters: dict[tuple[int, str], tuple[float | None, float, Place]] = {}
        self._unreadable: list[Place] = []
        self._windows: dict[int, Floats] = {}
        self._width = WINDOW
        self._origin: float | None = None

    def slot(self, key: object, gpu: Callable[[], Gpu]) -> int:
        """The number of a GPU; `gpu` tells who it is when it is new. -1 where the file names too many."""
        number = self._slots.get(key)
        if number is None:
            if len(self.gpus) >= self.MAX_GPUS:
                self.refused = True
                return -1
            number = self._slots[key] = len(self.gpus)
            self.gpus.append(gpu())
        return number

    def add(self, batch: Batch) -> None:
        """Take samples. Those before any GPU is in use, and those after the last one was, are not part of the job."""
        if not len(batch.slots):
            return
        self._grow()
        self._note(batch)
        entries = self._entries(batch)
        active = np.flatnonzero((batch.column("util") >= IDLE) | (batch.column("memory") >= IN_USE))
        if batch.times is not None:
            self._window(batch)
        # One reading of all GPUs is as many rows; the job's first and last one are kept whole.
        others, rows = len(self.gpus) - 1, len(batch.slots)
        begin, end = (
            (max(0, int(active[0]) - others), min(rows, int(active[-1]) + 1 + others)) if len(active) else (rows, rows)
        )
        idle = self._after if self._started else self._before
        if not len(active):
            idle.add(batch, entries)
            return
        if begin:
            idle.add(batch.part(0, begin), entries[:begin])
        if self._started:
            self._job.merge(self._after)
            self._after = _Totals(self._size)
        self._started = True
        part = batch.part(begin, end)
        self._job.add(part, entries[begin:end])
        self._slacken(part)
        if end < len(batch.slots):
            self._after.add(batch.part(end, len(batch.slots)), entries[end:])

    def unreadable(self, place: Place) -> None:
        """Remember a place where the tool says that it cannot read a GPU."""
        if len(self._unreadable) < 10:
            self._unreadable.append(place)

    def _grow(self) -> None:
        if self._size >= len(self.gpus):
            return
        size = 8
        while size < len(self.gpus):
            size *= 2
        totals = []
        for old in (self._job, self._before, self._after):
            new = _Totals(size)
            for name in ("samples", "dips", "width_min", "sm"):
                getattr(new, name)[: old.size] = getattr(old, name)
            for group in ("hist", "highest", "reasons"):
                for key, values in getattr(old, group).items():
                    getattr(new, group)[key][: old.size] = values
            new.first, new.last = old.first, old.last
            totals.append(new)
        self._job, self._before, self._after = totals
        for window, sums in self._windows.items():
            wider = np.zeros((size, 6))
            wider[: len(sums)] = sums
            self._windows[window] = wider
        self._dipping = np.concatenate([self._dipping, np.zeros(size - len(self._dipping), bool)])
        self._size = size

    def _entries(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Where a GPU falls into the range of a dip."""
        util = batch.column("util")
        inside = (util >= DIP[0]) & (util <= DIP[1])
        order = np.argsort(batch.slots.astype(np.uint16), kind="stable")
        slots, sorted_inside = batch.slots[order], inside[order]
        starts = np.flatnonzero(np.diff(slots, prepend=-1))
        before = np.concatenate([[False], sorted_inside[:-1]])
        before[starts] = self._dipping[slots[starts]]
        ends = np.append(starts[1:], len(slots)) - 1
        self._dipping[slots[ends]] = sorted_inside[ends]
        entries = np.zeros(len(slots), bool)
        entries[order] = sorted_inside & ~before
        return entries

    def _note(self, batch: Batch) -> None:
        """Remember where GPUs, throttle reasons and counters were first seen."""
        if len(self._shown) < len(self.gpus):
            for slot, row in zip(*np.unique(batch.slots, return_index=True), strict=True):
                self._shown.setdefault(int(slot), batch.place(int(row)))
        if "mask" in batch.columns:
            mask = _bits(batch.columns["mask"])
            for bit in REASON_NAMES:
                rows = np.flatnonzero(mask & bit)
                for slot, at in zip(*np.unique(batch.slots[rows], return_index=True), strict=True):
                    if (int(slot), bit) not in self._reason_at:
                        self._reason_at[int(slot), bit] = batch.place(int(rows[at]))
        for name, values in batch.columns.items():
            if name.startswith("counter:"):
                for slot in np.unique(batch.slots[~np.isnan(values)]):
                    rows = np.flatnonzero((batch.slots == slot) & ~np.isnan(values))
                    self._count(int(slot), name[8:], values, rows, batch)

    def _count(self, slot: int, name: str, values: Floats, rows: Ints, batch: Batch) -> None:
        top = int(rows[np.argmax(values[rows])])
        known = self._counters.get((slot, name))
        if known is None:
            self._counters[slot, name] = (float(values[rows[0]]), float(values[top]), batch.place(top))
        elif values[top] > known[1]:
            self._counters[slot, name] = (known[0], float(values[top]), batch.place(top))

    def _slacken(self, part: Batch) -> None:
        if len(self._slack) == len(self.gpus):
            return
        rows = np.flatnonzero(part.column("util") < BUSY)
        for slot, at in zip(*np.unique(part.slots[rows], return_index=True), strict=True):
            if int(slot) not in self._slack:
                self._slack[int(slot)] = part.place(int(rows[at]))

    def _window(self, batch: Batch) -> None:
        assert batch.times is not None
        known = ~np.isnan(batch.times)
        if not known.any():
            return
        times, slots = batch.times[known], batch.slots[known]
        if self._origin is None:
            self._origin = float(np.floor(times.min() / WINDOW) * WINDOW)
        while True:
            keys = np.floor((times - self._origin) / self._width).astype(np.int64)
            low, high = int(keys.min()), int(keys.max())
            if max(high, *self._windows, 0) - min(low, *self._windows, 0) < MAX_WINDOWS:
                break
            self._widen()
        span, size = high - low + 1, self._size
        places = (keys - low) * size + slots
        util, power, memory = (batch.column(name)[known] for name in ("util", "power", "memory"))
        sums = np.zeros((span * size, 6))
        weights = (np.ones(len(places)), np.nan_to_num(util), ~np.isnan(util), util >= BUSY, np.nan_to_num(power))
        for number, weight in enumerate(weights):
            sums[:, number] = np.bincount(places, weight, span * size)
        np.fmax.at(sums[:, 5], places, np.nan_to_num(memory))
        for number, part in enumerate(sums.reshape(span, size, 6), low):
            self._put(number, part)

    def _put(self, number: int, part: Floats) -> None:
        known = self._windows.get(number)
        if known is None:
            if part[:, 0].any():
                self._windows[number] = part.copy()
        else:
            known[:, :5] += part[:, :5]
            np.maximum(known[:, 5], part[:, 5], out=known[:, 5])

    def _widen(self) -> None:
        old, self._windows = self._windows, {}
        self._width *= 2
        for number, part in old.items():
            self._put(number // 2, part)

    def write(self, facts: Facts, file: str, source: str) -> None:
        """Turn the sums into rows."""
        totals = self._job if self._started else self._before
        refs = {}
        for slot in range(len(self.gpus)):
            if slot in self._shown:
                refs[slot] = facts.evidence(file, *self._slack.get(slot, self._shown[slot]))
        facts.add(self._uses(totals, refs, file, source))
        facts.add(self._samples(refs, file))
        facts.add(self._throttles(totals, facts, file))
        facts.add(
            GpuCounter(self.gpus[slot].host, self.gpus[slot].number, name, first, last, facts.evidence(file, *place))
            for (slot, name), (first, last, place) in self._counters.items()
        )
        facts.add(
            GpuCounter(None, None, "unreadable", None, 1.0, facts.evidence(file, *place)) for place in self._unreadable
        )
        facts.look("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter")

    def _uses(self, totals: _Totals, refs: dict[int, int], file: str, source: str) -> Iterator[GpuUse]:
        # Without a limit in the file or from the model, the highest draw of any GPU stands for it: it can only be lower.
        drawn = np.flatnonzero(totals.hist["power"].sum(0)) if totals.size else np.zeros(0)
        seen = float(drawn[-1]) * _WATT if len(drawn) else None
        for slot, ref in refs.items():
            gpu, samples = self.gpus[slot], int(totals.samples[slot])
            if not samples:
                continue
            util = totals.hist["util"][slot]
            count = int(util.sum())
            limit = _known(totals.highest["power_limit"][slot]) or limit_of(gpu.model)
            high = totals.hist["power_high"][slot]
            bound = LOW_POWER * (limit or seen or 0)
            spin = float(high[: int(np.ceil(bound / _WATT))].sum() / high.sum()) if high.sum() and bound else None
            yield GpuUse(
                gpu.host, gpu.number, gpu.uuid, gpu.model, source, file, samples,
                _known(totals.first), None if np.isnan(totals.first) else round(totals.last - totals.first, 3),
                _share(util[BUSY:], count), _share(util[:IDLE], count),
                float((util * np.arange(101)).sum() / count) if count else None, _median(util),
                int(totals.dips[slot]) if count else None, _share(util[DIP[0] : DIP[1] + 1], count),
                _share(util[SPINNING:], count), spin,
                _first(_median(totals.hist["power_busy"][slot], _WATT), _median(totals.hist["power"][slot], _WATT)), limit,
                _first(_median(totals.hist["clock_busy"][slot], _MHZ), _median(totals.hist["clock"][slot], _MHZ)),
                _known(totals.highest["clock_max"][slot]), _known(totals.highest["temperature"][slot]),
                _known(totals.highest["memory"][slot]), _known(totals.highest["memory_total"][slot]),
                float(totals.sm[slot, 0] / totals.sm[slot, 1]) if totals.sm[slot, 1] else None,
                _whole(totals.width_min[slot]), _whole(totals.highest["width_max"][slot]), ref,
            )  # fmt: skip

    def _samples(self, refs: dict[int, int], file: str) -> Iterator[GpuSample]:
        for number, sums in sorted(self._windows.items()):
            start = (self._origin or 0.0) + number * self._width
            for slot, ref in refs.items():
                n, util, util_n, busy, power, memory = (float(value) for value in sums[slot])
                if n:
                    gpu = self.gpus[slot]
                    yield GpuSample(
                        gpu.host, gpu.number, file, start, self._width, int(n), util / util_n if util_n else None,
                        busy / util_n if util_n else None, power / n if power else None, memory or None, ref,
                    )  # fmt: skip

    def _throttles(self, totals: _Totals, facts: Facts, file: str) -> Iterator[GpuThrottle]:
        for (slot, bit), place in sorted(self._reason_at.items()):
            n = int(totals.reasons[bit][slot])
            if n:
                gpu = self.gpus[slot]
                ref = facts.evidence(file, *place)
                yield GpuThrottle(gpu.host, gpu.number, REASON_NAMES[bit], n, n / int(totals.samples[slot]), ref)


def _bits(values: Floats) -> Ints:
    """Masks that came as numbers; none where the number is missing or has more than 53 bits."""
    return np.where((values >= 0) & (values < 1 << 53), values, 0).astype(np.int64)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _first(a: float | None, b: float | None) -> float | None:
    return a if a is not None else b


def _share(counts: Counts, of: int) -> float | None:
    return float(counts.sum() / of) if of else None


def _median(counts: Counts, width: int = 1) -> float | None:
    """Median of values given as a histogram with bins around the multiples of `width`."""
    total = int(counts.sum())
    if not total:
        return None
    running = np.cumsum(counts)
    low, high = np.searchsorted(running, [(total - 1) // 2, total // 2], side="right")
    return float((low + high) / 2) * width
