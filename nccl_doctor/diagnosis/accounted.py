"""The jobs that the accounting of a scheduler lists, so that each finding says of which it is."""

from collections.abc import Iterable

from nccl_doctor.common.plurals import counted
from nccl_doctor.facts.store import Facts

_MOST = 4  # jobs that a finding names


class AccountedJobs:
    """Ids and names of jobs."""

    def __init__(self, facts: Facts) -> None:
        rows = facts.query(
            "SELECT substr(job, 1, instr(job || '.', '.') - 1), max(name) FILTER (WHERE instr(job, '.') = 0)"
            " FROM accounted_job WHERE scheduler = 'slurm' GROUP BY 1"
            " UNION ALL SELECT job, max(name) FROM accounted_job WHERE scheduler <> 'slurm' GROUP BY job"
        )
        self._names: dict[str, str | None] = dict(rows)

    def known(self, jobs: Iterable[str]) -> frozenset[str]:
        """Those of these jobs that an accounting lists."""
        return frozenset(jobs) & self._names.keys()

    def named(self, jobs: frozenset[str]) -> str:
        """`job 4711 (train-llm)`, `3 jobs, 12, 13, 14`; empty without jobs."""
        if not jobs:
            return ""
        ordered = sorted(jobs, key=lambda job: (len(job), job))
        shown = [f"{job} ({name})" if (name := self._names[job]) else job for job in ordered[:_MOST]]
        more = f" and {len(ordered) - _MOST} more" if len(ordered) > _MOST else ""
        return f"{'job' if len(ordered) == 1 else counted(len(ordered), 'job') + ','} {', '.join(shown)}{more}"
