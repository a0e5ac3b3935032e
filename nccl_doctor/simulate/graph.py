"""Rings and trees between the ranks: numbers only, no text."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Rank


class Ring:
    """One channel: the order of the GPUs inside a node is the same on every node, nodes follow each other."""

    def __init__(self, cluster: Cluster, channel: int) -> None:
        gpus = cluster.spec.gpus
        head = (2 * channel + 2 * channel // gpus) % gpus  # every GPU is the head of a ring once before one is twice
        self.channel = channel
        self.locals = [(head - step) % gpus for step in range(gpus)]
        self.place = {local: position for position, local in enumerate(self.locals)}
        self.cluster = cluster

    @property
    def head(self) -> int:
        """Local rank that receives from the node before."""
        return self.locals[0]

    def next(self, rank: Rank) -> Rank:
        """Returns the rank that this rank sends to."""
        position = self.place[rank.local] + 1
        if position < len(self.locals):
            return rank.host.ranks[self.locals[position]]
        return self.cluster.other(rank.host).ranks[self.head]

    def previous(self, rank: Rank) -> Rank:
        """Returns the rank that this rank receives from."""
        position = self.place[rank.local]
        if position:
            return rank.host.ranks[self.locals[position - 1]]
        return self.cluster.hosts[rank.host.index - 1].ranks[self.locals[-1]]

    def order(self) -> Iterator[int]:
        """Rank numbers from rank 0 on."""
        gpus = len(self.locals)
        start = self.place[0]
        total = gpus * len(self.cluster.hosts)
        for step in range(start, start + total):
            yield step // gpus % len(self.cluster.hosts) * gpus + self.locals[step % gpus]


def channels(cluster: Cluster) -> int:
    """Channels of the job's communicator."""
    if cluster.gpu == "V100":
        return 4
    return 2 if cluster.spec.gpus == 1 or cluster.spec.network == "socket" else 8


def nic(cluster: Cluster, local: int) -> int:
    """Index of the network device next to a GPU."""
    return local * max(1, cluster.nics) // cluster.spec.gpus


def node_links(count: int) -> list[tuple[int, list[int]]]:
    """(parent, children) of each node in a binary tree whose root is node 0; parent -1 for the root."""
    links: list[tuple[int, list[int]]] = [(-1, []) for _ in range(count)]

    def grow(low: int, high: int, parent: int) -> None:
        if low >= high:
            return
        middle = (low + high) // 2
        links[middle] = (parent, links[middle][1])
        links[parent][1].append(middle)
        grow(low, middle, middle)
        grow(middle + 1, high, middle)

    grow(1, count, 0)
    return links


class Trees:
    """Neighbours of a rank in the tree of each channel; the second half of the channels uses the mirrored tree."""

    def __init__(self, cluster: Cluster, rings: list[Ring]) -> None:
        self.cluster = cluster
        self.rings = rings
        count = len(cluster.hosts)
        self.first = node_links(count)
        last = count - 1
        self.second = [(last - up if up >= 0 else -1, [last - d for d in downs]) for up, downs in reversed(self.first)]

    def links(self, ring: Ring, rank: Rank) -> tuple[Rank | None, list[Rank]]:
        """(up, downs) of a rank: a chain inside the node, the node's head is in the tree of nodes."""
        position = ring.place[rank.local]
        downs = []
        if position + 1 < len(ring.locals):
            downs.append(rank.host.ranks[ring.locals[position + 1]])
        if position:
            return rank.host.ranks[ring.locals[position - 1]], downs
        nodes = self.first if ring.channel < (len(self.rings) + 1) // 2 else self.second
        up, children = nodes[rank.host.index]
        hosts = self.cluster.hosts
        downs += [hosts[child].ranks[ring.head] for child in children]
        return (hosts[up].ranks[ring.head] if up >= 0 else None), downs
