"""Where each rank of the job ran, and whether it came up."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Process, Progress, Rank

_CAME_UP = "rank IS NOT NULL AND phase IN ('start', 'complete', 'plain')"
# The first line of each rank, and those about the world.
_STEPS = f"""
SELECT rank, host, pid, bus_id, cuda_dev, nvml_dev, phase <> 'start', ref FROM communicator
WHERE {_CAME_UP} AND (nranks = (SELECT max(nranks) FROM communicator)
  OR rowid IN (SELECT min(rowid) FROM communicator WHERE {_CAME_UP} GROUP BY rank))
ORDER BY rowid
"""
_LABELS = """
SELECT rank, host, pid, min(ref), max(last_line) FROM process WHERE rank IS NOT NULL GROUP BY rank
UNION ALL SELECT rank, host, NULL, min(ref), max(position) FROM progress WHERE rank IS NOT NULL GROUP BY rank
"""


@derivation(fills=[Rank], reads=[Communicator, Process, Progress])
def ranks(facts: Facts) -> Iterator[Rank]:
    """One row for each rank that a communicator, a process or a launcher's label names."""
    last: dict[tuple[str | None, int | None], int] = {}
    for host, rank, line in facts.query("SELECT host, rank, last_line FROM process"):
        last[host, rank] = max(line, last.get((host, rank), line))
    found: dict[int, list[Any]] = {}  # rank -> the columns of its row
    for rank, host, pid, bus_id, cuda_dev, nvml_dev, done, ref in facts.query(_STEPS):
        old = found.get(rank)
        if old is None:
            found[rank] = [rank, host, pid, bus_id, cuda_dev, nvml_dev, done, last.get((host, rank)), ref]
            continue
        old[2] = old[2] or pid
        old[3] = old[3] or bus_id
        old[4] = old[4] if old[4] is not None else cuda_dev
        old[5] = old[5] if old[5] is not None else nvml_dev
        old[6] = max(old[6] or 0, done)
    for rank, host, pid, ref, line in facts.query(_LABELS):
        if rank not in found:
            found[rank] = [rank, host, pid, None, None, None, None, line, ref]
    yield from (Rank._make(found[rank]) for rank in sorted(found))
