"""The job as a whole: how many nodes, ranks and versions."""

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.sql_functions import version_number
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    IbError,
    Input,
    Interface,
    Job,
    Library,
    Link,
    NodeCount,
    Process,
    Progress,
    Rank,
    SocketError,
    ThroughputRun,
)  # fmt: skip

_WORLD = "SELECT nullif(max(nranks), 0) FROM communicator"


@derivation(
    fills=[Job],
    reads=[
        Communicator,
        IbError,
        Input,
        Interface,
        Library,
        Link,
        NodeCount,
        Process,
        Progress,
        Rank,
        SocketError,
        ThroughputRun,
    ],
)
def job(facts: Facts) -> list[Job]:
    """The one row about the job as a whole."""
    versions = [v for (v,) in facts.query("SELECT DISTINCT version FROM library WHERE name IN ('nccl', 'rccl')")]
    lowest = min(versions, key=lambda v: version_number(v) or 0, default=None)
    nodes = _node_count(facts)
    ranks = facts.query(_WORLD)[0][0]
    alone = ranks == 1
    labelled = facts.query("SELECT count(DISTINCT rank), max(rank) FROM progress WHERE rank IS NOT NULL")[0]
    world = facts.query("SELECT max(gpus) FROM throughput_run WHERE gpus_source = 'world-size'")[0][0]
    gpus = facts.query("SELECT max(gpus) FROM throughput_run WHERE gpus_source <> 'file-name'")[0][0]
    if ranks is None and world:
        ranks = world
    elif ranks is None and 1 < labelled[0] == labelled[1] + 1 and labelled[0] >= (gpus or 0):
        ranks = labelled[0]  # with fewer than there are GPUs they are those that write; rank 0 alone writes for all
    processes = facts.query("SELECT count(*) FROM process")[0][0]
    lines, nccl_lines = facts.query("SELECT sum(lines), sum(nccl_lines) FROM input")[0]
    info = int("communicator" in facts.covered())
    up = facts.query("SELECT count(DISTINCT coalesce(comm_id, comm)) FROM communicator WHERE phase = 'complete'")[0][0]
    multi = None if nodes is None else int(nodes > 1)
    if nodes is None and _reached_elsewhere(facts):
        multi = 1
    elif nodes is None and alone:
        multi = 0
    return [
        Job(
            hosts=nodes, multi_node=multi, ranks=ranks, processes=processes or None, nccl=lowest,
            nccl_number=version_number(lowest), has_nccl=int(bool(nccl_lines)), has_info=info, initialised=up,
            lines=lines or 0,
        )
    ]  # fmt: skip


def _node_count(facts: Facts) -> int | None:
    """How many machines the job ran on; None where the log does not say.

    NCCL's own count (2.20) decides. Else the host names, fewer where two names share memory (containers of one node), more
    where one name has two addresses or twice the same GPU (equal host names), or more ranks than it shows.
    """
    stated = facts.query("SELECT max(nodes) FROM node_count")[0][0]
    if stated:
        return int(stated)
    hosts = {host for (host,) in facts.query("SELECT DISTINCT host FROM process WHERE host IS NOT NULL")}
    others = {host for (host,) in facts.query("SELECT DISTINCT host FROM progress WHERE host IS NOT NULL")}
    # Launchers name pods or services where NCCL names hosts: two lists without a common name are of the same machines.
    hosts = hosts | others if hosts & others else max(hosts, others, key=len)
    between = facts.query(
        "SELECT DISTINCT src_host, dst_host FROM link WHERE same_host = 0 AND transport IN ('P2P', 'SHM')"
    )
    merged = {host: host for host in hosts}
    for a, b in between:
        merged[b] = merged.get(a, a)
    count = len(set(merged.values()))
    nets = facts.query("SELECT count(*) FROM link WHERE transport = 'NET'")[0][0]
    local = facts.query("SELECT count(*) FROM link WHERE transport IN ('P2P', 'SHM')")[0][0]
    if count == 1:
        twice = facts.query(
            "SELECT count(*) FROM (SELECT a.bus_id FROM rank a JOIN rank b ON a.bus_id = b.bus_id AND a.rank < b.rank"
            " AND a.host = b.host WHERE a.bus_id <> '0')"
        )[0][0]
        addresses = facts.query(
            "SELECT count(DISTINCT address) FROM interface WHERE purpose = 'bootstrap' AND position IS NULL"
            " AND address NOT LIKE '127.%' AND address NOT LIKE 'fe80%'"
        )[0][0]
        if twice or addresses > 1 or (nets and local):
            return max(2, int(addresses))
        world = facts.query(_WORLD)[0][0]
        seen = facts.query("SELECT count(DISTINCT rank) FROM communicator")[0][0]
        return 1 if world is not None and seen >= world else None
    return count if count > 1 else None


def _reached_elsewhere(facts: Facts) -> bool:
    """True where a connection or an error names an address that is none of the host's own."""
    own = {address for (address,) in facts.query("SELECT DISTINCT address FROM interface")}
    peers = facts.query(
        "SELECT peer FROM socket_error WHERE peer IS NOT NULL UNION SELECT peer FROM ib_error WHERE peer IS NOT NULL"
    )
    others = {peer.split("<")[0] for (peer,) in peers} - own
    return bool(own and any(other and not other.startswith(("127.", "::1", "localhost")) for other in others))
