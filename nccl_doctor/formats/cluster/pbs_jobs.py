"""Jobs of PBS as rows: their numbers, and the end of each.

`Exit_status` is the status of the job's shell; 256 and a signal, or 128 and a signal, where a signal ended it; negative where PBS did
(`JOB_EXEC_…` in `src/include/job.h` of OpenPBS).
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.common.timestamps import asctime_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Message, ProcessEnd
from nccl_doctor.formats.cluster.slurm_ends import signal_name
from nccl_doctor.formats.cluster.slurm_jobs import parse_clock

READ = frozenset(
    (
        "Job_Name", "job_state", "Exit_status", "exit_status", "exec_host", "comment", "mtime", "obittime", "comp_time",
        *(f"resources_used.{name}" for name in ("cput", "mem", "vmem", "walltime", "ncpus")),
        *(f"Resource_List.{name}" for name in ("cput", "mem", "vmem", "walltime", "ncpus")),
    )
)  # fmt: skip
_KILLED = {-24: "ncpus", -25: "ncpus", -26: "vmem", -27: "mem", -28: "cput", -29: "walltime"}
_STATES = dict.fromkeys("RBE", "RUNNING") | dict.fromkeys("QWHT", "PENDING") | dict.fromkeys("SU", "SUSPENDED")
_ENDED = ("F", "C", "X")  # finished, in the words of PBS Pro and TORQUE; a subjob of an array that expired
_SIZE = re.compile(r"(\d{1,15})(b|kb|mb|gb|tb)?$", re.IGNORECASE)
_MIB_OF = {"b": 2.0**-20, "kb": 2.0**-10, "mb": 1.0, "gb": 1024.0, "tb": 1024.0**2}
_STATUS = re.compile(r"-?\d{1,6}")
_HOST = re.compile(r"(?:^|\+)\(?([\w.-]{1,200})/")
_AT_LIMIT = 0.97  # of the time: PBS looks at a job every few minutes, and its clock begins before that of the limit


class PbsJob(NamedTuple):
    """One job as `qstat -f` names its attributes, each with the line that says it."""

    identity: str
    line: int
    said: dict[str, tuple[str, int]]

    def get(self, key: str) -> str:
        """The value of an attribute; empty without."""
        return self.said[key][0] if key in self.said else ""


def rows(facts: Facts, file: str, job: PbsJob) -> Iterator[Any]:
    """The row of a job, and how it ended."""
    status = _integer(job.get("Exit_status") or job.get("exit_status"))
    letter = job.get("job_state")[:1].upper()
    state = _STATES.get(letter) or ("ENDED" if status is None else "FAILED" if status else "COMPLETED")
    limit = _limit(job, status) if letter in _ENDED and status else None
    if limit is not None and limit[0] in ("walltime", "cput"):
        state = "TIMEOUT"
    hosts = list(dict.fromkeys(_HOST.findall(job.get("exec_host"))))
    wall, used = parse_clock(job.get("resources_used.walltime")), parse_clock(job.get("resources_used.cput"))
    cpus = _integer(job.get("resources_used.ncpus") or job.get("Resource_List.ncpus"))
    ref = facts.evidence(file, job.line, f"Job Id: {job.identity}")
    yield AccountedJob(
        scheduler="pbs", job=job.identity, name=job.get("Job_Name") or None, state=state, elapsed_s=wall, waited_s=None,
            nodes=len(hosts) or None,
        cpus=cpus, max_rss=_mib(job.get("resources_used.mem")),
        cpu_efficiency=used / (wall * cpus) if used is not None and wall and cpus else None, memory_efficiency=None, tasks=None,
        mean_cpu_s=None, least_cpu_s=None, least_task=None, least_host=None, ref=ref,
    )  # fmt: skip
    if letter not in _ENDED or not status:
        return
    _, line = job.said.get("Exit_status") or job.said["exit_status"]
    host = hosts[0] if len(hosts) == 1 else None
    stamp = next(filter(None, (asctime_seconds(job.get(key)) for key in ("obittime", "comp_time", "mtime"))), None)
    text = f"Job Id: {job.identity} Exit_status = {status}"
    if limit is not None or status < 0:
        if limit is not None:
            kind, words, more = "pbs-killed", {"resource": limit[0], "detail": limit[1]}, limit[1]
        else:
            kind, words = "pbs-not-run", {"what": f"PBS could not run it (Exit_status {status})"}
            more = f"comment = {job.get('comment')}" if job.get("comment") else ""
        text = f"{text} {more}".rstrip()
        yield Message(
            kind=kind, level=None, host=host, rank=None, pid=None, source=None, text=text,
            fields=json.dumps(words | {"accounted": job.identity}), n=1, last_line=line, stamp=stamp,
            ref=facts.evidence(file, line, text),
        )  # fmt: skip
        return
    killed = _signal(status)
    yield ProcessEnd(
        host=host, rank=None, local_rank=None, pid=None, exitcode=-killed if killed else status,
        signal=signal_name(killed), reporter="PBS", first=None, job=job.identity, n=1, stamp=stamp,
        ref=facts.evidence(file, line, text),
    )  # fmt: skip


def _signal(status: int) -> int:
    """The signal in an exit status; 0 without."""
    return status - 256 if 256 < status < 384 else status - 128 if 128 < status < 193 else 0


def _limit(job: PbsJob, status: int) -> tuple[str, str] | None:
    """The limit for which PBS ended a job, and the numbers: it says so, or a signal ended a job that was at its limit."""
    if status not in _KILLED and not _signal(status):
        return None
    for name in ("walltime", "cput"):
        used, most = (parse_clock(job.get(f"{kind}.{name}")) for kind in ("resources_used", "Resource_List"))
        if _KILLED.get(status) == name or (_signal(status) and used and most and used >= _AT_LIMIT * most):
            return name, _numbers(job, name)
    for name in ("mem", "vmem"):
        size, room = (_mib(job.get(f"{kind}.{name}")) for kind in ("resources_used", "Resource_List"))
        if _KILLED.get(status) == name or (_signal(status) and size and room and size >= room):
            return name, _numbers(job, name)
    return ("ncpus", _numbers(job, "ncpus")) if _KILLED.get(status) == "ncpus" else None


def _numbers(job: PbsJob, name: str) -> str:
    used, most = job.get(f"resources_used.{name}"), job.get(f"Resource_List.{name}")
    return f"{name} {used} of {most}" if used and most else ""


def _integer(text: str) -> int | None:
    return int(text) if _STATUS.fullmatch(text) else None


def _mib(text: str) -> float | None:
    match = _SIZE.match(text)
    return None if match is None else float(match[1]) * _MIB_OF[(match[2] or "b").lower()]
