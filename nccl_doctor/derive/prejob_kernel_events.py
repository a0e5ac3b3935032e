"""Kernel lines from long before the job, or before its end. `settle` leaves them out of the tables that rules ask.

A kernel log covers weeks. An event hours before the job's first line did not cause its end, but the same Xid minutes
before it may well be one. The same holds for an event of the second day of a job that made steps for three more days. Lines
that carry seconds since boot have no wall time and count as lines of the job.
"""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.timestamps import Moment, moment, year_of
from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    Earlier,
    Env,
    IbError,
    KnownMessage,
    Message,
    ProcessEnd,
    PythonError,
    SocketError,
    Step,
    ThroughputRun,
    Timeline,
    Watchdog,
    Xid,
)  # fmt: skip

KERNEL = (
    "mmu-fault", "gpu-off-bus", "gpu-off-bus-block", "gpu-requires-reset", "gpu-init-failed", "aer-error", "pcie-bus-error",
    "pcie-surprise-down",
    "pcie-bandwidth-limited", "iommu-fault", "oom-killed-process", "oom-kill-constraint", "oom-invoked", "nccl-segfault",
    "kernel-segfault", "task-blocked", "task-uninterruptible", "soft-lockup", "nfs-not-responding", "nfs-answers", "lustre-error",
    "mlx5-module-event",
    "mlx5-link", "mlx5-health", "peermem-invalid-context", "driver-api-mismatch", "amdgpu-reset", "amdgpu-ring-timeout",
    "amdgpu-uncorrectable", "amdgpu-poison", "amdgpu-bad-pages", "amdgpu-page-fault", "amdgpu-xgmi-error", "amdgpu-off-bus",
    "amdgpu-init-failed", "amdgpu-queue-stuck", "memory-error", "memory-failure", "machine-check", "link-down", "link-up",
    "bond-link-down",
    "disk-error", "filesystem-turned-read-only", "nic-slot-power", "nic-transmit-stuck", "mlx5-command", "mlx5-temperature",
    "efa-command", "driver-status", "gsp-silent", "gsp-firmware-failed", "gpu-power-cables", "lustre-restored",
    "cifs-not-responding",
)  # fmt: skip
"""Patterns of lines that the kernel writes."""

_BEFORE = 3600.0  # a line this many seconds before the start of the job does not belong to it
_BEFORE_FIRST = 24 * 3600.0  # the same where only a later moment of the job is known
_PAST = (
    6 * 3600.0
)  # an event this many seconds before the end of the job did not end it, if the job went on or another one did
_GRAVE = (
    "gpu-off-bus",
    "amdgpu-",
    "oom-",
    "pcie-surprise-down",
    "kernel-segfault",
    "nccl-segfault",
    "mlx5-health",
    "link-down",
)
_ZONES = 14 * 3600.0  # seconds by which a clock without a zone may be ahead of UTC
_STARTS = (
    "SELECT ref FROM communicator", "SELECT ref FROM throughput_run", "SELECT ref FROM step WHERE step < 100",
    "SELECT ref FROM timeline", "SELECT ref FROM env",
)  # fmt: skip
_MOMENTS = (
    "SELECT ref FROM watchdog", "SELECT ref FROM step", "SELECT ref FROM python_error", "SELECT ref FROM process_end",
    "SELECT ref FROM socket_error", "SELECT ref FROM ib_error",
)  # fmt: skip


class _Line(NamedTuple):
    """A line of the kernel."""

    kind: str
    code: int | None  # of an Xid
    host: str | None
    n: int
    text: str
    ref: int


@derivation(
    fills=[Earlier],
    reads=[
        Xid, Message, KnownMessage, Communicator, ThroughputRun, Step, Timeline, Env, Watchdog, PythonError, ProcessEnd,
        SocketError, IbError,
    ],
    as_printed=True,
)  # fmt: skip
def prejob_kernel_events(facts: Facts) -> Rows:
    """Kernel lines written too long before the job to belong to it."""
    kernel = list(_kernel_lines(facts))
    return _before_the_job(facts, kernel) if kernel else None


def _before_the_job(facts: Facts, kernel: list[_Line]) -> Iterator[Earlier]:
    year = next((found for line in kernel if (found := year_of(line.text))), None) or job_year(facts)
    dated = [(line, when) for line in kernel if (when := moment(line.text, year)) is not None]
    first, limit = _first(facts, _STARTS, year), _BEFORE
    if first is None:
        first, limit = _first(facts, _MOMENTS, year), _BEFORE_FIRST
    if first is None:
        return
    during = []
    for line, when in dated:
        known = when.until(first)
        before = first.seconds - when.seconds - _ZONES if known is None else known
        if before > limit:
            yield _earlier(line, (first.seconds - when.seconds), "start")
        else:
            during.append((line, when))
    yield from _before_the_end(facts, during, year)


def _before_the_end(facts: Facts, during: list[tuple[_Line, Moment]], year: int | None) -> Iterator[Earlier]:
    """Events of a long job after which it made steps for hours, or that another grave event followed shortly before its end."""
    if not during:
        return
    steps = _last(facts, ("SELECT ref FROM step",), year)
    end = _last(facts, _MOMENTS, year)
    if end is None:
        return
    late = [_grave(line) and 0 <= (when.until(end) or _PAST) < _PAST for line, when in during]
    for line, when in during:
        before = when.until(end)
        if before is None or before <= _PAST:
            continue
        went_on = steps is not None and (when.until(steps) or 0.0) > _PAST
        if went_on or any(late):
            yield _earlier(line, before, "end")


def _grave(line: _Line) -> bool:
    return line.kind.startswith(_GRAVE) or (line.kind == "xid" and line.code != 45)


def _earlier(line: _Line, seconds: float, relation: str) -> Earlier:
    return Earlier(line.kind, line.host, line.text, round(seconds / 3600, 1), relation, line.n, line.ref)


def job_year(facts: Facts) -> int | None:
    """The year of the first evidence that tells one, of the first hundred thousand."""
    first = "SELECT text FROM evidence LIMIT 100000"
    for (text,) in facts.query(f"SELECT text FROM ({first}) WHERE text GLOB '*[12][09][0-9][0-9]*' LIMIT 2000"):
        year = year_of(text)
        if year is not None:
            return year
    return None


def _kernel_lines(facts: Facts) -> Iterator[_Line]:
    """All that the kernel wrote."""
    marks = ", ".join("?" * len(KERNEL))
    queries: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("SELECT x.kind, x.code, x.host, x.n, e.text, e.id FROM xid x JOIN evidence e ON e.id = x.ref", ()),
        ("SELECT m.kind, NULL, m.host, m.n, e.text, e.id FROM message m JOIN evidence e ON e.id = m.ref"
         f" WHERE m.kind IN ({marks})", KERNEL),
        ("SELECT k.message, NULL, k.host, k.n, e.text, e.id FROM known_message k JOIN evidence e ON e.id = k.ref"
         " WHERE k.program = 'linux' AND k.ref NOT IN (SELECT ref FROM message)", ()),
    )  # fmt: skip
    for query, values in queries:
        yield from map(_Line._make, facts.query(query, values))


def _first(facts: Facts, queries: tuple[str, ...], year: int | None) -> Moment | None:
    """The earliest moment of the job among some of its lines."""
    return min(_moments(facts, queries, year, "ASC"), key=lambda when: when.seconds, default=None)


def _last(facts: Facts, queries: tuple[str, ...], year: int | None) -> Moment | None:
    """The latest one."""
    return max(_moments(facts, queries, year, "DESC"), key=lambda when: when.seconds, default=None)


def job_moments(facts: Facts, year: int | None) -> list[Moment]:
    """Moments of the job's own lines, of its start and of its errors."""
    return _moments(facts, (*_STARTS, *_MOMENTS), year, "ASC")


def _moments(facts: Facts, queries: tuple[str, ...], year: int | None, direction: str) -> list[Moment]:
    found: list[Moment] = []
    for query in queries:
        texts = facts.query(f"SELECT text FROM evidence WHERE id IN ({query} ORDER BY ref {direction} LIMIT 200)")
        found += [when for (text,) in texts if (when := moment(text, year)) is not None]
    return found
