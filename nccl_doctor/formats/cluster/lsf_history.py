"""What LSF's `bhist` prints: how long jobs waited and ran, as a table of jobs or, with `-l`, behind the events of each job."""

import re
from collections.abc import Callable

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_MOST_JOBS = 100_000
_SUMMARY = re.compile(r"Summary of time in seconds spent in various states")
_JOB = re.compile(r"Job <(?P<job>\d{1,12}(?:\[\d{1,9}\])?)>(?:, Job Name <(?P<name>[^>]{0,200})>)?")
_ROW = re.compile(
    r"(?:(?P<job>\d{1,12}(?:\[\d{1,9}\])?)\s+(?P<user>\S{1,60})\s+(?P<name>\S{1,200})|)\s+(?P<pend>\d{1,12})\s+\d{1,12}\s+(?P<run>\d{1,12})"
    r"\s+\d{1,12}\s+\d{1,12}\s+\d{1,12}\s+\d{1,13}\s*$"
)
_ENDS = (
    ("TERM_MEMLIMIT", "OUT_OF_MEMORY"), ("TERM_RUNLIMIT", "TIMEOUT"), ("TERM_CPULIMIT", "TIMEOUT"), ("Done successfully", "COMPLETED"),
    ("Exited ", "FAILED"), ("Completed <exit>", "FAILED"),
)  # fmt: skip


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job of a file.

    Source: "bhist" in IBM's documentation of LSF 10::

        Summary of time in seconds spent in various states:
        JOBID   USER    JOB_NAME  PEND    PSUSP   RUN     USUSP   SSUSP   UNKWN   TOTAL
        81234   ali     train     190     0       7202    0       0       0       7392
    """
    rows: list[AccountedJob] = []
    job, title, state = "", "", None
    lines = used = 0
    is_open = False

    def add(found: re.Match[str], evidence: Callable[[], int]) -> None:
        rows.append(
            AccountedJob(
                scheduler="lsf", job=found["job"] or job, name=found["name"] or title or None, state=None if found["job"] else state,
                elapsed_s=float(found["run"]), waited_s=float(found["pend"]), nodes=None, cpus=None, max_rss=None, cpu_efficiency=None,
                memory_efficiency=None, tasks=None, mean_cpu_s=None, least_cpu_s=None, least_task=None, least_host=None, ref=evidence(),
            )
        )  # fmt: skip

    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, text in enumerate(texts, first):
            if text.startswith("Job <") and (head := _JOB.match(text)) is not None:
                job, title, state, is_open = head["job"], head["name"] or "", None, False
            elif _SUMMARY.match(text) is not None:
                is_open = True
            elif is_open and len(rows) < _MOST_JOBS and (row := _ROW.match(text)) is not None:
                add(row, lambda text=text, number=number: facts.evidence(name, number, text.strip()))  # type: ignore[misc]
            elif (
                not is_open and job and (end := next((end for words, end in _ENDS if words in text), None)) is not None
            ):
                state = state if state in ("OUT_OF_MEMORY", "TIMEOUT") else end
            else:
                continue
            used += 1
    facts.add(rows)
    facts.mark_covered("accounted_job")
    note = f"holds more than {_MOST_JOBS:,} jobs; the others were left out" if len(rows) >= _MOST_JOBS else None
    return Reading(lines, used if rows else 0, note)
