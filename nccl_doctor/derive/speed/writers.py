"""Who printed each run of step lines, with the rank in the job where the log tells it.

torchrun labels lines with the rank on the node. Its agents number ranks node by node (`torch/distributed/elastic/agent/server/api.py`,
`_assign_worker_ranks`), so that the ranks of a host follow each other, and the local rank counts them.
"""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Rank, RunWriter, ThroughputRun


@derivation(fills=[RunWriter], needs=[ThroughputRun], reads=[Rank])
def run_writers(facts: Facts) -> Iterator[RunWriter]:
    """One row for each run whose lines say who wrote them."""
    first = _first_ranks(facts)
    only = next(iter(first)) if len(first) == 1 else None
    hosts = dict(facts.query("SELECT rank, host FROM rank"))
    for run in facts.rows(ThroughputRun):
        host, rank = run.host, run.rank
        if rank is None and run.local_rank is not None:
            host = host or only if run.task is None else host
            start, count = first.get(host or "", (None, 0))
            rank = start + run.local_rank if start is not None and run.local_rank < count else None
        host = host or hosts.get(rank)
        who = _shown(host, rank, run)
        if who:
            yield RunWriter(run.run, host, rank, who, run.ref)


def _shown(host: str | None, rank: int | None, run: ThroughputRun) -> str:
    if rank is not None:
        return f"{host} rank {rank}" if host else f"rank {rank}"
    if run.local_rank is None:
        return host or ""
    if host:
        return f"{host} local rank {run.local_rank}"
    return f"local rank {run.local_rank}" + (f" of task {run.task}" if run.task is not None else "")


def _first_ranks(facts: Facts) -> dict[str, tuple[int, int]]:
    """Host -> its first rank and how many it has, of hosts of equal size whose ranks follow each other."""
    rows = facts.query("SELECT host, min(rank), max(rank), count(*) FROM rank WHERE host IS NOT NULL GROUP BY host")
    if facts.query("SELECT EXISTS (SELECT 1 FROM rank WHERE host IS NULL)")[0][0]:
        return {}
    sizes = {count for *_, count in rows}
    return {
        host: (first, count)
        for host, first, last, count in rows
        if len(sizes) == 1 and last - first + 1 == count and first % count == 0
    }
