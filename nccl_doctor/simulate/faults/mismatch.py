"""Faults where the nodes of one job are not alike."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import info, init_trail, trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import completion, errors, port, remote_code
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

    def tell() -> Iterator[Phase]:
        told = {}
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
                told[rank] = (lines, 5, text)
                continue
            if v >= (2, 10):
                name = "ncclSocketInit" if v >= (2, 16) else "Net "
                text = f"{name}: connecting to address  with family 33621 is neither AF_INET(2) nor AF_INET6(10)"
                where = "misc/socket.cc:717"
            else:
                text, where = "Message truncated : received 336 bytes instead of 328", "bootstrap.cc:117"
            steps = (("bootstrap.cc:283", "bootstrapInit"),)
            told[rank] = ([warn(rank, where, text), init_trail(rank, 3, *steps)], 3, text)
        yield from errors(cluster, told, "init")

    return Break("start", tell)


@fault(
    "mixed-network-between-nodes",
    "One node uses TCP sockets and the others RDMA, so they cannot connect.",
    r"NET/Socket : Using",
    _RDMA,
)
def _mixed(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    odd.network, odd.ib = "Socket", "no-device"

    def tell() -> Iterator[Phase]:
        told = {}
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
                    phase.say(rank, info(rank, text, "proxy"))
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
            told[rank] = ([first, init_trail(rank, 3, *steps)], 3, text)
        if told:
            yield from errors(cluster, told, "init")

    return Break("connect", tell)


@fault(
    "env-differs-between-nodes",
    "An NCCL variable is set on one node only.",
    r"NCCL_BUFFSIZE set by environment to 1048576\.",
    Needs(nodes=2),
)
def _env(cluster: Cluster) -> None:
    for rank in _odd(cluster).ranks:
        cluster.aside("start", rank, info(rank, "NCCL_BUFFSIZE set by environment to 1048576."))


@fault(
    "rank-env-mismatch",
    "NCCL_ALGO differs between nodes, so ranks send other sizes than their peers expect.",
    r"collective mismatch error|message truncated : receiving",
    Needs(nodes=2, since="2.10.3"),
)
def _algo(cluster: Cluster) -> Break:
    odd = _odd(cluster)
    for rank in odd.ranks:
        cluster.aside("start", rank, info(rank, "NCCL_ALGO set by environment to Tree"))

    def tell() -> Iterator[Phase]:
        told = {}
        for rank in cluster.other(odd).ranks[:2]:
            v = rank.host.version
            peer = f"{odd.address}<{port(cluster)}>"
            if rank.host.network == "IB" and v < (2, 12):
                text = (
                    f"NET/IB : peer {peer} collective mismatch error local size 65536 remote 131072 addr 7f21c8000000 "
                    "rkey 1bc3f seq 21/21"
                )
                where = "transport/net_ib.cc:761"
            elif rank.host.network == "IB" and v < (2, 20):
                text = (
                    f"NET/IB : req 0/1 tag 7 peer {peer} collective mismatch error, local size 65536 remote size 131072"
                )
                where = "transport/net_ib.cc:1026"
            else:
                healthy = "a healthy state" if v >= (2, 27) else "healthy state"
                text = f"NET/Socket : peer {peer} message truncated : receiving 131072 bytes instead of 65536"
                if v >= (2, 12, 10):
                    gap = ", " if v >= (2, 27) else ", \n          "
                    text += (
                        f". If you believe your socket network is in {healthy}{gap}there may be a mismatch in collective "
                        "sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks"
                    )
                where = "transport/net_socket.cc:469"
            steps = (("transport/net.cc:1035", "sendProxyProgress"), ("proxy.cc:698", "progressOps"))
            told[rank] = (
                [warn(rank, where, text, thread="proxy"), trail(rank, 5, *steps, thread="proxy")],
                5,
                text.split("\n")[0],
            )
        yield from errors(cluster, told)

    if cluster.v >= (2, 20):
        for host in cluster.hosts:
            host.network, host.ib = "Socket", "no-device"
    return Break("complete" if cluster.v < (2, 22) else "connected", tell)


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

    def tell() -> Iterator[Phase]:
        yield Phase(30.0)
        told = {}
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
                told[rank] = ([warn(rank, "init.cc:1187", text, "initTransportsRank")], 5, text)
            yield from errors(cluster, told, "init")
            return
        lines, text = completion(cluster, rank, odd, 12, 129, device=missing)
        told[rank] = (lines, remote_code(v), text)
        yield from errors(cluster, told)

    return Break("start" if cluster.v >= (2, 30) else "complete" if cluster.v < (2, 22) else "connected", tell)
