"""Connections between ranks: P2P and shared memory inside a node, the network between nodes."""

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.graph import Ring, Trees, nic
from nccl_doctor.simulate.nccl_format import info


def _label(rank: Rank, v: tuple[int, int, int]) -> str:
    return f"{rank.number}[{rank.nvml}]" if v < (2, 5) or v >= (2, 18, 3) else f"{rank.number}[{rank.bus:x}]"


def _head(v: tuple[int, int, int], channel: int, net: bool) -> str:
    """``Ring 00``, ``Channel 00`` or ``Channel 00/0``."""
    if v < (2, 7):
        return f"Ring {channel:02d}"
    with_index = v >= (2, 12, 7) if net else v >= (2, 14)
    return f"Channel {channel:02d}/0" if with_index else f"Channel {channel:02d}"


def local_channel_line(cluster: Cluster, channel: int, a: Rank, b: Rank) -> str:
    """Returns the sender's line of a connection inside a node."""
    v = a.host.version
    if a.host.p2p and b.host.p2p:
        kind = "P2P/CUMEM" if v >= (2, 19) and cluster.gpu == "H100" else "P2P/IPC"
        if cluster.gpu == "A100":
            kind += "/read"
        head = _head(v, channel, False)
    else:
        head = f"Ring {channel:02d}" if v < (2, 7) else f"Channel {channel:02d}"
        kind = "direct shared memory" if v < (2, 13) else "SHM/direct" if v >= (2, 30, 7) else "SHM/direct/direct"
    return info(a, f"{head} : {_label(a, v)} -> {_label(b, v)} via {kind}")


def network_channel_line(cluster: Cluster, ring: Ring, a: Rank, b: Rank, sends: bool) -> str:
    """Returns the line of one side of a connection between nodes."""
    me = a if sends else b
    v, host = me.host.version, me.host
    socket = host.network == "Socket"
    device = 0 if socket else nic(cluster, ring.head)
    if host.network == "IB" and host.hcas:
        device %= len(host.hcas)
    gdr = "" if socket or not host.peermem or cluster.gpu == "V100" else "/GDRDMA"
    proxy = ""
    if sends and not socket and v >= (2, 12) and a.local != ring.head and nic(cluster, a.local) != device:
        proxy = f"({a.host.ranks[ring.head].number})"
    side = "send" if sends else "receive"
    labels = f"{a.number} -> {b.number}" if v < (2, 5) else f"{_label(a, v)} -> {_label(b, v)}"
    return info(me, f"{_head(v, ring.channel, True)} : {labels} [{side}] via NET/{host.network}/{device}{proxy}{gdr}")


def ring_lines(cluster: Cluster, rank: Rank, rings: list[Ring]) -> list[str]:
    """Returns the lines that one rank prints while it connects its rings."""
    lines = []
    for ring in rings:
        before, after = ring.previous(rank), ring.next(rank)
        if before is not rank and before.host is not rank.host:
            lines.append(network_channel_line(cluster, ring, before, rank, sends=False))
        if after is rank:
            continue
        if after.host is rank.host:
            lines.append(local_channel_line(cluster, ring.channel, rank, after))
        else:
            lines.append(network_channel_line(cluster, ring, rank, after, sends=True))
    return lines


def rings_done(rank: Rank, peermem: bool) -> list[str]:
    """Returns the line after the last ring connection."""
    v = rank.host.version
    if v < (2, 8):
        return []
    if v >= (2, 24):
        gdr = int(peermem and rank.host.network != "Socket")
        return [info(rank, f"Connected all rings, use ring PXN 0 GDR {gdr}")]
    return [info(rank, "Connected all rings")]


def tree_lines(cluster: Cluster, rank: Rank, rings: list[Ring], trees: Trees) -> list[str]:
    """Returns the lines that one rank prints for tree connections that are not in the rings."""
    lines = []
    for ring in rings:
        up, downs = trees.links(ring, rank)
        for down in downs:
            if down.host is not rank.host:
                lines.append(network_channel_line(cluster, ring, down, rank, sends=False))
                lines.append(network_channel_line(cluster, ring, rank, down, sends=True))
        if up is None:
            continue
        if up.host is rank.host:
            lines.append(local_channel_line(cluster, ring.channel, rank, up))
        else:
            lines.append(network_channel_line(cluster, ring, up, rank, sends=False))
            lines.append(network_channel_line(cluster, ring, rank, up, sends=True))
    if rank.host.version >= (2, 8):
        lines.append(info(rank, "Connected all trees"))
    return lines
