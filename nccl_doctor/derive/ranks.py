"""Where each rank of the job ran, and whether it came up."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Process, Progress, Rank

_CAME_UP = "rank IS NOT NULL AND phase IN ('start', 'complete', 'plain')"
_STEPS = f"""
SELECT rank, host, pid, bus_id, cuda_dev, nvml_dev, phase <> 'start', nranks, ref FROM communicator
WHERE {_CAME_UP} ORDER BY rowid
"""
_LABELLED = f"rank IS NOT NULL AND rank NOT IN (SELECT rank FROM communicator WHERE {_CAME_UP})"
_LABELS = f"""
SELECT rank, host, pid, min(ref), max(last_line) FROM process WHERE {_LABELLED} GROUP BY rank
UNION ALL SELECT rank, host, NULL, min(ref), max(position) FROM progress WHERE {_LABELLED} GROUP BY rank
"""


@derivation(fills=[Rank], reads=[Communicator, Process, Progress])
def ranks(facts: Facts) -> Iterator[Rank]:
    """One row for each rank that a communicator, a process or a launcher's label names."""
    world = facts.query("SELECT coalesce(max(nranks), 0) FROM communicator")[0][0]
    last: dict[tuple[str | None, int | None], int] = {}
    for host, rank, line in facts.query("SELECT host, rank, last_line FROM process"):
        last[host, rank] = max(line, last.get((host, rank), line))
    found: dict[int, Rank] = {}
    for rank, host, pid, bus_id, cuda_dev, nvml_dev, done, nranks, ref in facts.query(_STEPS):
        old = found.get(rank)
        if old is None:
            found[rank] = Rank(
                rank=rank, host=host, pid=pid, bus_id=bus_id, cuda_dev=cuda_dev, nvml_dev=nvml_dev,
                initialised=done, last_line=last.get((host, rank)), ref=ref,
            )  # fmt: skip
        elif nranks == world:
            found[rank] = old._replace(
                initialised=max(old.initialised or 0, done), bus_id=old.bus_id or bus_id, pid=old.pid or pid,
                cuda_dev=old.cuda_dev if old.cuda_dev is not None else cuda_dev,
                nvml_dev=old.nvml_dev if old.nvml_dev is not None else nvml_dev,
            )  # fmt: skip
    for rank, host, pid, ref, line in facts.query(_LABELS):
        if rank not in found:
            found[rank] = Rank(
                rank=rank, host=host, pid=pid, bus_id=None, cuda_dev=None, nvml_dev=None, initialised=None,
                last_line=line, ref=ref,
            )  # fmt: skip
    yield from (found[rank] for rank in sorted(found))
