"""Fall-backs that worked: a process could not use a plug-in, a library or DMA-BUF, and its communicator came up all the same."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, FellBack, Message, Network, Plugin, VerbsError

_CAME_UP = """
SELECT e.file, c.host, c.pid, max(e.line), max(c.ref) FROM communicator c JOIN evidence e ON e.id = c.ref
WHERE c.phase IN ('complete', 'plain') GROUP BY 1, 2, 3
"""
_NETWORKS = "SELECT host, pid, group_concat(DISTINCT name) FROM network GROUP BY host, pid"
_FAILED = """
SELECT p.host, p.rank, p.pid, 'plug-in', p.ref, e.file, e.line FROM plugin p JOIN evidence e ON e.id = p.ref
WHERE p.kind = 'NET' AND p.outcome IN ('failed', 'rejected')
UNION ALL
SELECT m.host, m.rank, m.pid, CASE WHEN m.kind LIKE 'ofi-%' THEN 'libfabric' ELSE 'InfiniBand' END, m.ref, e.file, e.line
FROM message m JOIN evidence e ON e.id = m.ref
WHERE m.kind IN ('ofi-no-provider-line', 'ofi-getinfo-failed', 'ofi-text-no-provider', 'libibverbs-missing', 'no-ib-device')
UNION ALL
SELECT v.host, v.rank, v.pid, 'DMA-BUF', v.ref, e.file, e.line FROM verbs_error v JOIN evidence e ON e.id = v.ref
WHERE v.call LIKE '%reg_dmabuf_mr'
"""
_INSTEAD = {"libfabric": ("Libfabric", "OFI"), "InfiniBand": ("IB",)}  # networks that are no other than the wanted one


@derivation(fills=[FellBack], reads=[Communicator, Network, Plugin, VerbsError], needs=[Message])
def fell_back(facts: Facts) -> Iterator[FellBack]:
    """One row for each failure of this kind in a process that came up after it."""
    failed = facts.query(_FAILED)
    if not failed:
        return
    up = {(file, host, pid): (line, ref) for file, host, pid, line, ref in facts.query(_CAME_UP)}
    networks = {(host, pid): name for host, pid, name in facts.query(_NETWORKS)}
    for host, rank, pid, wanted, ref, file, line in failed:
        last, back_ref = up.get((file, host, pid), (0, 0))
        network = networks.get((host, pid), "")
        used = "peer memory or host memory" if wanted == "DMA-BUF" else network
        if last > line and used and not any(name in network for name in _INSTEAD.get(wanted, ())):
            yield FellBack(
                host=host, rank=rank, wanted=wanted, used=used, ref=ref, back_ref=back_ref, refs=f"{ref},{back_ref}"
            )
