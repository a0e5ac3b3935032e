"""Whether errors of hardware that come again and again do so in just the slow steps of a run."""

from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.common.timestamps import moment
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.derive.times.leads import EVENTS, FOLLOWS, hosts_of_job
from nccl_doctor.derive.times.throttled_steps import Span, share_of_slow, timed_steps
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    EventSteps,
    IbError,
    IbEvent,
    KnownMessage,
    Message,
    Process,
    ProcessEnd,
    Progress,
    PythonError,
    Regime,
    SocketError,
    Steady,
    Step,
    ThroughputRun,
    Watchdog,
    Xid,
)  # fmt: skip

_LEAST = 2  # events
_RESOLUTION = 1.0  # seconds: kernel logs name whole ones


@derivation(
    fills=[EventSteps],
    needs=[Xid, Message, IbEvent, KnownMessage, SocketError],
    reads=[
        Communicator, IbError, Process, ProcessEnd, Progress, PythonError, Regime, Steady, Step, ThroughputRun, Watchdog,
    ],
)  # fmt: skip
def event_steps(facts: Facts) -> Iterator[EventSteps]:
    """One row for each kind of event of a host that falls on the slow steps of a run and hardly on others."""
    kinds = [(kind, query) for kind, query in EVENTS if "slow-step" in FOLLOWS[kind]]
    found = {(ref, kind, host) for kind, query in kinds for host, ref in facts.query(query)}
    if len(found) < _LEAST or not facts.query("SELECT EXISTS (SELECT 1 FROM step)")[0][0]:
        return
    year, hosts = job_year(facts), hosts_of_job(facts)
    texts = {place.id: place.text for place in facts.evidence_rows({ref for ref, _, _ in found})}
    spans: dict[tuple[str, str | None, str], dict[Span, int]] = defaultdict(dict)  # kind, host, scale -> span -> ref
    for ref, kind, host in sorted(found, key=lambda event: event[0]):
        when = moment(texts[ref], year)
        if when is None or (host is not None and hosts and host not in hosts):
            continue
        for scale, at in (("local", when.seconds), ("absolute", when.seconds - (when.zone or 0))):
            if when.clock == "local" if scale == "local" else when.zone is not None:
                spans[kind, host, scale].setdefault((at, at + _RESOLUTION), ref)
    runs = timed_steps(facts, year)
    for (kind, host, scale), of_kind in spans.items():
        for run, steps in runs.items():
            share = share_of_slow(steps[scale], sorted(of_kind)) if len(of_kind) >= _LEAST else None
            if share is not None:
                refs = [of_kind[span] for span in sorted(of_kind)]
                yield EventSteps(run, kind, host, *share[:4], refs[0], share.step_ref)
