"""Jobs as `scontrol show job` prints them, in a file or inside a log (many batch scripts print it at their start and end)."""

import re
from functools import lru_cache

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.cluster import slurm_jobs
from nccl_doctor.formats.cluster.slurm_ends import End, end_rows
from nccl_doctor.formats.cluster.slurm_jobs import Accounted
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_JOB_FIELD = re.compile(r"(?<!\S)[A-Z][A-Za-z/:]{1,40}=")
_END_FIELD = re.compile(
    r"(?<!\S)(JobId|JobName|JobState|Reason|ExitCode|NodeList|BatchHost|EndTime|RunTime|NumNodes|NumCPUs)=(\S{0,400})"
)
_MAX_JOBS = 10_000  # of one file; `scontrol show job` lists those of some minutes


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
    note = None
    is_open = False
    for number, _, line in plain_lines(stream):
        fields = _parse_line(line)
        if fields is None:
            is_open = False
        elif "JobId" in fields and "JobName" in fields:
            is_open = len(jobs) < _MAX_JOBS
            if is_open:
                jobs.append(_Job())
            else:
                note = f"holds more than {_MAX_JOBS:,} jobs; the others were left out"
        if is_open and fields is not None:
            jobs[-1].add(number, line, fields)
            understood += 1
    facts.add(row for job in jobs for row in (_accounted(facts, name, job), *end_rows(facts, name, _end(job))))
    facts.mark_covered("accounted_job", "message", "process_end")
    return Reading(number, understood, note)


@lru_cache(1 << 12)  # most jobs of a cluster say the same
def _parse_line(line: str) -> dict[str, str] | None:
    """The fields of a line that say how a job ended; None for a line without any field."""
    return None if _JOB_FIELD.search(line) is None else dict(_END_FIELD.findall(line))


def _accounted(facts: Facts, file: str, job: _Job) -> AccountedJob:
    """The job with its numbers; `NumNodes=2-2` is a range while the job waits."""
    get = job.fields.get
    nodes, cpus = get("NumNodes", ""), get("NumCPUs", "")
    return slurm_jobs.job_row(
        facts, file,
        Accounted(
            job=get("JobId", ""), line=job.number, text=_text(job), reporter="scontrol", state=get("JobState", ""), name=get("JobName"),
            elapsed=slurm_jobs.parse_clock(get("RunTime", "")), nodes=int(nodes) if re.fullmatch(r"\d{1,6}", nodes) else None,
            cpus=int(cpus) if re.fullmatch(r"\d{1,9}", cpus) else None,
        ),
    )  # fmt: skip


def _text(job: _Job) -> str:
    """`-o` prints all of a job in one line; evidence is what the other form has in the line of the state."""
    state = job.line[max(job.line.find("JobState="), 0) :].partition(" Requeue=")[0]
    return f"JobId={job.fields.get('JobId')} JobName={job.fields.get('JobName')} {state}"


def _end(job: _Job) -> End:
    """The end of a job. Of several nodes the one that was lost is not named: it need not be that of the batch script."""
    get = job.fields.get
    nodes, host = get("NodeList", ""), get("BatchHost")
    if get("JobState") == "NODE_FAIL" and nodes != host:
        host = None
    return End(
        job=get("JobId"), state=get("JobState", ""), exit_code=get("ExitCode", ""), host=host, reason=get("Reason"),
        stamp=iso_seconds(get("EndTime", "")), line=job.number, reporter="scontrol",
        text=_text(job),
    )  # fmt: skip
