"""Tables made from tables: who is where, what carries data between hosts, which settings differ."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.derive.correlate import derive_together
from nccl_doctor.derive.hang.flight_recorder import derive_recorder
from nccl_doctor.derive.hang.stacks import derive_stacks
from nccl_doctor.derive.library_load import derive_load
from nccl_doctor.derive.speed.gpus import derive_gpu
from nccl_doctor.derive.speed.nccl_tests import derive_bench
from nccl_doctor.derive.speed.throughput import derive_throughput
from nccl_doctor.derive.speed.torch_traces import derive_torch
from nccl_doctor.derive.topology import derive_topology
from nccl_doctor.facts.store import Facts, version_number
from nccl_doctor.facts.tables import Communicator, EnvDifference, EnvLint, Host, Interface, Job, Link, Rank
from nccl_doctor.knowledge import env_lint


def derive(facts: Facts) -> None:
    """Fill the derived tables. Call once, after all sources."""
    communicators = facts.rows(Communicator)
    facts.add(_ranks(facts, communicators))
    facts.add(_links(facts, communicators))
    facts.add(_hosts(facts))
    facts.add([_job(facts, communicators)])
    facts.add(_env_differences(facts))
    facts.look("job", "host", "rank", "link", "env_difference")
    if "env" in facts.looked():
        number = facts.own("SELECT nccl_number FROM job")[0][0]
        settings = facts.own("SELECT host, rank, name, value, ref FROM env")
        said = facts.own(
            "SELECT DISTINCT v.name FROM env v JOIN evidence e ON e.id = v.ref"
            " WHERE e.text LIKE '% INFO %' || v.name || ' set by environment to %'"
        )
        facts.add(EnvLint(*row) for row in env_lint.rows(settings, number, {name for (name,) in said}))
        facts.look("env_lint")
    derive_torch(facts)
    derive_stacks(facts)
    derive_recorder(facts)
    derive_gpu(facts)
    derive_topology(facts)
    derive_throughput(facts)
    derive_bench(facts)
    derive_together(facts)
    derive_load(facts)


def _ranks(facts: Facts, communicators: list[Communicator]) -> Iterator[Rank]:
    world = max((c.nranks for c in communicators if c.nranks), default=0)
    last = {
        (host, rank): line
        for host, rank, line in facts.own("SELECT host, rank, max(last_line) FROM process GROUP BY 1, 2")
    }
    found: dict[int, Rank] = {}
    for c in communicators:
        if c.rank is None or c.phase not in ("start", "complete", "plain"):
            continue
        old = found.get(c.rank)
        done = 1 if c.phase in ("complete", "plain") else 0
        if old is None:
            found[c.rank] = Rank(
                c.rank, c.host, c.pid, c.bus_id, c.cuda_dev, c.nvml_dev, done, last.get((c.host, c.rank)), c.ref
            )
        elif c.nranks == world:
            found[c.rank] = old._replace(
                initialised=max(old.initialised or 0, done), bus_id=old.bus_id or c.bus_id, pid=old.pid or c.pid,
                cuda_dev=old.cuda_dev if old.cuda_dev is not None else c.cuda_dev,
                nvml_dev=old.nvml_dev if old.nvml_dev is not None else c.nvml_dev,
            )  # fmt: skip
    labels = facts.own(
        "SELECT rank, host, pid, min(ref), max(last_line) FROM process WHERE rank IS NOT NULL GROUP BY rank"
        " UNION ALL SELECT rank, host, NULL, min(ref), max(position) FROM progress WHERE rank IS NOT NULL GROUP BY rank"
    )
    for rank, host, pid, ref, line in labels:
        if rank not in found:
            found[rank] = Rank(rank, host, pid, None, None, None, None, line, ref)
    yield from (found[rank] for rank in sorted(found))


def _members(communicators: list[Communicator]) -> dict[tuple[object, ...], dict[int, str]]:
    """Communicator -> rank in it -> host. Without a commId the communicators of one size are taken for one."""
    members: dict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
    for c in communicators:
        if c.comm_rank is not None and c.host:
            members[c.comm_id or "", c.nranks].setdefault(c.comm_rank, c.host)
    return members


def _links(facts: Facts, communicators: list[Communicator]) -> Iterator[Link]:
    members = _members(communicators)
    alike: dict[frozenset[tuple[int, str]], dict[int, str]] = {}  # communicators of the same ranks are asked once
    for key, ranks in members.items():
        members[key] = alike.setdefault(frozenset(ranks.items()), ranks)
    mine: dict[tuple[str | None, int | None], dict[int, dict[int, str]]] = defaultdict(dict)
    for c in communicators:
        of = members.get((c.comm_id or "", c.nranks))
        if of is not None:
            mine[c.host, c.pid][id(of)] = of
    groups: dict[tuple[Any, ...], list[Any]] = {}
    edges = facts.own(
        "SELECT host, pid, CASE direction WHEN 'receive' THEN src ELSE dst END, direction = 'receive', transport, method,"
        " network, gdr, device, channels, ref FROM connection"
    )
    for host, pid, other, receives, transport, method, network, gdr, device, channels, ref in edges:
        # A process knows its own end: the sender prints P2P, SHM and [send], the receiver [receive].
        peer = _peer(mine[host, pid].values(), other)
        if peer is None and method != "MNNVL" and transport in ("P2P", "SHM"):
            peer = host
        src, dst = (peer, host) if receives else (host, peer)
        group = groups.get((src, dst, transport, method, network, gdr))
        if group is None:
            group = groups[src, dst, transport, method, network, gdr] = [0, 0, set(), ref]
        group[0] += 1
        group[1] += channels
        if device is not None:
            group[2].add(device)
    for (src, dst, transport, method, network, gdr), (count, channels, devices, ref) in groups.items():
        same = None if src is None or dst is None else int(src == dst)
        yield Link(src, dst, same, transport, method, network, gdr, count, channels, len(devices) or None, ref)


def _peer(communicators: Iterable[dict[int, str]], rank: int) -> str | None:
    """The host of a rank, where the communicators of a process that have the rank agree on it."""
    found = None
    for ranks in communicators:
        host = ranks.get(rank)
        if host is not None and host != found:
            if found is not None:
                return None
            found = host
    return found


def _hosts(facts: Facts) -> Iterator[Host]:
    addresses: dict[str, str] = {}
    for row in facts.rows(Interface):
        if row.purpose in ("bootstrap", "oob", "socket") and row.host and not row.address.startswith(("127.", "::1")):
            addresses.setdefault(row.host, row.address)
    gpus = dict(
        facts.own("SELECT host, count(DISTINCT bus_id) FROM communicator WHERE bus_id IS NOT NULL GROUP BY host")
    )
    ranks = dict(facts.own("SELECT host, count(DISTINCT rank) FROM rank GROUP BY host"))
    query = (
        "SELECT host, count(DISTINCT pid), min(ref) FROM (SELECT host, pid, ref FROM process UNION ALL"
        " SELECT host, NULL, ref FROM progress UNION ALL SELECT host, NULL, ref FROM process_end UNION ALL"
        " SELECT host, NULL, ref FROM message) WHERE host IS NOT NULL GROUP BY host"
    )
    for host, processes, ref in facts.own(query):
        yield Host(host, ranks.get(host, 0), processes, gpus.get(host), addresses.get(host), ref)


def _node_count(facts: Facts, communicators: list[Communicator]) -> int | None:
    """How many machines the job ran on; None where the log does not say.

    NCCL's own count (2.20) decides. Else the host names, fewer where two names share memory (containers of one node), more
    where one name has two addresses or twice the same GPU (equal host names), or more ranks than it shows.
    """
    stated = facts.own("SELECT max(nodes) FROM node_count")[0][0]
    if stated:
        return int(stated)
    hosts = {host for (host,) in facts.own("SELECT DISTINCT host FROM process WHERE host IS NOT NULL")}
    others = {host for (host,) in facts.own("SELECT DISTINCT host FROM progress WHERE host IS NOT NULL")}
    # Launchers name pods or services where NCCL names hosts: two lists without a common name are of the same machines.
    hosts = hosts | others if hosts & others else max(hosts, others, key=len)
    between = facts.own(
        "SELECT DISTINCT src_host, dst_host FROM link WHERE same_host = 0 AND transport IN ('P2P', 'SHM')"
    )
    merged = {host: host for host in hosts}
    for a, b in between:
        merged[b] = merged.get(a, a)
    count = len(set(merged.values()))
    nets = facts.own("SELECT count(*) FROM link WHERE transport = 'NET'")[0][0]
    local = facts.own("SELECT count(*) FROM link WHERE transport IN ('P2P', 'SHM')")[0][0]
    if count == 1:
        twice = facts.own(
            "SELECT count(*) FROM (SELECT a.bus_id FROM rank a JOIN rank b ON a.bus_id = b.bus_id AND a.rank < b.rank"
            " AND a.host = b.host WHERE a.bus_id <> '0')"
        )[0][0]
        addresses = facts.own(
            "SELECT count(DISTINCT address) FROM interface WHERE purpose = 'bootstrap' AND position IS NULL"
            " AND address NOT LIKE '127.%' AND address NOT LIKE 'fe80%'"
        )[0][0]
        if twice or addresses > 1 or (nets and local):
            return max(2, int(addresses))
        world = max((c.nranks for c in communicators if c.nranks), default=None)
        seen = len({c.rank for c in communicators if c.rank is not None})
        return 1 if world is not None and seen >= world else None
    return count if count > 1 else None


def _job(facts: Facts, communicators: list[Communicator]) -> Job:
    versions = [v for (v,) in facts.own("SELECT DISTINCT version FROM library WHERE name IN ('nccl', 'rccl')")]
    lowest = min(versions, key=lambda v: version_number(v) or 0, default=None)
    nodes = _node_count(facts, communicators)
    ranks = max((c.nranks for c in communicators if c.nranks), default=None)
    labelled = facts.own("SELECT count(DISTINCT rank), max(rank) FROM progress WHERE rank IS NOT NULL")[0]
    if ranks is None and labelled[0] and labelled[0] == labelled[1] + 1:
        ranks = labelled[0]
    processes = facts.own("SELECT count(*) FROM process")[0][0]
    lines, nccl_lines = facts.own("SELECT sum(lines), sum(nccl_lines) FROM input")[0]
    info = facts.own("SELECT EXISTS (SELECT 1 FROM looked WHERE name = 'communicator')")[0][0]
    up = facts.own("SELECT count(DISTINCT coalesce(comm_id, comm)) FROM communicator WHERE phase = 'complete'")[0][0]
    multi = None if nodes is None else int(nodes > 1)
    if nodes is None and _reached_elsewhere(facts):
        multi = 1
    return Job(
        nodes,
        multi,
        ranks,
        processes or None,
        lowest,
        version_number(lowest),
        int(bool(nccl_lines)),
        info,
        up,
        lines or 0,
    )


def _reached_elsewhere(facts: Facts) -> bool:
    """True where a connection or an error names an address that is none of the host's own."""
    own = {address for (address,) in facts.own("SELECT DISTINCT address FROM interface")}
    peers = facts.own(
        "SELECT peer FROM socket_error WHERE peer IS NOT NULL UNION SELECT peer FROM ib_error WHERE peer IS NOT NULL"
    )
    others = {peer.split("<")[0] for (peer,) in peers} - own
    return bool(own and any(other and not other.startswith(("127.", "::1")) for other in others))


def _env_differences(facts: Facts) -> Iterator[EnvDifference]:
    """Settings that not all ranks share, where every rank had the chance to show them.

    Values such as a device index or a per-rank file are expected to differ and are left out.
    """
    speaking = {(h, p) for h, p in facts.own("SELECT DISTINCT host, pid FROM env WHERE pid IS NOT NULL")}
    if len(speaking) < 2:
        return
    values: dict[str, dict[str, dict[tuple[str, int], int]]] = defaultdict(lambda: defaultdict(dict))
    for host, pid, name, value, ref in facts.own("SELECT host, pid, name, value, ref FROM env WHERE pid IS NOT NULL"):
        values[name][value][host, pid] = ref
    for name, by_value in sorted(values.items()):
        holders = {process for group in by_value.values() for process in group}
        absent = speaking - holders
        groups = [(value, set(group), min(group.values())) for value, group in by_value.items()]
        if absent:
            groups.append((None, absent, None))  # type: ignore[arg-type]
        if len(groups) < 2:
            continue
        for value, group, ref in groups:
            hosts = " ".join(sorted({host for host, _ in group if host}))
            yield EnvDifference(name, value, len(group), len(speaking), hosts, ref)
