"""Kernel lines from long before the job. `settle` leaves them out of the tables that rules ask.

A kernel log covers weeks. An event hours before the job's first line did not cause its end, but the same Xid minutes
before it may well be one. Lines that carry seconds since boot have no wall time and count as lines of the job.
"""

from collections.abc import Iterator

from nccl_doctor.common.timestamps import Moment, moment, year_of
from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    Earlier,
    Env,
    IbError,
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
    "kernel-segfault", "task-blocked", "soft-lockup", "nfs-not-responding", "nfs-answers", "lustre-error", "mlx5-module-event",
    "mlx5-link", "mlx5-health", "peermem-invalid-context", "driver-api-mismatch",
)  # fmt: skip
"""Patterns of lines that the kernel writes."""

_BEFORE = 3600.0  # a line this many seconds before the start of the job does not belong to it
_BEFORE_FIRST = 24 * 3600.0  # the same where only a later moment of the job is known
_ZONES = 14 * 3600.0  # seconds by which a clock without a zone may be ahead of UTC
_STARTS = (
    "SELECT ref FROM communicator", "SELECT ref FROM throughput_run", "SELECT ref FROM step WHERE step < 100",
    "SELECT ref FROM timeline", "SELECT ref FROM env",
)  # fmt: skip
_MOMENTS = (
    "SELECT ref FROM watchdog", "SELECT ref FROM step", "SELECT ref FROM python_error", "SELECT ref FROM process_end",
    "SELECT ref FROM socket_error", "SELECT ref FROM ib_error",
)  # fmt: skip


@derivation(
    fills=[Earlier],
    reads=[
        Xid, Message, Communicator, ThroughputRun, Step, Timeline, Env, Watchdog, PythonError, ProcessEnd, SocketError, IbError,
    ],
    as_printed=True,
)  # fmt: skip
def prejob_kernel_events(facts: Facts) -> Rows:
    """Kernel lines written too long before the job to belong to it."""
    kernel = list(_kernel_lines(facts))
    return _before_the_job(facts, kernel) if kernel else None


def _before_the_job(facts: Facts, kernel: list[tuple[str, str | None, int, str, int]]) -> Iterator[Earlier]:
    year = next((found for *_, text, _ in kernel if (found := year_of(text))), None) or job_year(facts)
    first, limit = _first(facts, _STARTS, year), _BEFORE
    if first is None:
        first, limit = _first(facts, _MOMENTS, year), _BEFORE_FIRST
    if first is None:
        return
    for kind, host, n, text, ref in kernel:
        when = moment(text, year)
        if when is None:
            continue
        known = when.until(first)
        before = first.seconds - when.seconds - _ZONES if known is None else known
        if before > limit:
            yield Earlier(kind, host, text, round((first.seconds - when.seconds) / 3600, 1), n, ref)


def job_year(facts: Facts) -> int | None:
    """The year of the first evidence that tells one."""
    for (text,) in facts.query("SELECT text FROM evidence WHERE text GLOB '*[12][09][0-9][0-9]*' LIMIT 2000"):
        year = year_of(text)
        if year is not None:
            return year
    return None


def _kernel_lines(facts: Facts) -> Iterator[tuple[str, str | None, int, str, int]]:
    """(kind, host, n, line, ref) of all that the kernel wrote."""
    marks = ", ".join("?" * len(KERNEL))
    yield from facts.query("SELECT x.kind, x.host, x.n, e.text, e.id FROM xid x JOIN evidence e ON e.id = x.ref")
    yield from facts.query(
        "SELECT m.kind, m.host, m.n, e.text, e.id FROM message m JOIN evidence e ON e.id = m.ref"
        f" WHERE m.kind IN ({marks})",
        KERNEL,
    )


def _first(facts: Facts, queries: tuple[str, ...], year: int | None) -> Moment | None:
    """The earliest moment of the job among some of its lines."""
    found: list[Moment] = []
    for query in queries:
        texts = facts.query(f"SELECT text FROM evidence WHERE id IN ({query} ORDER BY ref LIMIT 200)")
        found += [when for (text,) in texts if (when := moment(text, year)) is not None]
    return min(found, key=lambda when: when.seconds, default=None)
