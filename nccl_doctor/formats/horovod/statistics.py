"""Totals over the events of one run of Horovod, added piece by piece in constant memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nccl_doctor.formats.horovod.trace_events import BEGIN, END, MARK, MOST, NAMES, NONE, TICK, Events, Ints

Floats = npt.NDArray[np.float64]

WINDOWS = 120
LEAST_GAP = 10_000  # µs; shorter pauses are those between two cycles
_CARRIED = 200_000  # open activities kept from one piece to the next
_KEPT = 1 << 15  # values of which a median is taken


class Sample:
    """A median over any number of values: all of them, or evenly spaced ones."""

    def __init__(self) -> None:
        self.n = 0
        self._step = 1
        self._values: Floats = np.zeros(0)

    def add(self, values: npt.NDArray[np.generic]) -> None:
        first = -self.n % self._step
        self.n += int(values.size)
        self._values = np.concatenate([self._values, values[first :: self._step].astype(np.float64)])
        while self._values.size > 2 * _KEPT:
            self._values = self._values[::2]
            self._step *= 2

    def quantile(self, share: float = 0.5) -> float | None:
        return float(np.quantile(self._values, share)) if self._values.size else None


@dataclass
class Activity:
    n: int = 0
    total: int = 0  # µs
    busy: int = 0  # µs
    covered: int = -(1 << 62)  # µs up to which `busy` is counted
    longest: tuple[int, int, int, int] = (-1, 0, 0, 0)  # µs, begin, tensor, number of the event
    sample: Sample = field(default_factory=Sample)


@dataclass
class Arrival:
    """When one rank was ready."""

    n: int = 0
    last: int = 0
    latest: tuple[int, int, int, int] = (-1, 0, 0, 0)  # µs behind the first, its time, tensor, number of the event
    sample: Sample = field(default_factory=Sample)


class Windows:
    """Time by name over equal pieces of the run; the pieces double when there are too many."""

    def __init__(self) -> None:
        self.width = 1000  # µs
        self.busy: dict[str, Floats] = {}

    def add(self, key: str, start: Ints, stop: Ints) -> None:
        """Intervals that do not overlap, in order, in µs since the start of the run."""
        while stop.size and stop[-1] > self.width * WINDOWS:
            self.width *= 2
            for name, old in self.busy.items():
                merged = old[0::2] + old[1::2]
                self.busy[name] = np.concatenate([merged, np.zeros(WINDOWS - merged.size)])
        sums = self.busy.setdefault(key, np.zeros(WINDOWS))
        if stop.size:
            edges = np.arange(WINDOWS + 1) * self.width
            ends = np.column_stack([start, stop]).ravel()
            done = np.column_stack([np.cumsum(stop - start) - (stop - start), np.cumsum(stop - start)]).ravel()
            sums += np.diff(np.interp(edges, ends, done))


class Run:
    """One run of Horovod; `names` are the parser's and may grow."""

    def __init__(self, names: list[str], sizes: dict[int, int]) -> None:
        self.names = names
        self.events = 0
        self.first: int | None = None  # begin of the first collective that is not a broadcast
        self.last = 0
        self.activities: dict[int, Activity] = {}
        self.arrivals: dict[int, Arrival] = {}
        self.windows = Windows()
        self.negotiations = 0
        self.ticked = 0
        self.cycles = 0
        self.cycle = Sample()
        self.idle = 0
        self.gaps = Sample()
        self.longest_gaps: list[tuple[int, int, int]] = []  # µs, begin, number of the event before
        self.batches = 0
        self.split = 0
        self.batch_tensors = Sample()
        self.batch_bytes = Sample()
        self.open = NONE
        self.highest = 0
        self.counts = np.zeros(MOST * NAMES, np.int64)  # by tensor and name
        self.times = np.zeros(MOST * NAMES)  # µs, likewise
        self._sizes = sizes
        self._union = {"negotiate": -(1 << 62), "collective": -(1 << 62), "allreduce": -(1 << 62)}
        self.union = dict.fromkeys(self._union, 0)
        self._before: tuple[int, int, int] | None = None  # time of the last event, what was open behind it, its number
        self._last_batch = -(1 << 62)

    def add(self, new: Events) -> None:
        """Take the next piece of the run."""
        if not new.size:
            return
        self.events += new.size
        self._cycles(new)
        new = new.pick(new.phase != MARK)
        if not new.size:
            return
        self.highest = max(self.highest, int(new.pid.max()))
        self.last = max(self.last, int(new.ts.max()))
        if self.first is None:
            self._start(new)
        carried = self.open.size
        every = self.open.then(new)
        # The number of the tensor fits 16 bits in most files, for which numpy sorts by radix.
        order = np.argsort(every.pid.astype(np.uint16 if self.highest < 1 << 16 else np.int64), kind="stable")
        seen = every.pick(order)
        begin, end = self._pairs(seen)
        owners = self._ticks(seen, begin, end)
        still = np.zeros(seen.size, bool)
        is_begin = np.flatnonzero(seen.phase == BEGIN)
        still[is_begin] = True
        still[begin] = False
        tick_at = np.flatnonzero(owners >= 0)
        still[tick_at] = still[owners[tick_at]]
        self.open = every.pick(np.sort(order[still])[-_CARRIED:])
        self._gaps(every, order, end, carried)
        if begin.size:
            by_time = np.argsort(seen.ts[begin], kind="stable")
            self._durations(seen, begin[by_time], end[by_time])
            self._fusion(new, seen, begin, end)

    def pending(self) -> Ints:
        """Tensors whose negotiation has not ended; broadcasts are left out."""
        asked = [n for n, name in enumerate(self.names) if name.startswith("NEGOTIATE_") and "BROADCAST" not in name]
        return np.unique(self.open.pid[(self.open.phase == BEGIN) & np.isin(self.open.name, asked)])

    def ready(self) -> list[int]:
        """Ranks that are ready for one of these."""
        ticks = (self.open.phase == TICK) & np.isin(self.open.pid, self.pending())
        return [int(rank) for rank in np.unique(self.open.name[ticks])[:1000]]

    def _start(self, new: Events) -> None:
        """The first collective that is not a broadcast: before it ranks start up at different times."""
        ordinary = [n for n, name in enumerate(self.names) if "BROADCAST" not in name and "BCAST" not in name]
        hits = np.flatnonzero((new.phase == BEGIN) & np.isin(new.name, ordinary))
        if hits.size:
            self.first = int(new.ts[hits[0]])

    def _pairs(self, seen: Events) -> tuple[Ints, Ints]:
        """Places of begins and their ends: the same tensor, the same depth, one behind the other."""
        step = (seen.phase == BEGIN).astype(np.int64) - (seen.phase == END)
        total = np.cumsum(step)
        tensor = np.flatnonzero(np.diff(seen.pid, prepend=-1))
        before = np.repeat((total - step)[tensor], np.diff(np.append(tensor, seen.size)))
        depth = total - before + (seen.phase == END)
        edges = np.flatnonzero(seen.phase != TICK)
        key = seen.pid[edges] * 64 + np.clip(depth[edges] + 16, 0, 63)
        edges = edges[np.argsort(key, kind="stable")]
        key = np.sort(key, kind="stable")
        hit = np.flatnonzero((seen.phase[edges[:-1]] == BEGIN) & (seen.phase[edges[1:]] == END) & (key[:-1] == key[1:]))
        return edges[hit], edges[hit + 1]

    def _ticks(self, seen: Events, begin: Ints, end: Ints) -> Ints:
        """Count when each rank was ready in the negotiations that ended. Returns for each event the begin it ticks for, else -1."""
        places = np.arange(seen.size)
        latest = np.maximum.accumulate(np.where(seen.phase == BEGIN, places, -1))
        owners = np.where((seen.phase == TICK) & (latest >= 0), latest, -1)
        owners[(owners >= 0) & (seen.pid[owners] != seen.pid)] = -1
        closed = np.full(seen.size, -1)
        closed[begin] = end
        late = np.flatnonzero((owners >= 0) & (closed[owners] >= 0) & (closed[owners] < places))
        owners[late] = -1
        asked = [n for n, name in enumerate(self.names) if name.startswith("NEGOTIATE_") and "BROADCAST" not in name]
        counted = begin[np.isin(seen.name[begin], asked)]
        self.negotiations += int(counted.size)
        own = np.zeros(seen.size, bool)
        own[counted] = True
        ticks = np.flatnonzero((owners >= 0) & own[owners])
        if ticks.size:
            owner = owners[ticks]
            last = np.append(owner[1:] != owner[:-1], True)
            alone = np.append(True, owner[1:] != owner[:-1]) & last
            self.ticked += int((last & ~alone).sum())
            delay = seen.ts[ticks] - seen.ts[owner]
            rank = seen.name[ticks]
            for number in np.unique(rank[~alone]).tolist():
                mine = (rank == number) & ~alone
                arrival = self.arrivals.setdefault(number, Arrival()) if len(self.arrivals) < 1 << 16 else Arrival()
                arrival.n += int(mine.sum())
                arrival.last += int((mine & last).sum())
                arrival.sample.add(delay[mine])
                worst = ticks[mine][int(delay[mine].argmax())]
                arrival.latest = max(arrival.latest, (int(delay[mine].max()), *_place(seen, worst)))
        return owners

    def _durations(self, seen: Events, begin: Ints, end: Ints) -> None:
        start, stop, name = seen.ts[begin], np.maximum(seen.ts[end], seen.ts[begin]), seen.name[begin]
        groups: dict[str, list[int]] = {"negotiate": [], "collective": [], "allreduce": []}
        for number in np.unique(name).tolist():
            mine = name == number
            took = stop[mine] - start[mine]
            activity = self.activities.setdefault(number, Activity())
            activity.n += int(took.size)
            activity.total += int(took.sum())
            a, b = _disjoint(start[mine], stop[mine], activity.covered)
            activity.busy += int((b - a).sum())
            activity.covered = max(activity.covered, int(b[-1]))
            activity.sample.add(took)
            worst = int(took.argmax())
            activity.longest = max(activity.longest, (int(took[worst]), *_place(seen, begin[mine][worst])))
            text = self.names[number]
            if "BROADCAST" not in text and "BCAST" not in text:
                groups["negotiate" if text.startswith("NEGOTIATE_") else "collective"].append(number)
                if text.endswith("ALLREDUCE") and not text.startswith("NEGOTIATE_"):
                    groups["allreduce"].append(number)
        for group, numbers in groups.items():
            mine = np.isin(name, numbers)
            if self.first is None or not mine.any():
                continue
            a, b = _disjoint(start[mine], stop[mine], max(self._union[group], self.first))
            self._union[group] = max(self._union[group], int(b[-1]))
            self.union[group] += int((b - a).sum())
            self.windows.add(group, a - self.first, b - self.first)
        place = np.minimum(seen.pid[begin], MOST - 1) * NAMES + name
        self.counts += np.bincount(place, minlength=MOST * NAMES)
        self.times += np.bincount(place, weights=stop - start, minlength=MOST * NAMES)

    def _gaps(self, every: Events, order: Ints, end: Ints, carried: int) -> None:
        """Stretches without an event in which nothing was open; unmatched ends do not count."""
        step = (every.phase == BEGIN).astype(np.int64)
        step[order[end]] = -1
        pending, ts, number = np.cumsum(step)[carried:], every.ts[carried:], every.number[carried:]
        if self._before is not None:
            pending = np.append(self._before[1], pending)
            ts, number = np.append(self._before[0], ts), np.append(self._before[2], number)
        self._before = int(ts[-1]), int(pending[-1]), int(number[-1])
        pause = np.maximum(np.diff(ts, append=ts[-1:]), 0)
        idle = (pending <= 0) & (ts >= (self.first if self.first is not None else 1 << 62))
        self.idle += int(pause[idle].sum())
        where = np.flatnonzero(idle & (pause >= LEAST_GAP))
        self.gaps.add(pause[where])
        found = list(zip(pause[where].tolist(), ts[where].tolist(), number[where].tolist(), strict=True))
        self.longest_gaps = sorted(self.longest_gaps + found, reverse=True)[:100]

    def _cycles(self, new: Events) -> None:
        """Length of the cycles in which nothing happened: what HOROVOD_CYCLE_TIME asks for."""
        marks = new.phase == MARK
        self.cycles += int(marks.sum())
        quiet = np.flatnonzero(marks[:-1] & marks[1:])
        if quiet.size:
            self.cycle.add(new.ts[quiet + 1] - new.ts[quiet])

    def _fusion(self, new: Events, seen: Events, begin: Ints, end: Ints) -> None:
        """Allreduces as executed: begins of the same transfer that follow each other share one fusion buffer."""
        begins = new.pick(new.phase == BEGIN)
        transfers = [n for n, name in enumerate(self.names) if name.endswith("_ALLREDUCE") and "NEGOTIATE" not in name]
        same = np.diff(begins.name, prepend=-1) != 0
        first = np.flatnonzero(same)
        first = first[np.isin(begins.name[first], transfers)]
        if not first.size:
            return
        bounds = np.append(np.flatnonzero(same), begins.size)
        stop = bounds[np.searchsorted(bounds, first) + 1]
        self.batches += int(first.size)
        self.batch_tensors.add(stop - first)
        known = np.zeros(MOST + 1)
        for tensor, size in self._sizes.items():
            known[min(tensor, MOST)] = size
        sizes = np.concatenate([[0.0], np.cumsum(known[np.minimum(begins.pid, MOST)])])
        total = sizes[stop] - sizes[first]
        self.batch_bytes.add(total[total > 0])
        asked = [n for n, name in enumerate(self.names) if name == "NEGOTIATE_ALLREDUCE"]
        ready = np.isin(seen.name[begin], asked)
        self._count_split(begins, first, stop, seen.pid[begin[ready]], seen.ts[end[ready]])

    def _count_split(self, begins: Events, first: Ints, stop: Ints, pid: Ints, agreed: Ints) -> None:
        """Batches whose tensors were all agreed upon when the batch before them started could have been one with it."""
        earliest = int(agreed.min()) if agreed.size else 0
        keys = np.append(-1, np.sort(_key(pid, agreed - earliest)))
        own = _key(begins.pid, np.zeros(begins.size, np.int64))
        found = keys[np.searchsorted(keys, _key(begins.pid, begins.ts - earliest), side="right") - 1]
        when = np.append(np.where(found >= own, found - own + earliest, 1 << 62), 0)
        latest = np.maximum.reduceat(when, np.column_stack([first, stop]).ravel())[::2]
        previous = np.append(self._last_batch, begins.ts[first[:-1]])
        self._last_batch = int(begins.ts[first[-1]])
        self.split += int((latest <= previous).sum())


def _place(seen: Events, at: np.int64) -> tuple[int, int, int]:
    return int(seen.ts[at]), int(seen.pid[at]), int(seen.number[at])


def _key(pid: Ints, ts: Ints) -> Ints:
    """One number that sorts by tensor, then by time within 12 days."""
    return (np.minimum(pid, 1 << 22) << 40) + np.clip(ts, 0, (1 << 40) - 1)


def _disjoint(start: Ints, stop: Ints, covered: int) -> tuple[Ints, Ints]:
    """The union of intervals that are in order of their start, without what lies before `covered`."""
    reached = np.maximum.accumulate(np.concatenate([[covered], stop]))[:-1]
    begin = np.maximum(start, reached)
    return begin, np.maximum(stop, begin)


def tensors(run: Run, most: int = 100) -> Iterator[tuple[int, int, int, float]]:
    """(tensor, name, n, µs) of the tensors with the most time."""
    counts, times = run.counts.reshape(MOST, NAMES), run.times.reshape(MOST, NAMES)
    for tensor in np.argsort(-times.sum(axis=1), kind="stable")[:most].tolist():
        for name in np.flatnonzero(counts[tensor]).tolist():
            yield tensor, name, int(counts[tensor, name]), float(times[tensor, name])
