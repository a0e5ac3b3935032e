"""Jobs and steps of Slurm's accounting as rows: their numbers, and the end of each job."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.cluster.slurm_ends import End, end_rows

_CLOCK = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d{2}(?:\.\d{1,6})?)$")


class Accounted(NamedTuple):
    """A job, or a step of one. Times in seconds, memory in MiB."""

    job: str
    line: int
    text: str
    reporter: str  # sacct, seff
    state: str = ""
    exit_code: str = ""  # `STATUS:SIGNAL`; empty where it is not shown
    name: str | None = None
    node_list: str = ""
    reason: str | None = None
    end: float | None = None
    elapsed: float | None = None
    nodes: int | None = None
    cpus: int | None = None
    max_rss: float | None = None
    used_cpu: float | None = None  # CPU time of all tasks
    cpu_efficiency: float | None = None
    memory_efficiency: float | None = None
    tasks: int | None = None
    mean_cpu: float | None = None
    least_cpu: float | None = None
    least_task: int | None = None
    least_host: str | None = None

    @property
    def is_step(self) -> bool:
        return "." in self.job

    @property
    def signal(self) -> str:
        return self.exit_code.partition(":")[2] or "0"


def rows(facts: Facts, file: str, accounted: Iterable[Accounted]) -> Iterator[Any]:
    """A row of `accounted_job` each, and the ends of the jobs that failed."""
    jobs: list[Accounted] = []
    steps: dict[str, list[Accounted]] = {}
    for one in accounted:
        if one.is_step:
            steps.setdefault(one.job.partition(".")[0], []).append(one)
        else:
            jobs.append(one)
        yield job_row(facts, file, one)
    for job in jobs:
        # A job that failed says with which status its script ended, and a step why.
        own = [step for step in steps.get(job.job, []) if job.state == "FAILED" and _is_reason(step)]
        worst = min(own, key=_by_reason, default=job)
        shown = worst.exit_code if worst.exit_code != "0:0" else job.exit_code
        yield from end_rows(
            facts, file,
            End(
                job=job.job, state=worst.state if worst.state == "OUT_OF_MEMORY" else job.state, exit_code=shown,
                host=job.node_list if re.fullmatch(r"[\w.-]{1,200}", job.node_list) and job.node_list != "None" else None,
                reason=job.reason, stamp=job.end, line=worst.line, text=worst.text, reporter=job.reporter,
            ),
        )  # fmt: skip


def _is_reason(step: Accounted) -> bool:
    """Whether a step may be why its job failed. A step whose only task got a signal is `CANCELLED` with that signal."""
    return step.state in ("FAILED", "OUT_OF_MEMORY") or (step.state == "CANCELLED" and step.signal not in ("0", "15"))


def _by_reason(step: Accounted) -> tuple[bool, bool, bool]:
    return step.state != "OUT_OF_MEMORY", step.job.endswith((".batch", ".extern")), step.state != "FAILED"


def job_row(facts: Facts, file: str, one: Accounted) -> AccountedJob:
    """The row of a job or step."""
    efficiency = one.cpu_efficiency
    if efficiency is None and one.used_cpu is not None and one.elapsed and one.cpus:
        efficiency = one.used_cpu / (one.elapsed * one.cpus)
    return AccountedJob(
        scheduler="slurm", job=one.job[:80], name=one.name, state=one.state or None, elapsed_s=one.elapsed, nodes=one.nodes,
        cpus=one.cpus, max_rss=one.max_rss, cpu_efficiency=efficiency, memory_efficiency=one.memory_efficiency, tasks=one.tasks,
        mean_cpu_s=one.mean_cpu, least_cpu_s=one.least_cpu, least_task=one.least_task, least_host=one.least_host,
        ref=facts.evidence(file, one.line, one.text),
    )  # fmt: skip


def parse_clock(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04.123`."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return 86_400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
