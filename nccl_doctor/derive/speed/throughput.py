"""Derives from step lines, per run: the steady rate, stretches of different speed, stalls and periodic dips."""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccl_doctor.common.robust import median, spread
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.speed.change_points import bumps, change_points, drift, period
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import DipPeriod, Regime, Stall, Steady, Step, ThroughputRun, TrainingEvent

WARM = 0.1  # a leading step that is slower than the later ones by this share belongs to the warm-up …
WARM_MADS = 5.0  # … if it is also so many median deviations away
STALL = 3.0  # a step at least this many times longer than the median is a stall
DIP = 1.3  # a step at least this many times longer than the median counts in the search for periodic dips
_MOST = 200  # stalls kept of a run
_MEANS = ("tqdm", "megatron", "hf-trainer")  # tools whose lines tell the mean of all steps since the line before
TIMES_ONE_STEP = ("nanogpt",)  # tools that time single steps, and print no line for those between


@derivation(fills=[Steady, Regime, Stall, DipPeriod], needs=[ThroughputRun], reads=[Step, TrainingEvent])
def throughput(facts: Facts) -> Iterator[Steady | Regime | Stall | DipPeriod]:
    """Steady rate, warm-up, stalls and dips of each run."""
    steps: dict[int, list[Step]] = {}
    for step in facts.rows(Step):
        if step.rate:
            steps.setdefault(step.run, []).append(step)
    events: dict[str, list[tuple[int, str]]] = {}
    for file, line, kind in facts.query("SELECT file, line, kind FROM training_event ORDER BY file, line"):
        events.setdefault(file, []).append((line, kind))
    for run in facts.rows(ThroughputRun):
        if steps.get(run.run):
            yield from _rows(run, steps[run.run], events.get(run.file, []))


def _cost(step: Step) -> float:
    """Seconds of a step, or something proportional where the line shows a rate only."""
    return step.seconds if step.seconds else 1 / (step.rate or 1.0)


def warm_up(costs: Sequence[float]) -> int:
    """How many leading values belong to the warm-up: slower than the second half allows, at most half of all."""
    half = costs[len(costs) // 2 :]
    middle, deviation = spread(half)
    limit = middle + max(WARM * middle, WARM_MADS * deviation)
    return next((i for i, cost in enumerate(costs[: len(costs) // 2]) if cost <= limit), len(costs) // 2)


class _Series(NamedTuple):
    """The steps of a run after its warm-up, cut into stretches of one speed."""

    run: ThroughputRun
    steps: list[Step]
    costs: list[float]  # seconds of each step, or something proportional
    middles: list[float]  # the median cost of the stretch of each step
    stretches: list[tuple[int, int]]  # first index, index after the last
    levels: list[list[Step]]  # those of each level, without the bumps in it

    @property
    def longest(self) -> list[Step]:
        """The steps of the level with the most of them; of equal ones the later."""
        return max(enumerate(self.levels), key=lambda level: (sum(step.n for step in level[1]), level[0]))[1]


def _rows(
    run: ThroughputRun, steps: list[Step], events: list[tuple[int, str]]
) -> Iterator[Steady | Regime | Stall | DipPeriod]:
    steps = _without_restarts(steps)
    costs = [_cost(step) for step in steps]
    warm = warm_up(costs) if len(steps) > 2 else 0
    series = _series(run, steps[warm:], costs[warm:])
    regimes = [_regime(run, series.steps[a:b], position) for position, (a, b) in enumerate(series.stretches)]
    best = max(regime.rate for regime in regimes)
    yield from (regime._replace(ratio=regime.rate / best) for regime in regimes)
    yield _steady(series, sum(step.n for step in steps[:warm]))
    yield from _stalls(run, series.steps, series.costs, series.middles, events)
    total, _ = _time(series)
    yield from _dips(run, series.steps, series.costs, series.middles, events, total)


def _without_restarts(steps: list[Step]) -> list[Step]:
    """All steps but the first ones of a program that was started again in the same log, which warms up as it did before."""
    first = steps[0].step
    return [
        step
        for before, step in zip([steps[0], *steps], steps, strict=False)
        if first is None or step.n > 1 or step.step != first or (before.last_step or first) <= first
    ]


def _series(run: ThroughputRun, steps: list[Step], costs: list[float]) -> _Series:
    ends = [(a, b) for a, b in itertools.pairwise([0, *change_points(costs), len(steps)]) if b > a]
    high = [(a + start, a + stop) for a, b in ends for start, stop in bumps(costs[a:b])]
    stretches = list(itertools.pairwise(sorted({place for pair in (*ends, *high) for place in pair})))
    inside = {index for pair in high for index in range(*pair)}
    levels = [[steps[index] for index in range(*pair) if index not in inside] for pair in ends]
    middles = [middle for a, b in stretches for middle in [median(costs[a:b])] * (b - a)]
    return _Series(run, steps, costs, middles, stretches, levels)


def _steady(series: _Series, warm_steps: int) -> Steady:
    """The longest stretch as the steady state, and what all steps after the warm-up lost and waited."""
    run, longest = series.run, series.longest
    rate, deviation = spread(step.rate or 0.0 for step in longest)
    seconds = [step.seconds for step in longest if step.seconds]
    total, lost = _time(series)
    return Steady(
        run=run.run, warmup=warm_steps, first_step=longest[0].step, last_step=longest[-1].last_step, points=sum(s.n for s in longest),
        seconds=median(seconds) if seconds else None, rate=rate, mad=deviation, job_rate=_of_job(run, rate),
        drift=drift([step.rate or 0.0 for step in series.steps]), regimes=len(series.stretches),
        lost=lost / total if total else None, data=_data_share(series.steps), ref=longest[0].ref,
    )  # fmt: skip


def _time(series: _Series) -> tuple[float, float]:
    """(time of all steps, time that stalls took beyond the median of their stretch; batches of unequal size are none)."""
    total = lost = 0.0
    unseen = _stride(series.steps) - 1 if series.run.tool in TIMES_ONE_STEP else 0  # between two lines
    for step, cost, middle in zip(series.steps, series.costs, series.middles, strict=True):
        spent = cost * (step.n - 1 + step.slowest)
        total += spent + unseen * step.n * middle
        if cost * step.slowest > STALL * middle:
            lost += max(spent - step.n * middle, 0.0)
    return total, lost


def _data_share(steps: list[Step]) -> float | None:
    """The share of the time that single steps waited for data; None where no line tells it."""
    waits = [(step.data, step.seconds) for step in steps if step.data is not None and step.seconds and step.n == 1]
    return min(sum(wait for wait, _ in waits) / sum(seconds for _, seconds in waits), 1.0) if waits else None


def _regime(run: ThroughputRun, steps: list[Step], position: int) -> Regime:
    seconds = [step.seconds for step in steps if step.seconds]
    return Regime(
        run=run.run, position=position, first_step=steps[0].step, last_step=steps[-1].last_step,
        points=sum(step.n for step in steps), rate=median(step.rate or 0.0 for step in steps),
        seconds=median(seconds) if seconds else None, ratio=1.0, ref=steps[0].ref,
    )  # fmt: skip


def _of_job(run: ThroughputRun, rate: float) -> float | None:
    """The rate of the whole job. What every process prints of itself is multiplied by their number."""
    if run.scope == "job":
        return rate
    if run.scope == "process" and run.total:
        return run.total
    return rate * run.gpus if run.gpus else None


def _beside(events: list[tuple[int, str]], before: int, line: int) -> str | None:
    """What was written between the line of a step and the one before it."""
    at = bisect_right(events, (before, "~"))
    return events[at][1] if at < len(events) and events[at][0] <= line else None


def _slow(
    steps: list[Step], costs: list[float], middles: list[float], events: list[tuple[int, str]], times: float
) -> Iterator[tuple[Step, float, str | None]]:
    """(step, how many times longer than the median, event) of slow steps. An event counts one line earlier too."""
    for index, (step, cost, middle) in enumerate(zip(steps, costs, middles, strict=True)):
        if cost * step.slowest > times * middle:
            before = steps[index - 2].line if index > 1 else 0
            yield step, cost * step.slowest / middle, _beside(events, before, step.line)


def _stalls(
    run: ThroughputRun, steps: list[Step], costs: list[float], middles: list[float], events: list[tuple[int, str]]
) -> Iterator[Stall]:
    found = sorted(_slow(steps, costs, middles, events, STALL), key=lambda item: -item[1])[:_MOST]
    stride = _stride(steps) if run.tool in _MEANS else 1
    for step, times, event in found:
        yield Stall(run.run, step.slowest_step, _cost(step) * step.slowest, times, stride, event, step.ref)


def _stride(steps: list[Step]) -> int:
    """Steps from one line to the next, on average; 1 where lines tell no step."""
    lines = sum(step.n for step in steps)
    first, last = steps[0].step, steps[-1].last_step
    if first is None or last is None or lines < 2:
        return 1
    return max(round((last - first) / (lines - 1)), 1)


def _dips(
    run: ThroughputRun,
    steps: list[Step],
    costs: list[float],
    middles: list[float],
    events: list[tuple[int, str]],
    total: float,
) -> Iterator[DipPeriod]:
    slow = [item for item in _slow(steps, costs, middles, events, DIP) if item[0].slowest_step is not None]
    numbers = [step.step for step in steps if step.step is not None]
    if len(slow) < 4 or len(numbers) < 2:
        return
    jumps = Counter(b - a for a, b in itertools.pairwise(numbers) if b > a)
    stride = jumps.most_common(1)[0][0] if jumps else 1
    found = period([step.slowest_step or 0 for step, _, _ in slow], numbers[-1] - numbers[0] + stride, stride)
    if found is None:
        return
    events_seen = Counter(event for _, _, event in slow if event is not None).most_common(1)
    event = events_seen[0][0] if events_seen and events_seen[0][1] >= 0.6 * len(slow) else None
    cost = sum(_cost(step) * step.slowest * (1 - 1 / times) for step, times, _ in slow)
    worst = max(slow, key=lambda item: item[1])
    yield DipPeriod(
        run.run, found[0], found[1], found[1] / len(slow), median(times for _, times, _ in slow),
        cost / total if total else 0.0, event, worst[0].ref,
    )  # fmt: skip
