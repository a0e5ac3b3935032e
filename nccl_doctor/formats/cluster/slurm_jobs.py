"""Jobs and steps of Slurm's accounting as rows: their numbers, and the end of each job."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
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
    max_rss: float | None = None  # of the task with most
    max_rss_host: str | None = None
    max_rss_task: int | None = None
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
    def host(self) -> str | None:
        """The only node of the job or step; None where there are several."""
        single = re.fullmatch(r"[\w.-]{1,200}", self.node_list) and self.node_list not in ("None", "(null)")
        return self.node_list if single else None

    @property
    def signal(self) -> str:
        return self.exit_code.partition(":")[2] or "0"


def rows(facts: Facts, file: str, accounted: Iterable[Accounted]) -> Iterator[Any]:
    """A row of `accounted_job` each, and the ends of the jobs that failed."""
    jobs: list[Accounted] = []
    reasons: dict[str, Accounted] = {}  # job -> the step that best says why it failed; a job may be listed many times
    for one in accounted:
        if one.is_step:
            job_id = one.job.partition(".")[0]
            if _is_reason(one) and (job_id not in reasons or _by_reason(one) < _by_reason(reasons[job_id])):
                reasons[job_id] = one
        else:
            jobs.append(one)
        yield job_row(facts, file, one)
    for job in jobs:
        # A job that failed says with which status its script ended, and a step why.
        ended = job.state in ("FAILED", "OUT_OF_MEMORY")
        worst = reasons.get(job.job, job) if ended else job
        shown = worst.exit_code if worst.exit_code != "0:0" else job.exit_code
        out_of_memory = "OUT_OF_MEMORY" in (worst.state, job.state)
        yield from end_rows(
            facts, file,
            End(
                job=job.job or None, state="OUT_OF_MEMORY" if out_of_memory else job.state, exit_code=shown,
                host=(worst.host if out_of_memory else None) or job.host, reason=job.reason, stamp=job.end,
                line=worst.line, text=worst.text, reporter=job.reporter,
                process=_process(worst) if worst.state == "OUT_OF_MEMORY" and worst.is_step else None,
            ),
        )  # fmt: skip


def _process(step: Accounted) -> str:
    """`a process of step 4711.0 (most memory: 310 GiB, task 17 on node03)`, for a sentence."""
    task = f", task {step.max_rss_task}" if step.max_rss_task is not None else ""
    place = f" on {step.max_rss_host}" if step.max_rss_host else ""
    most = f" (most memory: {step.max_rss / 1024:,.0f} GiB{task}{place})" if step.max_rss else ""
    return f"a process of step {step.job[:80]}{most}"


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
        scheduler="slurm", job=one.job[:80], name=one.name, state=one.state or None, elapsed_s=one.elapsed, waited_s=None, nodes=one.nodes,
        cpus=one.cpus, max_rss=one.max_rss, cpu_efficiency=efficiency, memory_efficiency=one.memory_efficiency, tasks=one.tasks,
        mean_cpu_s=one.mean_cpu, least_cpu_s=one.least_cpu, least_task=one.least_task, least_host=one.least_host,
        ref=facts.evidence(file, one.line, one.text),
    )  # fmt: skip


@lru_cache(1 << 12)  # many jobs ask for the same
def parse_clock(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04.123`."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return 86_400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
