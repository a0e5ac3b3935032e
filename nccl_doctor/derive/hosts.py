"""The hosts of the job."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    BenchMember,
    Communicator,
    Host,
    Interface,
    Message,
    Process,
    ProcessEnd,
    Progress,
    Rank,
)

_ADDRESSES = """
SELECT host, address, min(rowid) FROM interface WHERE purpose IN ('bootstrap', 'oob', 'socket') AND host <> ''
  AND address NOT LIKE '127.%' AND address NOT LIKE '::1%' GROUP BY host
"""


@derivation(fills=[Host], reads=[BenchMember, Interface, Communicator, Rank, Process, Progress, ProcessEnd, Message])
def hosts(facts: Facts) -> Iterator[Host]:
    """Every host that printed a line of the job or is named in one."""
    addresses = {host: address for host, address, _ in facts.query(_ADDRESSES)}
    gpus = dict(
        facts.query("SELECT host, count(DISTINCT bus_id) FROM communicator WHERE bus_id IS NOT NULL GROUP BY host")
    )
    ranks = dict(facts.query("SELECT host, count(DISTINCT rank) FROM rank GROUP BY host"))
    query = (
        "SELECT host, count(DISTINCT pid), min(ref) FROM (SELECT host, pid, ref FROM process UNION ALL"
        " SELECT host, NULL, ref FROM progress UNION ALL SELECT host, NULL, ref FROM process_end UNION ALL"
        " SELECT host, NULL, ref FROM message) WHERE host IS NOT NULL GROUP BY host"
    )
    shown = facts.query(query)
    members = _members(facts)
    if 0 < len(shown) <= len(members) and not ranks and not members.keys() & {host for host, _, _ in shown}:
        # the pod of a launcher prints what the processes of others measured
        yield from (Host(host, count, 0, None, None, ref) for host, (count, ref) in members.items())
        return
    for host, processes, ref in shown:
        yield Host(host, ranks.get(host, 0), processes, gpus.get(host), addresses.get(host), ref)


def _members(facts: Facts) -> dict[str, tuple[int, int]]:
    """Ranks of each host that runs of nccl-tests name, and the line."""
    if "bench_member" not in facts.covered():
        return {}
    query = "SELECT host, max(ranks), min(ref) FROM bench_member GROUP BY host"
    return {host: (ranks, ref) for host, ranks, ref in facts.query(query)}
