"""What carries data between two hosts, or inside one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Connection, Link


@derivation(fills=[Link], reads=[Communicator, Connection])
def links(facts: Facts) -> Iterator[Link]:
    """Connections summed by the two hosts, transport and network."""
    communicators = facts.rows(Communicator)
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
    edges = facts.query(
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
        yield Link(
            src_host=src, dst_host=dst, same_host=same, transport=transport, method=method, network=network,
            gdr=gdr, connections=count, channels=channels, devices=len(devices) or None, ref=ref,
        )  # fmt: skip


def _members(communicators: list[Communicator]) -> dict[tuple[object, ...], dict[int, str]]:
    """Communicator -> rank in it -> host. Without a commId the communicators of one size are taken for one."""
    members: dict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
    for c in communicators:
        if c.comm_rank is not None and c.host:
            members[c.comm_id or "", c.nranks].setdefault(c.comm_rank, c.host)
    return members


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
