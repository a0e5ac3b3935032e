"""The event log of HTCondor (`log = job.log` in a submit file): when each job waited, ran, was evicted, held and ended."""

import re

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, ProcessEnd
from nccl_doctor.formats.cluster.slurm_ends import signal_name
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_MOST_JOBS = 100_000
_SHOWN = 600  # characters of a reason
_EVENT = re.compile(
    r"(?P<kind>\d{3}) \((?P<cluster>\d{1,12})\.(?P<proc>\d{1,9})\.\d{1,9}\) "
    r"(?:(?P<date>\d{4}-\d\d-\d\d)|(?P<month>\d\d)/(?P<day>\d\d)) (?P<clock>\d\d:\d\d:\d\d)(?:\.\d{1,6})? (?P<text>.{0,600})"
)
_HOSTS = (re.compile(r"[?&]alias=([\w.-]{1,200})"), re.compile(r"<([\w.-]{1,200}):\d"))
_MEMORY = re.compile(r"\s{1,9}(\d{1,12})  -  MemoryUsage of job \(MB\)")
_ENDED = re.compile(
    r"\s{1,9}\((?:1\) Normal termination \(return value (\d{1,3})\)|0\) Abnormal termination \(signal (\d{1,3})\))"
)
_SUBMITTED, _STARTED, _EVICTED, _ENDS, _REMOVED, _HELD, _RELEASED = "000", "001", "004", "005", "009", "012", "013"
_STATES = {
    _SUBMITTED: "PENDING",
    _STARTED: "RUNNING",
    _EVICTED: "PENDING",
    _ENDS: "ENDED",
    _REMOVED: "CANCELLED",
    _HELD: "HELD",
}
_NO_YEAR = 1972  # a leap year, in which the moments of logs without a year are compared
_YEAR = 366 * 86_400.0


class _Job:
    """What the events of one job said so far."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.submitted: float | None = None
        self.waited: float | None = None
        self.started: float | None = None
        self.ran: float | None = None
        self.memory: float | None = None
        self.host: str | None = None
        self.ends: list[ProcessEnd] = []
        self.ref = 0
        self.is_told = True  # False between the event that it is held and the line that says why


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read how each job of a log fared. A job waits from its submission to its first start, and runs from its last start to its end.

    Source: `src/condor_utils/condor_event.cpp` of HTCondor 8 to 24::

        000 (417.000.000) 2026-11-02 10:00:01 Job submitted from host: <10.0.0.5:9618?addrs=10.0.0.5-9618>
        ...
        005 (417.000.000) 2026-11-02 12:03:13 Job terminated.
            (1) Normal termination (return value 0)
    """
    jobs: dict[str, _Job] = {}
    job: _Job | None = None
    event: re.Match[str] | None = None
    number = used = 0
    note = None
    for number, line in lines(stream):
        if line[:1].isdigit() and (found := _EVENT.match(line)) is not None:
            event, job = found, None
            key = _named(found)
            if key not in jobs and len(jobs) >= _MOST_JOBS:
                note = f"holds more than {_MOST_JOBS:,} jobs; the others were left out"
                continue
            job = jobs.setdefault(key, _Job())
            _take(job, found)
            job.is_told = found["kind"] != _HELD
            if not job.ref or found["kind"] in (_ENDS, _REMOVED, _HELD):
                job.ref = facts.evidence(name, number, line.strip())
        elif job is not None and event is not None and (memory := _MEMORY.match(line)) is not None:
            job.memory = max(job.memory or 0.0, float(memory[1]))
        elif job is not None and not job.is_told and line.strip():
            job.is_told, job.ref = True, facts.evidence(name, number, f"Job was held: {line.strip()}"[:_SHOWN])
        elif (
            job is not None and event is not None and event["kind"] == _ENDS and (end := _ENDED.match(line)) is not None
        ):
            _end(job, _named(event), end, facts.evidence(name, number, line.strip()))
        else:
            used += line.startswith("...")
            continue
        used += 1
    facts.add(
        AccountedJob(
            scheduler="htcondor", job=key, name=None, state=job.state, elapsed_s=job.ran, waited_s=job.waited, nodes=None, cpus=None,
            max_rss=job.memory, cpu_efficiency=None, memory_efficiency=None, tasks=None, mean_cpu_s=None, least_cpu_s=None,
            least_task=None, least_host=None, ref=job.ref,
        )
        for key, job in jobs.items()
    )  # fmt: skip
    facts.add([end for job in jobs.values() for end in job.ends])
    facts.mark_covered("accounted_job", "process_end")
    return Reading(number, used, note)


def _named(event: re.Match[str]) -> str:
    """The job as commands name it: `417.0`."""
    return f"{int(event['cluster'])}.{int(event['proc'])}"


def _take(job: _Job, event: re.Match[str]) -> None:
    kind, moment = event["kind"], _moment(event)
    job.state = _STATES.get(kind, job.state) if kind != _RELEASED else "PENDING"
    if kind == _SUBMITTED:
        job.submitted = moment
    elif kind == _STARTED:
        job.host = next((host[1] for named in _HOSTS if (host := named.search(event["text"])) is not None), None)
        job.started = moment
        if job.waited is None:
            job.waited = _between(job.submitted, moment)
    elif kind == _ENDS:
        job.ran = _between(job.started, moment)


def _end(job: _Job, key: str, end: re.Match[str], ref: int) -> None:
    status, number = int(end[1] or 0), int(end[2] or 0)
    job.state = "FAILED" if status or number else "COMPLETED"
    if job.state == "FAILED":
        job.ends.append(
            ProcessEnd(
                host=job.host, rank=None, local_rank=None, pid=None, exitcode=status or -number, signal=signal_name(number),
                reporter="htcondor", first=None, job=key, n=1, stamp=None, ref=ref,
            )
        )  # fmt: skip


def _moment(event: re.Match[str]) -> float | None:
    if event["date"] is not None:
        return iso_seconds(f"{event['date']}T{event['clock']}")
    return iso_seconds(f"{_NO_YEAR}-{event['month']}-{event['day']}T{event['clock']}")


def _between(first: float | None, last: float | None) -> float | None:
    """Seconds between two moments; without a year the second may be behind a new year."""
    if first is None or last is None:
        return None
    return last - first if last >= first else last - first + _YEAR if first < _YEAR * 4 else None
