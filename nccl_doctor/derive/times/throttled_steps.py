"""Whether a GPU was held back during exactly the slow steps of a run.

Samples and step lines are compared only on clocks that are known to show the same.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.timestamps import moment
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.derive.times.leads import hosts_of_job
from nccl_doctor.derive.times.step_clocks import SLOW, paces
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
                if (share := share_of_slow(counted, held)) is not None:
                    yield ThrottledSteps(run, host, gpu, reason, *share[:4], ref, share.step_ref)


Span = tuple[float, float]


def _spans(facts: Facts) -> dict[tuple[str | None, int | None, str, str, int], list[Span]]:
    """The spans of each GPU of the job and reason."""
    hosts = hosts_of_job(facts)
    found: dict[tuple[str | None, int | None, str, str, int], list[Span]] = defaultdict(list)
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
    runs: dict[int, dict[str, list[Timed]]] = {}
    for run, pace in paces(facts, year).items():
        if pace.is_relative:
            continue
        scales = runs.setdefault(run, {"local": [], "absolute": []})
        for step, seconds, jump, when in pace.steps:
            if when is None:
                continue
            length, slow = seconds * jump, seconds > SLOW * pace.usual
            if when.clock == "local":
                scales["local"].append(Timed(when.seconds - length, when.seconds, slow, seconds, step.data, step.ref))
            if when.zone is not None:
                end = when.seconds - when.zone
                scales["absolute"].append(Timed(end - length, end, slow, seconds, step.data, step.ref))
    return runs


class Share(NamedTuple):
    """In how many of the slow steps of a run, and of the others, something was the case."""

    slow: int
    slow_held: int
    others: int
    others_held: int
    step_ref: int  # of the slowest step


def share_of_slow(steps: list[Timed], spans: list[Span]) -> Share | None:
    """How spans lie to the steps of a run; None where they are not those of the slow ones, or most steps are slow."""
    slow = [step for step in steps if step.slow]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    held = sum(overlaps(step, starts, ends) for step in slow)
    if len(slow) < _LEAST or held < _COVERED * len(slow):
        return None
    others = [step for step in steps if not step.slow]
    otherwise = sum(overlaps(step, starts, ends) for step in others)
    if otherwise > _OTHERWISE * len(others):
        return None
    return Share(len(slow), held, len(others), otherwise, max(slow, key=lambda step: step.seconds).ref)


def overlaps(step: Timed, starts: list[float], ends: list[float]) -> bool:
    """Whether one of the spans, which lie one after the other, touches a step."""
    return bisect_right(starts, step.end) > bisect_left(ends, step.start)
