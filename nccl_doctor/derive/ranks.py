"""Where each rank of the job ran, and whether it came up."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Process, Progress, Rank


@derivation(fills=[Rank], reads=[Communicator, Process, Progress])
def ranks(facts: Facts) -> Iterator[Rank]:
    """One row for each rank that a communicator, a process or a launcher's label names."""
    communicators = facts.rows(Communicator)
    world = max((c.nranks for c in communicators if c.nranks), default=0)
    last = {
        (host, rank): line
        for host, rank, line in facts.query("SELECT host, rank, max(last_line) FROM process GROUP BY 1, 2")
    }
    found: dict[int, Rank] = {}
    for c in communicators:
        if c.rank is None or c.phase not in ("start", "complete", "plain"):
            continue
        old = found.get(c.rank)
        done = 1 if c.phase in ("complete", "plain") else 0
        if old is None:
            found[c.rank] = Rank(
                rank=c.rank, host=c.host, pid=c.pid, bus_id=c.bus_id, cuda_dev=c.cuda_dev, nvml_dev=c.nvml_dev,
                initialised=done, last_line=last.get((c.host, c.rank)), ref=c.ref,
            )  # fmt: skip
        elif c.nranks == world:
            found[c.rank] = old._replace(
                initialised=max(old.initialised or 0, done), bus_id=old.bus_id or c.bus_id, pid=old.pid or c.pid,
                cuda_dev=old.cuda_dev if old.cuda_dev is not None else c.cuda_dev,
                nvml_dev=old.nvml_dev if old.nvml_dev is not None else c.nvml_dev,
            )  # fmt: skip
    labels = facts.query(
        "SELECT rank, host, pid, min(ref), max(last_line) FROM process WHERE rank IS NOT NULL GROUP BY rank"
        " UNION ALL SELECT rank, host, NULL, min(ref), max(position) FROM progress WHERE rank IS NOT NULL GROUP BY rank"
    )
    for rank, host, pid, ref, line in labels:
        if rank not in found:
            found[rank] = Rank(
                rank=rank, host=host, pid=pid, bus_id=None, cuda_dev=None, nvml_dev=None, initialised=None,
                last_line=line, ref=ref,
            )  # fmt: skip
    yield from (found[rank] for rank in sorted(found))
