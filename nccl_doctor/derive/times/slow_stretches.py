"""Stretches of slow steps of a run, which begin at once behind a step that took as long as usual."""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.derive.speed.throughput import STALL
from nccl_doctor.derive.times.step_clocks import SLOW, Pace, Paced, paces
from nccl_doctor.facts.store import Facts

_MOST = 200  # stretches of a run, those that cost most
_RUNS = "SELECT min(run), file, host FROM throughput_run WHERE run IN (SELECT run FROM step) GROUP BY file, host, tool"


class Stretch(NamedTuple):
    """Slow steps without another between them."""

    file: str
    host: str | None
    step: int | None  # the first
    seconds: float | None  # of the first
    usual: float  # seconds of a step
    times: float  # as long as usual, their median
    steps: int
    before: int  # line of the step in front of the first
    line: int  # of the first
    ref: int

    @property
    def shows(self) -> str:
        """As a sentence names it."""
        which = "a step" if self.step is None else f"step {self.step}"
        if self.steps > 1:
            return f"the end of {which}, the first of {self.steps} that took {self.times:.1f} times as long as usual"
        took = f"{self.times:.1f} times as long as usual" if self.seconds is None else f"{self.seconds:,.0f} s"
        return f"the end of {which} that took {took}"


def slow_stretches(facts: Facts, year: int | None) -> Iterator[Stretch]:
    """The stretches of all runs; single steps only where they took several times as long."""
    runs = {run: (file, host) for run, file, host in facts.query(_RUNS)}
    for run, pace in paces(facts, year).items() if runs else ():
        if run in runs:
            found = list(_of_run(*runs[run], pace))
            yield from sorted(found, key=lambda one: -one.steps * (one.times - 1))[:_MOST]


def _of_run(file: str, host: str | None, pace: Pace) -> Iterator[Stretch]:
    slow: list[Paced] = []
    before: Paced | None = None
    for paced in [*pace.steps, None]:
        if paced is not None and paced.seconds > SLOW * pace.usual:
            slow.append(paced)
            continue
        if slow and before is not None:
            first, times = slow[0], median(one.seconds for one in slow) / pace.usual
            count = sum(one.step.n for one in slow) if first.step.slowest == 1 else 1
            if count > 1 or times >= STALL:
                step = first.step
                yield Stretch(
                    file, host, step.slowest_step if step.slowest_step is not None else step.step,
                    None if pace.is_relative else first.seconds, pace.usual, times, count, before.step.line, step.line, step.ref,
                )  # fmt: skip
        slow, before = [], paced
