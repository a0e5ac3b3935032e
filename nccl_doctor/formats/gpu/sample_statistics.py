"""Samples of GPUs summed up while they are read: histograms a GPU, and sums a window of time. Memory does not grow with the file."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuCounter, GpuSample, GpuThrottle, GpuUse, IdleSpan, ThrottleSpan
from nccl_doctor.formats.gpu.columns import REASON_NAMES, limit_of
from nccl_doctor.formats.gpu.sample_totals import (
    BUSY,
    DIP,
    IDLE,
    MHZ,
    SPINNING,
    WATT,
    Batch,
    Floats,
    Gpu,
    Ints,
    Place,
    Totals,
    bits,
    known_or_none,
    median,
    share,
    whole_or_none,
)
from nccl_doctor.formats.gpu.throttle_spans import NO_WORK, ThrottleSpans

IN_USE = 1024.0  # MiB; a driver alone holds less
LOW_POWER = 0.4  # of the limit: what waiting in a collective draws
WINDOW = 60.0  # seconds; doubled while a file needs more than MAX_WINDOWS of them
MAX_WINDOWS = 1000


class Samples:
    """Everything one file of samples says."""

    MAX_GPUS = 1024  # different ones in one file; what comes later is left out

    def __init__(self) -> None:
        self.gpus: list[Gpu] = []
        self.refused = False
        self._slots: dict[object, int] = {}
        self._size = 0
        self._job = self._before = self._after = Totals(0)
        self._started = False
        self._dipping = np.zeros(0, bool)
        self._shown: dict[int, Place] = {}
        self._slack: dict[int, Place] = {}  # first sample below BUSY once the job had begun
        self._reason_at: dict[tuple[int, int], Place] = {}
        self._spans = ThrottleSpans()
        self._counters: dict[tuple[int, str], tuple[float | None, float, Place]] = {}
        self._unreadable: list[tuple[Gpu, Place]] = []
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

    def next_of(self, host: str | None) -> int:
        """The number of the next GPU of a host: nvidia-smi lists GPUs in the order of their numbers, also where it shows none."""
        return sum(gpu.host == host for gpu in self.gpus)

    def add(self, batch: Batch) -> None:
        """Take samples. Those before any GPU is in use, and those after the last one was, are not part of the job."""
        if not len(batch.slots):
            return
        batch = batch.plausible()
        self._grow()
        self._note(batch)
        entries = self._entries(batch)
        active = np.flatnonzero((batch.column("util") >= IDLE) | (batch.column("memory") >= IN_USE))
        if batch.times is not None:
            self._window(batch)
            self._spans.add(batch)
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
            self._after = Totals(self._size)
        self._started = True
        part = batch.part(begin, end)
        self._job.add(part, entries[begin:end])
        self._slacken(part)
        if end < len(batch.slots):
            self._after.add(batch.part(end, len(batch.slots)), entries[end:])

    def unreadable(self, gpu: Gpu, place: Place) -> None:
        """Remember the first place where the tool says that it cannot read this GPU."""
        if len(self._unreadable) < 64 and all(known != gpu for known, _ in self._unreadable):
            self._unreadable.append((gpu, place))

    def _grow(self) -> None:
        if self._size >= len(self.gpus):
            return
        size = 8
        while size < len(self.gpus):
            size *= 2
        totals = []
        for old in (self._job, self._before, self._after):
            new = Totals(size)
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
            mask = bits(batch.columns["mask"])
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
        known = np.isfinite(batch.times)
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

    def write(self, facts: Facts, file: str, source: str, *, of_job: bool = True) -> None:
        """Turn the sums into rows; of a tool that samples all GPUs of a node, not those `of_job`, the GPUs that worked at all."""
        totals = self._job if self._started else self._before
        worked = totals.hist["util"][:, IDLE:].sum(1) > 0
        refs = {}
        for slot in range(len(self.gpus)):
            if slot in self._shown and (of_job or worked[slot] or not worked.any()):
                refs[slot] = facts.evidence(file, *self._slack.get(slot, self._shown[slot]))
        facts.add(self._uses(totals, refs, file, source))
        facts.add(self._samples(refs, file))
        facts.add(self._throttles(totals, facts, file))
        facts.add(
            IdleSpan(self.gpus[slot].host, self.gpus[slot].number, file, start, end, ref)
            for slot, ref in refs.items()
            for start, end in self._spans.of(slot, NO_WORK)
        )
        facts.add(
            GpuCounter(self.gpus[slot].host, self.gpus[slot].number, name, first, last, facts.evidence(file, *place))
            for (slot, name), (first, last, place) in self._counters.items()
        )
        facts.add(
            GpuCounter(gpu.host, gpu.number, "unreadable", None, 1.0, facts.evidence(file, *place))
            for gpu, place in self._unreadable
        )
        facts.mark_covered("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "throttle_span", "idle_span")

    def _uses(self, totals: Totals, refs: dict[int, int], file: str, source: str) -> Iterator[GpuUse]:
        # Without a limit in the file or from the model, the highest draw of any GPU is used: the limit cannot be below it.
        drawn = np.flatnonzero(totals.hist["power"].sum(0)) if totals.size else np.zeros(0)
        seen = float(drawn[-1]) * WATT if len(drawn) else None
        for slot, ref in refs.items():
            gpu, samples = self.gpus[slot], int(totals.samples[slot])
            if not samples:
                continue
            util = totals.hist["util"][slot]
            count = int(util.sum())
            limit = known_or_none(totals.highest["power_limit"][slot]) or limit_of(gpu.model)
            high = totals.hist["power_high"][slot]
            bound = LOW_POWER * (limit or seen or 0)
            spin = float(high[: int(np.ceil(bound / WATT))].sum() / high.sum()) if high.sum() and bound else None
            yield GpuUse(
                host=gpu.host, gpu=gpu.number, uuid=gpu.uuid, model=gpu.model, source=source, file=file,
                samples=samples, first=known_or_none(totals.first),
                seconds=None if np.isnan(totals.first) else round(totals.last - totals.first, 3),
                busy_share=share(util[BUSY:], count), idle_share=share(util[:IDLE], count),
                util_mean=float((util * np.arange(101)).sum() / count) if count else None, util_median=median(util),
                dips=int(totals.dips[slot]) if count else None, dip_share=share(util[DIP[0] : DIP[1] + 1], count),
                high_share=share(util[SPINNING:], count), spin_share=spin,
                power_median=_first(median(totals.hist["power_busy"][slot], WATT), median(totals.hist["power"][slot], WATT)),
                power_limit=limit,
                clock_median=_first(median(totals.hist["clock_busy"][slot], MHZ), median(totals.hist["clock"][slot], MHZ)),
                clock_max=known_or_none(totals.highest["clock_max"][slot]),
                temperature_max=known_or_none(totals.highest["temperature"][slot]),
                memory_max=known_or_none(totals.highest["memory"][slot]),
                memory_total=known_or_none(totals.highest["memory_total"][slot]),
                sm_active=float(totals.sm[slot, 0] / totals.sm[slot, 1]) if totals.sm[slot, 1] else None,
                width_min=whole_or_none(totals.width_min[slot]),
                width_max=whole_or_none(totals.highest["width_max"][slot]), ref=ref,
            )  # fmt: skip

    def _samples(self, refs: dict[int, int], file: str) -> Iterator[GpuSample]:
        for number, sums in sorted(self._windows.items()):
            start = (self._origin or 0.0) + number * self._width
            for slot, ref in refs.items():
                n, util, util_n, busy, power, memory = (float(value) for value in sums[slot])
                if n:
                    gpu = self.gpus[slot]
                    yield GpuSample(
                        host=gpu.host, gpu=gpu.number, file=file, start=start, seconds=self._width, samples=int(n),
                        util_mean=util / util_n if util_n else None, busy_share=busy / util_n if util_n else None,
                        power_mean=power / n if power else None, memory_max=memory or None, ref=ref,
                    )  # fmt: skip

    def _throttles(self, totals: Totals, facts: Facts, file: str) -> Iterator[GpuThrottle | ThrottleSpan]:
        for (slot, bit), place in sorted(self._reason_at.items()):
            n = int(totals.reasons[bit][slot])
            if n:
                gpu = self.gpus[slot]
                ref = facts.evidence(file, *place)
                yield GpuThrottle(gpu.host, gpu.number, REASON_NAMES[bit], n, n / int(totals.samples[slot]), ref)
                for start, end in self._spans.of(slot, bit):
                    yield ThrottleSpan(gpu.host, gpu.number, file, REASON_NAMES[bit], start, end, ref)


def _first(a: float | None, b: float | None) -> float | None:
    return a if a is not None else b
