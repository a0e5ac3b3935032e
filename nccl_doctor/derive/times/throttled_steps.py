"""Whether a GPU was held back during exactly the slow steps of a run.

A step line is printed when the step ends, so a step covers the time before its line. Samples and step lines are compared
only on clocks that are known to show the same.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.timestamps import moment
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.derive.times.leads import hosts_of_job
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    GpuThrottle,
    GpuUse,
    IbError,
    Process,
    ProcessEnd,
    Progress,
    PythonError,
    SocketError,
    Steady,
    Step,
    ThrottledSteps,
    ThrottleSpan,
    ThroughputRun,
    Watchdog,
)  # fmt: skip

SLOW = 1.3  # times the median: a slow step
_LEAST = 2  # slow steps
_COVERED = 0.8  # share of the slow steps during which the reason must be active
_OTHERWISE = 0.2  # largest share of the other steps
_ALWAYS = 0.5  # of the samples: a reason that is active for longer does not tell steps apart


class Timed(NamedTuple):
    """A step on a clock."""

    start: float
    end: float
    slow: bool
    seconds: float
    waited: float | None  # seconds that it waited for data
    ref: int


@derivation(
    fills=[ThrottledSteps],
    needs=[ThrottleSpan],
    reads=[
        Communicator, GpuThrottle, GpuUse, IbError, Process, ProcessEnd, Progress, PythonError, SocketError, Steady, Step,
        ThroughputRun, Watchdog,
    ],
)  # fmt: skip
def throttled_steps(facts: Facts) -> Iterator[ThrottledSteps]:
    """GPUs whose clocks were held back in the slow steps of a run."""
    spans = _spans(facts)
    if not spans:
        return
    sampled = {
        (host, gpu, file): (first, first + seconds)
        for host, gpu, file, first, seconds in facts.query(
            "SELECT host, gpu, file, first, seconds FROM gpu_use WHERE first IS NOT NULL AND seconds IS NOT NULL"
        )
    }
    year = job_year(facts)
    local = {ref for (ref, text) in _texts(facts, {ref for _, _, _, _, ref in spans}) if moment(text, year) is not None}
    for run, steps in timed_steps(facts, year).items():
        for (host, gpu, file, reason, ref), held in spans.items():
            scale = "local" if ref in local else "absolute"
            if (host, gpu, file) in sampled and steps[scale]:
                first, last = sampled[host, gpu, file]
                counted = [step for step in steps[scale] if step.start >= first and step.end <= last]
                yield from _compared(run, (host, gpu, reason, ref), counted, held)


_Span = tuple[float, float]


def _spans(facts: Facts) -> dict[tuple[str | None, int | None, str, str, int], list[_Span]]:
    """The spans of each GPU of the job and reason."""
    hosts = hosts_of_job(facts)
    found: dict[tuple[str | None, int | None, str, str, int], list[_Span]] = defaultdict(list)
    rows = facts.query(
        "SELECT s.host, s.gpu, s.file, s.reason, s.ref, s.start, s.end FROM throttle_span s JOIN gpu_throttle t"
        " ON t.ref = s.ref AND t.reason = s.reason AND t.gpu IS s.gpu AND t.host IS s.host"
        f" WHERE t.share <= {_ALWAYS} ORDER BY s.start"
    )
    for *key, start, end in rows:
        if key[0] is None or not hosts or key[0] in hosts:
            found[tuple(key)].append((start, end))
    return found


def _texts(facts: Facts, refs: set[int]) -> Iterator[tuple[int, str]]:
    yield from ((place.id, place.text) for place in facts.evidence_rows(refs))


def timed_steps(facts: Facts, year: int | None) -> dict[int, dict[str, list[Timed]]]:
    """Run -> scale of the clock -> its timed steps."""
    medians = dict(facts.query("SELECT run, seconds FROM steady WHERE seconds IS NOT NULL"))
    rows = [step for step in facts.rows(Step) if step.seconds and step.run in medians]
    texts = dict(_texts(facts, {step.ref for step in rows}))
    runs: dict[int, dict[str, list[Timed]]] = {}
    before: dict[int, int | None] = {}
    for step in rows:
        when = moment(texts[step.ref], year)
        number, before[step.run] = before.get(step.run), step.last_step
        if when is None:
            continue
        seconds = (step.seconds or 0.0) * step.slowest
        # A line may stand for all steps since the line before it.
        jump = step.step - number if step.step is not None and number is not None and step.n == 1 else 1
        length = seconds * max(jump, 1)
        slow = seconds > SLOW * medians[step.run]
        scales = runs.setdefault(step.run, {"local": [], "absolute": []})
        if when.clock == "local":
            scales["local"].append(Timed(when.seconds - length, when.seconds, slow, seconds, step.data, step.ref))
        if when.zone is not None:
            end = when.seconds - when.zone
            scales["absolute"].append(Timed(end - length, end, slow, seconds, step.data, step.ref))
    return runs


def _compared(
    run: int, gpu: tuple[str | None, int | None, str, int], steps: list[Timed], spans: list[_Span]
) -> Iterator[ThrottledSteps]:
    """One row where a GPU was held back in the slow steps and hardly in others."""
    slow = [step for step in steps if step.slow]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    held = sum(overlaps(step, starts, ends) for step in slow)
    if len(slow) < _LEAST or held < _COVERED * len(slow):
        return
    others = [step for step in steps if not step.slow]
    otherwise = sum(overlaps(step, starts, ends) for step in others)
    if otherwise <= _OTHERWISE * len(others):
        host, number, reason, ref = gpu
        worst = max(slow, key=lambda step: step.seconds)
        yield ThrottledSteps(run, host, number, reason, len(slow), held, len(others), otherwise, ref, worst.ref)


def overlaps(step: Timed, starts: list[float], ends: list[float]) -> bool:
    """Whether one of the spans, which lie one after the other, touches a step."""
    return bisect_right(starts, step.end) > bisect_left(ends, step.start)
