"""The report that LSF puts behind the output of a job, or sends as mail: its numbers. How it ended, the log itself tells."""

import re
from collections.abc import Callable

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_MOST_JOBS = 10_000
_SUBJECT = re.compile(
    r"Subject: Job (\d{1,12}(?:\[\d{1,9}\])?): <(.{0,200}?)> in cluster <[^>]{0,200}> (Done|Exited)\s*$"
)
_HOST = re.compile(r"(?:Job was executed on host\(s\)|\s{10,40}) ?<(?:\d{1,6}\*)?([\w.-]{1,200})>")
_NUMBER = re.compile(
    r"\s{1,12}(CPU time|Max Memory|Run time) :\s{1,60}(\d{1,15}(?:\.\d{1,6})?) (sec|[KMGT]Bytes|[KMGT]B)\b"
)
_MIB_OF = {"K": 2.0**-10, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_STATES = (("TERM_RUNLIMIT", "TIMEOUT"), ("TERM_CPULIMIT", "TIMEOUT"), ("TERM_MEMLIMIT", "OUT_OF_MEMORY"))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the report of each job of a file.

    Source: "Report of a batch job" in IBM's documentation of LSF 10 (`bsub`, LSB_JOB_REPORT_MAIL)::

        Subject: Job 4711: <train> in cluster <one> Exited
            Max Memory :                                 65536 MB
    """
    report = _Report()
    jobs = lines = used = 0

    rows: list[AccountedJob] = []

    def end() -> None:
        if report.numbers:
            rows.append(report.row(lambda text: facts.evidence(name, report.line, text)))

    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, line in enumerate(texts, first):
            if line.startswith("Subject: ") and (subject := _SUBJECT.match(line)) is not None:
                end()
                report, jobs = _Report(number, line.strip(), *subject.groups()), jobs + 1
                used += 1
            else:
                used += report.take(number, line)
        if jobs > _MOST_JOBS:
            break
    end()
    facts.add(rows)
    facts.mark_covered("accounted_job", "process_end")
    note = f"holds reports of more than {_MOST_JOBS:,} jobs; the others were left out" if jobs > _MOST_JOBS else None
    return Reading(lines, used, note)


class _Report:
    """What the lines of one report said so far; without its head, the job has no number."""

    def __init__(self, line: int = 0, text: str = "", job: str | None = None, name: str = "", end: str = "") -> None:
        self.line = line
        self.numbers: dict[str, float] = {}
        self._text = text
        self._job = job
        self._name = name
        self._state = {"Done": "COMPLETED", "Exited": "FAILED"}.get(end)
        self._hosts: dict[str, None] = {}

    def take(self, number: int, line: str) -> bool:
        """Take one line; whether it says something."""
        if " : " in line and (found := _NUMBER.match(line)) is not None:
            title, value, unit = found.groups()
            self.numbers[title] = float(value) * (1 if unit == "sec" else _MIB_OF[unit[0]])
            if not self._text:
                self.line, self._text = number, line.strip()
        elif self._job is not None and not self.numbers and (host := _HOST.match(line)) is not None:
            self._hosts[host[1]] = None
        elif line.startswith("TERM_"):
            self._state = next((state for word, state in _STATES if line.startswith(word)), self._state)
        elif line.startswith("Successfully completed."):
            self._state = "COMPLETED"
        elif line.startswith("Exited with "):
            self._state = self._state if self._state in ("TIMEOUT", "OUT_OF_MEMORY") else "FAILED"
        else:
            return False
        return True

    def row(self, evidence: Callable[[str], int]) -> AccountedJob:
        """The job."""
        return AccountedJob(
            scheduler="lsf", job=self._job or "", name=self._name or None, state=self._state,
            elapsed_s=self.numbers.get("Run time"), waited_s=None,
            nodes=len(self._hosts) or None, cpus=None, max_rss=self.numbers.get("Max Memory"), cpu_efficiency=None,
            memory_efficiency=None, tasks=None, mean_cpu_s=None, least_cpu_s=None, least_task=None, least_host=None,
            ref=evidence(self._text),
        )  # fmt: skip
