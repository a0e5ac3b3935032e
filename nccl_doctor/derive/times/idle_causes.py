"""What a job did while GPUs did nothing: steps that waited for data, checkpoints and evaluations, by the clocks of both files.

A checkpoint is a line in the log; the GPU falls idle behind it, and the lag says how much. Compared are only clocks that are
known to show the same, and GPUs that are idle at these times and hardly at others.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.common.timestamps import moment
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.derive.times.leads import hosts_of_job
from nccl_doctor.derive.times.throttled_steps import Timed, overlaps, timed_steps
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    GpuUse,
    IbError,
    IdleCause,
    IdleSpan,
    Process,
    ProcessEnd,
    Progress,
    PythonError,
    SocketError,
    Steady,
    Step,
    ThroughputRun,
    TrainingEvent,
    Watchdog,
)  # fmt: skip

_LEAST = 2  # steps that waited, or checkpoints
_WAITS = 0.3  # share of a step that waited for data
_COVERED = 0.8  # share of them in which the GPU must be idle
_OTHERWISE = 0.2  # largest share of the other steps, or of the idle times without a checkpoint by time
_BEFORE = 2.0  # seconds that a sample may come before the line of a checkpoint
_WITHIN = 30.0  # seconds after it in which the GPU falls idle
_SOON = 5.0  # seconds after the idle time in which its end is printed
_Span = tuple[float, float]


class _Gpu(NamedTuple):
    host: str | None
    gpu: int | None
    ref: int
    scale: str  # of its clock
    first: float  # of the samples of the job
    last: float
    spans: list[_Span]  # without work


@derivation(
    fills=[IdleCause],
    needs=[IdleSpan],
    reads=[
        Communicator, GpuUse, IbError, Process, ProcessEnd, Progress, PythonError, SocketError, Steady, Step, ThroughputRun,
        TrainingEvent, Watchdog,
    ],
)  # fmt: skip
def idle_causes(facts: Facts) -> Iterator[IdleCause]:
    """GPUs that are idle while steps wait for data, or behind checkpoints and evaluations."""
    year = job_year(facts)
    gpus = _gpus(facts, year)
    if not gpus:
        return
    runs, events = timed_steps(facts, year), _events(facts, year)
    for gpu in gpus:
        for run, scales in runs.items():
            yield from _of_steps(
                gpu, run, [step for step in scales[gpu.scale] if step.start >= gpu.first and step.end <= gpu.last]
            )
        for (cause, scale), times in events.items():
            if scale == gpu.scale:
                yield from _of_events(gpu, cause, [(at, ref) for at, ref in times if gpu.first <= at <= gpu.last])


def _gpus(facts: Facts, year: int | None) -> list[_Gpu]:
    """The GPUs of the job that did nothing for a time, between the first and the last use of any of them."""
    hosts = hosts_of_job(facts)
    spans: dict[tuple[str | None, int | None, str], list[_Span]] = defaultdict(list)
    for host, number, file, start, end in facts.query(
        "SELECT host, gpu, file, start, end FROM idle_span ORDER BY start"
    ):
        spans[host, number, file].append((start, end))
    uses = [use for use in facts.rows(GpuUse) if use.first is not None and use.seconds is not None]
    texts = {place.id: place.text for place in facts.evidence_rows(use.ref for use in uses)}
    found = []
    for use in uses:
        first, last = use.first or 0.0, (use.first or 0.0) + (use.seconds or 0.0)
        inside = [(a, b) for a, b in spans[use.host, use.gpu, use.file] if a >= first and b <= last and b > a]
        if inside and (use.host is None or not hosts or use.host in hosts):
            scale = "local" if moment(texts[use.ref], year) is not None else "absolute"
            found.append(_Gpu(use.host, use.gpu, use.ref, scale, first, last, inside))
    return found


def _events(facts: Facts, year: int | None) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """(kind, scale of the clock) -> times of the lines, and their evidence."""
    rows = facts.query("SELECT kind, ref FROM training_event ORDER BY line")
    texts = {place.id: place.text for place in facts.evidence_rows(ref for _, ref in rows)}
    found: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for kind, ref in rows:
        when = moment(texts[ref], year)
        if when is not None and when.clock == "local":
            found[kind, "local"].append((when.seconds, ref))
        if when is not None and when.zone is not None:
            found[kind, "absolute"].append((when.seconds - when.zone, ref))
    return found


def _of_steps(gpu: _Gpu, run: int, steps: list[Timed]) -> Iterator[IdleCause]:
    """One row where a GPU is idle in steps that waited for data and hardly in others."""
    waiting = [step for step in steps if step.waited is not None and step.waited >= _WAITS * step.seconds]
    others = [step for step in steps if step.waited is not None and step.waited < _WAITS * step.seconds]
    starts, ends = [start for start, _ in gpu.spans], [end for _, end in gpu.spans]
    idle = [step for step in waiting if overlaps(step, starts, ends)]
    otherwise = sum(overlaps(step, starts, ends) for step in others)
    if len(waiting) < _LEAST or len(idle) < _COVERED * len(waiting) or otherwise > _OTHERWISE * len(others):
        return
    seconds = sum(
        max(min(end, step.end) - max(start, step.start), 0.0) for step in idle for start, end in _near(gpu.spans, step)
    )
    worst = max(idle, key=lambda step: step.waited or 0.0)
    yield IdleCause(
        gpu.host, gpu.gpu, "data", run, len(waiting), len(idle), len(others), otherwise, None, seconds,
        seconds / (gpu.last - gpu.first), gpu.ref, worst.ref,
    )  # fmt: skip


def _separate(gpu: _Gpu, times: list[tuple[float, int]]) -> list[tuple[float, int]]:
    kept: list[tuple[float, int]] = []
    over = -inf
    for at, ref in sorted(times):
        if at > over:
            kept.append((at, ref))
            place = bisect_left(gpu.spans, at - _BEFORE, key=lambda span: span[0])
            is_idle = place < len(gpu.spans) and gpu.spans[place][0] <= at + _WITHIN
            over = max(at, gpu.spans[place][1] if is_idle else at) + _SOON
    return kept


def _near(spans: list[_Span], step: Timed) -> list[_Span]:
    first = bisect_left(spans, step.start, key=lambda span: span[1])
    return spans[first : bisect_left(spans, step.end, key=lambda span: span[0])]


def _of_events(gpu: _Gpu, cause: str, times: list[tuple[float, int]]) -> Iterator[IdleCause]:
    """One row where a GPU falls idle behind most of these lines, and seldom without one.

    Lines that follow in the idle time, or soon, are about the same checkpoint.
    """
    lags, used = [], set()
    times = _separate(gpu, times)
    for at, _ in times:
        place = bisect_left(gpu.spans, at - _BEFORE, key=lambda span: span[0])
        if place < len(gpu.spans) and gpu.spans[place][0] <= at + _WITHIN and place not in used:
            lags.append(gpu.spans[place][0] - at)
            used.add(place)
    if len(times) < _LEAST or len(lags) < _COVERED * len(times):
        return
    seconds = sum(gpu.spans[place][1] - gpu.spans[place][0] for place in used)
    every = sum(end - start for start, end in gpu.spans)
    if every - seconds > _OTHERWISE * (gpu.last - gpu.first):
        return
    yield IdleCause(
        gpu.host, gpu.gpu, cause, None, len(times), len(lags), None, None, median(lags), seconds,
        seconds / (gpu.last - gpu.first), gpu.ref, times[0][1],
    )  # fmt: skip
