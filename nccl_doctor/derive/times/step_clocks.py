"""Steps on the clock of their log: a line is printed when its step ends, so a step covers the time before its line.

Of lines that tell a rate only, the times of the lines tell how many seconds it stands for.
"""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.common.timestamps import Moment, moment
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step

SLOW = 1.3  # times the usual: a slow step
_POINTS = 5  # steps of a regime whose speed counts as usual
_STEADY = "SELECT run, seconds, rate FROM steady WHERE rate > 0"
_REGIMES = "SELECT run, min(seconds), max(rate) FROM regime WHERE rate > 0 AND points >= ? GROUP BY run"


class Paced(NamedTuple):
    """A step, the seconds that it took, and when its line was printed."""

    step: Step
    seconds: float  # of its slowest line
    steps: int  # that the line stands for
    when: Moment | None


class Pace(NamedTuple):
    """The steps of a run in the order of their lines, and the seconds of a usual one."""

    usual: float
    steps: list[Paced]
    is_relative: bool  # no line tells seconds: those here are proportional to them


def paces(facts: Facts, year: int | None) -> dict[int, Pace]:
    """Run -> its pace. Usual are the steps of the fastest of its long stretches."""
    usual = {run: (seconds, rate) for run, seconds, rate in facts.query(_STEADY)}
    usual.update((run, (seconds, rate)) for run, seconds, rate in facts.query(_REGIMES, (_POINTS,)))
    rows: dict[int, list[Step]] = defaultdict(list)
    for step in facts.rows(Step) if usual else ():
        if step.run in usual and (step.seconds or (step.rate and usual[step.run][0] is None)):
            rows[step.run].append(step)
    texts = {place.id: place.text for place in facts.evidence_rows({step.ref for of in rows.values() for step in of})}
    return {
        run: _pace([(step, moment(texts[step.ref], year)) for step in steps], *usual[run])
        for run, steps in rows.items()
    }


def _pace(steps: list[tuple[Step, Moment | None]], seconds: float | None, rate: float) -> Pace:
    jumps = [1, *(_jump(before, step) for (before, _), (step, _) in pairwise(steps))]
    amount: float | None = 1.0
    if seconds is None:  # samples or tokens of a step
        amount = _amount(steps, jumps)
    paced = [
        Paced(step, (step.seconds or (amount or 1.0) / (step.rate or rate)) * step.slowest, jump, when)
        for (step, when), jump in zip(steps, jumps, strict=True)
    ]
    return Pace((amount or 1.0) / rate if seconds is None else seconds, paced, amount is None)


def _jump(before: Step, step: Step) -> int:
    """A line may stand for all steps since the line before it."""
    if step.step is None or before.last_step is None or step.n != 1:
        return 1
    return max(step.step - before.last_step, 1)


def _amount(steps: list[tuple[Step, Moment | None]], jumps: list[int]) -> float | None:
    """What the rate counts of a step: the median of rate times seconds by the clock."""
    found = [
        apart * step.rate / jump
        for ((_, before), (step, when)), jump in zip(pairwise(steps), jumps[1:], strict=True)
        if before is not None and when is not None and step.rate and (apart := before.until(when) or 0.0) > 0
    ]
    return median(found) if found else None
