"""Jobs as `scontrol show job` prints them, in a file or inside a log (many batch scripts print it at their start and end).

Ends that Slurm itself announces in the log of a job (time limit, preemption, a lost node) become the messages of the patterns
for those lines, so that the same rules judge both. Any other end with a status or signal becomes a row of `process_end`.
"""

import json
import re
import signal
from collections.abc import Iterator

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, ProcessEnd
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_FIELD = re.compile(r"(?:^|(?<= ))([A-Z][A-Za-z/:]{1,40})=(\S{0,400})")
_MAX_JOBS = 10_000  # of one file; `scontrol show job` lists those of some minutes
# State of the job -> pattern of the line that Slurm writes into its log (nccl_doctor/log/patterns/launcher.toml).
_ANNOUNCED = {
    "TIMEOUT": "slurm-time-limit",
    "DEADLINE": "slurm-time-limit",
    "CANCELLED": "slurm-cancelled",
    "PREEMPTED": "slurm-preempted",
    "NODE_FAIL": "slurm-node-failure",
    "OUT_OF_MEMORY": "slurm-oom-kill",
}


class _Job:
    """The fields of one job, and the line that names its state."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.number = 0
        self.line = ""

    def add(self, number: int, line: str, fields: dict[str, str]) -> None:
        self.fields |= fields
        if "JobState" in fields:
            self.number, self.line = number, line.strip()


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job of a file.

    Source: `scontrol show job [-o]`, src/api/job_info.c of Slurm; checked with 22.05.8::

        JobId=4711 JobName=train-llm
           JobState=TIMEOUT Reason=TimeLimit Dependency=(null)
           Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
    """
    jobs: list[_Job] = []
    number = understood = 0
    is_open = False
    for number, _, line in plain_lines(stream):
        fields = dict(_FIELD.findall(line))
        if "JobId" in fields and "JobName" in fields and len(jobs) < _MAX_JOBS:
            jobs.append(_Job())
            is_open = True
        is_open = is_open and bool(fields)
        if is_open:
            jobs[-1].add(number, line, fields)
            understood += 1
    facts.add(row for job in jobs for row in _rows(facts, name, job))
    facts.mark_covered("message", "process_end")
    return Reading(number, understood)


def _rows(facts: Facts, file: str, job: _Job) -> Iterator[Message | ProcessEnd]:
    """How a job ended; nothing for one that waits, runs or is complete."""
    get = job.fields.get
    state = get("JobState", "")
    host, stamp = get("BatchHost"), iso_seconds(get("EndTime", ""))
    text = f"JobId={get('JobId')} JobName={get('JobName')} {job.line}"
    if state in _ANNOUNCED:
        words = {"what": "JOB", "job": get("JobId"), "node": host, "state": state, "reason": get("Reason")}
        ref = facts.evidence(file, job.number, text)
        shown = json.dumps(words, ensure_ascii=False)
        yield Message(
            kind=_ANNOUNCED[state], level=None, host=host, rank=None, pid=None, source=None, text=text,
            fields=shown, n=1, last_line=job.number, stamp=stamp, ref=ref,
        )  # fmt: skip
    elif state == "FAILED" and (match := re.fullmatch(r"(\d{1,3}):(\d{1,2})", get("ExitCode", ""))):
        ref = facts.evidence(file, job.number, f"{text} ExitCode={match[0]}")
        status, number = int(match[1]), int(match[2])
        yield ProcessEnd(
            host=host, rank=None, local_rank=None, pid=None, exitcode=status or -number,
            signal=_signal_name(number), reporter="scontrol", first=None, n=1, stamp=stamp, ref=ref,
        )  # fmt: skip


def _signal_name(number: int) -> str | None:
    """`SIGKILL` for 9; None for 0 and for numbers without a name."""
    return signal.Signals(number).name if number in set(signal.Signals) else None
