"""Runs of all_reduce_perf between two nodes at a time, as administrators measure a cluster: every run a file of its own.

A run reaches what the slower of its nodes and the link between them allow. The pairs are those of a tournament: in each round
every node has another partner.
"""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host
from nccl_doctor.simulate.spec import Spec
from nccl_doctor.simulate.training import TABLE_HEAD, table_row, test_head

FAULTS = {
    "slow-node": "One node reaches about half of the bandwidth with every partner.",
    "slow-link": "The link between two nodes carries about half of what the others do.",
}
SMALLEST, LARGEST = 1 << 20, 1 << 32  # bytes
_PORT = {"ib": 46.0, "roce": 42.0, "efa": 21.0, "socket": 0.0}  # GB/s that one GPU sends to another node
_SOCKET = 4.6  # GB/s of a node without RDMA
_LATENCY = 38.0  # microseconds


def write_pairs(spec: Spec, pairs: int) -> dict[str, list[str]]:
    """File name -> lines of one run, for the first `pairs` pairs of a tournament of the nodes.

    Raises ValueError for a cluster without so many pairs, and for a fault that does not concern pairs.
    """
    spec.check()
    most = spec.nodes * (spec.nodes - 1) // 2
    if not 1 <= pairs <= most:
        raise ValueError(f"{spec.nodes} nodes make 1 to {most} pairs, not {pairs}")
    if spec.fault is not None and spec.fault not in FAULTS:
        raise ValueError(f"pairs of nodes show {' or '.join(FAULTS)}, not {spec.fault}")
    cluster = Cluster(spec)
    chosen = [pair for pair, _ in zip(_tournament(cluster.hosts), range(pairs), strict=False)]
    factor = cluster.rng.uniform(0.4, 0.6)
    slow = _slow(cluster, chosen)
    files = {}
    for first, second in chosen:
        lines = _run(cluster, first, second, factor if slow & {first, second} >= slow and slow else 1.0)
        files[f"{first.name}-{second.name}.log"] = lines
    return files


def _tournament(hosts: list[Host]) -> Iterator[tuple[Host, Host]]:
    """Every pair once, round by round; in a round no node has two partners."""
    seats: list[Host | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    for _ in range(len(seats) - 1):
        for one, other in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True):
            if one is not None and other is not None:
                yield (one, other) if one.index < other.index else (other, one)
        seats = [seats[0], seats[-1], *seats[1:-1]]


def _slow(cluster: Cluster, chosen: list[tuple[Host, Host]]) -> set[Host]:
    """The node that is slow, or both ends of the link."""
    match cluster.spec.fault:
        case "slow-node":
            return {cluster.victim.host}
        case "slow-link":
            return set(cluster.rng.choice(chosen))
        case _:
            return set()


def _run(cluster: Cluster, first: Host, second: Host, factor: float) -> list[str]:
    """The output of one run, which reaches a share `factor` of what healthy nodes reach."""
    ranks = [*first.ranks, *second.ranks]
    busbw = (_PORT[cluster.spec.network] * cluster.spec.gpus or _SOCKET) * factor * cluster.rng.uniform(0.985, 1.01)
    limit = busbw * len(ranks) / (2 * (len(ranks) - 1))  # of the bytes that a rank reduces
    rows, sums = [], 0.0
    size = SMALLEST
    while size <= LARGEST:
        micros = [_LATENCY + size / (limit * 1000) * cluster.rng.uniform(1.0, 1.02) for _ in range(2)]
        rows.append(table_row(size, micros, len(ranks)))
        sums += sum(size / time / 1000 * 2 * (len(ranks) - 1) / len(ranks) for time in micros) / 2
        size *= 2
    return [
        "# Collective test starting: all_reduce_perf",
        *test_head(cluster, ranks, SMALLEST, LARGEST),
        *TABLE_HEAD,
        *rows,
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sums / len(rows):.4f} ",
        "#",
        "# Collective test concluded: all_reduce_perf",
    ]
