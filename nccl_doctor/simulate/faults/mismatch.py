"""Faults where the nodes of one job are not alike."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import info, init_trail, trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import completion, fail_ranks, port, remote_code
from nccl_doctor.simulate.spec import VERSIONS, version_tuple

_RDMA = Needs(nodes=2, networks=("ib", "roce"))


def _odd(cluster: Cluster) -> Host:
    """The host that differs: the victim's, but never the first, which prints for the job."""
    return cluster.hosts[max(1, cluster.victim.host.index)]


@fault(
    "nccl-version-mismatch",
    "One node runs another NCCL version than the rest.",
    r"Mismatched NCCL version detected|family \d+ is neither AF_INET|Message truncated : received",
    Needs(nodes=2),
)
def _versions(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    place = VERSIONS.index(cluster.spec.version)
    other = version_tuple(VERSIONS[place - 1 if place else 1])
    odd.version = other
    for host in cluster.hosts:
        host.rendezvous = False

    def code(version: tuple[int, int, int]) -> int:
        return (
            version[0] * 10000 + version[1] * 100 + version[2]
            if version >= (2, 9)
            else (version[0] * 1000 + version[1] * 100 + version[2])
        )

    def phases() -> Iterator[Phase]:
        failures = {}
        first = odd.ranks[0]
        for rank in [cluster.ranks[0], first]:
            v = rank.host.version
            if min(cluster.v, other) >= (2, 23):
                text = (
                    f"Mismatched NCCL version detected : rank 0 version {code(cluster.v)} rank {first.number} "
                    f"version {code(other)}"
                )
                lines = [
                    warn(rank, "init.cc:962", text, "initTransportsRank"),
                    init_trail(rank, 5, ("init.cc:970", "initTransportsRank")),
                ]
                failures[rank] = (lines, 5, text)
                continue
            if v >= (2, 10):
                name = "ncclSocketInit" if v >= (2, 16) else "Net "
                text = f"{name}: connecting to address  with family 33621 is neither AF_INET(2) nor AF_INET6(10)"
                where = "misc/socket.cc:717"
            else:
                text, where = "Message truncated : received 336 bytes instead of 328", "bootstrap.cc:117"
            steps = (("bootstrap.cc:283", "bootstrapInit"),)
            failures[rank] = ([warn(rank, where, text), init_trail(rank, 3, *steps)], 3, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("start", phases)


@fault(
    "mixed-network-between-nodes",
    "One node uses TCP sockets and the others RDMA, so they cannot connect.",
    r"NET/Socket : Using",
    _RDMA,
)
def _mixed(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    odd.network, odd.ib = "Socket", "no-device"

    def phases() -> Iterator[Phase]:
        failures = {}
        for rank in [cluster.other(odd).ranks[0], odd.ranks[0]]:
            v = rank.host.version
            if v >= (2, 16):
                mine, theirs = (3, 4) if rank.host is odd else (4, 3)
                peer = cluster.other(odd) if rank.host is odd else odd
                origin = f" from {peer.address}<{port(cluster)}>" if v >= (2, 27) else ""
                text = f"socketFinalizeAccept{origin}: wrong type {theirs} != {mine}"
                if v >= (2, 30, 7):
                    text = (
                        f"socketFinalizeAccept{origin}: wrong socket type (peer {theirs} != expected {mine} -- peer connected "
                        "to wrong NCCL socket), discarding peer connection"
                    )
                    phase = Phase(0.5)
                    phase.add(rank, info(rank, text, "proxy"))
                    yield phase
                    continue
                first = warn(rank, "misc/socket.cc:441", text, "socketFinalizeAccept", "proxy")
            elif v >= (2, 10):
                text = "Net : connecting to address  with family 40183 is neither AF_INET(2) nor AF_INET6(10)"
                first = warn(rank, "misc/socket.cc:397", text, thread="proxy")
            else:
                text = "Error : connecting to address with family 40183 is neither AF_INET(2) nor AF_INET6(10)"
                first = warn(rank, "include/socket.h:381", text, thread="proxy")
            steps = (
                ("transport/net_socket.cc:333", "ncclNetSocketConnect"),
                ("transport/net.cc:592", "sendProxyConnect"),
            )
            failures[rank] = ([first, init_trail(rank, 3, *steps)], 3, text)
        if failures:
            yield from fail_ranks(cluster, failures, "init")

    return Break("connect", phases)


@fault(
    "env-differs-between-nodes",
    "An NCCL variable is set on one node only.",
    r"NCCL_BUFFSIZE set by environment to 1048576\.",
    Needs(nodes=2),
)
def _env(cluster: Cluster) -> None:
    for rank in _odd(cluster).ranks:
        cluster.add_after("start", rank, info(rank, "NCCL_BUFFSIZE set by environment to 1048576."))


@fault(
    "rank-env-mismatch",
    "NCCL_ALGO differs between nodes, so ranks send other sizes than their peers expect.",
    r"collective mismatch error|message truncated : receiving",
    Needs(nodes=2, since="2.10.3"),
)
def _algo(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    for rank in odd.ranks:
        cluster.add_after("start", rank, info(rank, "NCCL_ALGO set by environment to Tree"))

    def phases() -> Iterator[Phase]:
        failures = {}
        for rank in cluster.other(odd).ranks[:2]:
            where, text = _size_mismatch(rank, f"{odd.address}<{port(cluster)}>")
            steps = (("transport/net.cc:1035", "sendProxyProgress"), ("proxy.cc:698", "progressOps"))
            lines = [warn(rank, where, text, thread="proxy"), trail(rank, 5, *steps, thread="proxy")]
            failures[rank] = (lines, 5, text.split("\n")[0])
        yield from fail_ranks(cluster, failures)

    if cluster.v >= (2, 20):
        for host in cluster.hosts:
            host.network, host.ib = "Socket", "no-device"
    return Break("complete" if cluster.v < (2, 22) else "connected", phases)


def _size_mismatch(rank: Rank, peer: str) -> tuple[str, str]:
    """Returns (FILE:LINE, text) of the WARN for a message of another size than expected."""
    v, infiniband = rank.host.version, rank.host.network == "IB"
    if infiniband and v < (2, 12):
        return "transport/net_ib.cc:761", (
            f"NET/IB : peer {peer} collective mismatch error local size 65536 remote 131072 addr 7f21c8000000 "
            "rkey 1bc3f seq 21/21"
        )
    if infiniband and v < (2, 20):
        text = f"NET/IB : req 0/1 tag 7 peer {peer} collective mismatch error, local size 65536 remote size 131072"
        return "transport/net_ib.cc:1026", text
    text = f"NET/Socket : peer {peer} message truncated : receiving 131072 bytes instead of 65536"
    if v >= (2, 12, 10):
        healthy = "a healthy state" if v >= (2, 27) else "healthy state"
        gap = ", " if v >= (2, 27) else ", \n          "
        text += (
            f". If you believe your socket network is in {healthy}{gap}there may be a mismatch in collective "
            "sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks"
        )
    return "transport/net_socket.cc:469", text


@fault(
    "hca-set-mismatch-between-nodes",
    "One node lists fewer network cards than the others.",
    r"NET/IB : Using",
    _RDMA,
)
def _cards(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    if len(odd.hcas) == 1:
        for host in cluster.hosts:
            host.hcas.append(("mlx5_1", 1, host.hcas[0][2]))
    missing = len(odd.hcas) - 1
    del odd.hcas[missing]

    def phases() -> Iterator[Phase]:
        yield Phase(30.0)
        failures = {}
        v = cluster.v
        peer = cluster.other(odd)
        rank = peer.ranks[-1]
        if v >= (2, 30):
            few, many = len(odd.hcas), len(peer.hcas)
            for rank in [*odd.ranks, *peer.ranks]:
                text = (
                    f"Detected mixed local Net device counts across ranks (min {few}, max {many}). Set "
                    "NCCL_IGNORE_NET_MISMATCH=1 to continue."
                )
                failures[rank] = ([warn(rank, "init.cc:1187", text, "initTransportsRank")], 5, text)
            yield from fail_ranks(cluster, failures, "init")
            return
        lines, text = completion(cluster, rank, odd, 12, 129, device=missing)
        failures[rank] = (lines, remote_code(v), text)
        yield from fail_ranks(cluster, failures)

    return Break("start" if cluster.v >= (2, 30) else "complete" if cluster.v < (2, 22) else "connected", phases)
