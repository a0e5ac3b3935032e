"""Faults of InfiniBand and RoCE: addresses, fabric, cards and GPU Direct."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import init_trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import completion, fail_ranks, gid, neighbours_fail, remote_code

_IB = Needs(nodes=2, networks=("ib",))
_ROCE = Needs(nodes=2, networks=("roce",))
_RDMA = Needs(nodes=2, networks=("ib", "roce"))
_ERRNO = {"Connection timed out": 110, "Invalid argument": 22, "No such device": 19}


def _connected(cluster: Cluster) -> str:
    """The stage after which data first moves between nodes."""
    return "complete" if cluster.v < (2, 22) else "connected"


def _pairs(cluster: Cluster) -> list[tuple[Rank, Host]]:
    """The ranks that complain, with their peers."""
    return [(rank, cluster.other(host)) for host in cluster.hosts[:4] for rank in host.ranks[:2]]


def _modify_qp(
    rank: Rank, peer: Host, why: str, index: int, gids: tuple[str, str], device: int = 0
) -> tuple[list[str], int, str]:
    """(lines, code, text of the WARN) of a queue pair that cannot be connected."""
    v = rank.host.version
    name, number, _ = rank.host.hcas[device % len(rank.host.hcas)]
    if v < (2, 19):
        text = f"Call to ibv_modify_qp failed with error {why}"
    elif v < (2, 24):
        text = f"Call to ibv_modify_qp failed with error {why} errno {_ERRNO[why]}"
    else:
        text = (
            f"Call to ibv_modify_qp failed with {_ERRNO[why]} {why}, on dev {name}:{number}, curr state INIT, next state RTR, "
            f"local GID index {index}, local GID {gids[0]}, remote GID {gids[1]}"
        )
    steps = (("transport/net_ib.cc:871", "ncclIbRtrQp"), ("transport/net.cc:737", "sendProxyConnect"))
    if v >= (2, 29):
        steps = (("transport/net_ib/connect.cc:871", "ncclIbRtrQp"), steps[1])
    lines = [warn(rank, "misc/ibvwrap.cc:284", text, "wrap_ibv_modify_qp", "proxy"), init_trail(rank, 2, *steps)]
    return lines, 2, text


@fault(
    "gid-index-wrong",
    "NCCL_IB_GID_INDEX points to a GID that the RoCE network does not route.",
    r"ibv_modify_qp failed with .*Connection timed out",
    _ROCE,
)
def _gid_index(cluster: Cluster) -> Break:
    for host in cluster.hosts:
        host.env["NCCL_IB_GID_INDEX"] = "0"

    def link_local(host: Host) -> str:
        return f"fe80::a288:c2ff:fe{host.index:02x}:{0x1A40 + host.index:x}"

    def phases() -> Iterator[Phase]:
        yield Phase(8.0)
        pairs = _pairs(cluster)
        failures = {
            rank: _modify_qp(rank, peer, "Connection timed out", 0, (link_local(rank.host), link_local(peer)))
            for rank, peer in pairs
        }
        yield from fail_ranks(cluster, failures, "init")

    return Break("connect", phases)


def _retry_exceeded(cluster: Cluster, shift: int) -> Break:
    """Completions with status 12; the remote GID is that of the device `shift` places on."""

    def phases() -> Iterator[Phase]:
        yield Phase(30.0)
        failures = {}
        for rank, peer in _pairs(cluster):
            pair = (gid(rank.host, rank.local), gid(peer, rank.local + shift))
            lines, text = completion(cluster, rank, peer, 12, 129, pair, rank.local)
            failures[rank] = (lines, remote_code(cluster.v), text)
        yield from fail_ranks(cluster, failures)

    return Break(_connected(cluster), phases)


@fault(
    "cross-rail-unreachable",
    "Network cards of different rails have no route to each other.",
    r"status=\S*12\b.*localGid|error 12,.*localGid|ibv_modify_qp failed with 110",
    Needs(nodes=2, gpus=2, since="2.18.3", networks=("roce",)),
)
def _cross_rail(cluster: Cluster) -> Break:
    if cluster.v < (2, 24):
        return _retry_exceeded(cluster, 1)

    def phases() -> Iterator[Phase]:
        yield Phase(8.0)
        failures = {}
        for rank, peer in _pairs(cluster):
            pair = (gid(rank.host, rank.local), gid(peer, rank.local + 1))
            failures[rank] = _modify_qp(rank, peer, "Connection timed out", 3, pair, rank.local)
        yield from fail_ranks(cluster, failures)

    return Break("connect", phases)


@fault(
    "ib-fabric-unreachable",
    "InfiniBand ports of two nodes cannot reach each other.",
    r"Got completion .*(error 12|status=\S*12\b)",
    _IB,
)
def _fabric(cluster: Cluster) -> Break:
    return _retry_exceeded(cluster, 0)


@fault(
    "roce-unreachable",
    "RoCE packets between two nodes are lost though their addresses are right.",
    r"Got completion .*(error 12|status=\S*12\b)",
    _ROCE,
)
def _roce(cluster: Cluster) -> Break:
    return _retry_exceeded(cluster, 0)


@fault(
    "ib-roce-mixed-hcas",
    "The nodes have InfiniBand and Ethernet ports and NCCL pairs one with the other.",
    r"Using .*/IB .*/RoCE",
    _RDMA,
)
def _mixed_links(cluster: Cluster) -> Break:
    for host in cluster.hosts:
        host.hcas = [("mlx5_0", 1, "IB"), ("mlx5_1", 1, "IB"), ("mlx5_2", 1, "RoCE")]

    def phases() -> Iterator[Phase]:
        failures = {}
        v = cluster.v
        for rank, peer in _pairs(cluster):
            if v < (2, 24):
                failures[rank] = _modify_qp(rank, peer, "Invalid argument", 0, ("", ""))
                continue
            if v < (2, 26):
                text = "NET/IB : Can't connect net devices with different link_layer. i=0 remMeta.ndevs=1 link_layer=1 rem_link_layer=2"
            else:
                text = (
                    "NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [2]mlx5_2:1/RoCE. "
                    "Try selecting NICs of only one link type using NCCL_IB_HCA"
                )
            file = "transport/net_ib/connect.cc:702" if v >= (2, 29) else "transport/net_ib.cc:1402"
            lines = [warn(rank, file, text, "ncclIbConnect", "proxy"), init_trail(rank, 3, (file, "ncclIbConnect"))]
            failures[rank] = (lines, 3, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("connect", phases)


@fault(
    "roce-hca-unusable-in-container",
    "The RoCE address of a card is not in the container's network namespace.",
    r"ibv_modify_qp failed with .*No such device",
    _ROCE,
)
def _namespace(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        failures = {
            rank: _modify_qp(rank, peer, "No such device", 3, (gid(rank.host, 0), gid(peer, 0)))
            for rank, peer in _pairs(cluster)
        }
        yield from fail_ranks(cluster, failures, "init")

    return Break("connect", phases)


@fault(
    "gdr-disabled-peermem",
    "GPU Direct RDMA is off on one node, because the peer memory module is not loaded.",
    r"GPU Direct RDMA Disabled for",
    Needs(networks=("ib", "roce")),
)
def _peermem(cluster: Cluster) -> None:
    cluster.net_debug = True
    cluster.victim.host.peermem = False
    cluster.slow = 1.7


@fault(
    "gdr-acs-error",
    "PCI access control services redirect the card's access to GPU memory.",
    r"Got completion .*(error 4,|status=\S*4\b).*vendor[ _]err[ =]81",
    _RDMA,
)
def _acs(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        failures = {}
        for rank, peer in _pairs(cluster):
            lines, text = completion(cluster, rank, peer, 4, 81, device=rank.local)
            more, _ = completion(cluster, rank, peer, 5, 249, device=rank.local)
            failures[rank] = (lines + more[:1], remote_code(cluster.v), text)
        yield from fail_ranks(cluster, failures)

    return Break(_connected(cluster), phases)


def _event(rank: Rank, event: str, number: int, fatal: bool) -> str:
    """WARN of the thread that watches a card."""
    v = rank.host.version
    name, port, _ = rank.host.hcas[rank.local % len(rank.host.hcas)]
    if v < (2, 20):
        text = f"NET/IB : Got async event : {event}"
    elif v < (2, 23):
        text = f"NET/IB : {name}:{port} Got async event : {event}"
    elif fatal:
        text = f"NET/IB : {name}:{port} async fatal event: {event}"
    elif v < (2, 28, 7):
        text = f"NET/IB : {name}:{port} Got async error event: {event}"
    else:
        text = f"NET/IB : {name}:{port} Got non-fatal async event: {event}({number})"
    file = "transport/net_ib/common.cc:62" if v >= (2, 29) else "transport/net_ib.cc:93"
    return warn(rank, file, text, "ncclIbAsyncThreadMain", "helper")


def _card_fails(cluster: Cluster, event: str, number: int, fatal: bool) -> Break:
    host = cluster.victim.host

    def phases() -> Iterator[Phase]:
        phase = Phase(1.0)
        for rank in host.ranks:
            phase.add(rank, _event(rank, event, number, fatal))
        yield phase
        yield from neighbours_fail(cluster, host)

    return Break("train", phases)


@fault("ib-link-flapping", "The network port of one node went down while the job ran.", r"port error", _RDMA)
def _flap(cluster: Cluster) -> Break:
    return _card_fails(cluster, "port error", 10, False)


@fault("hca-hardware-error", "A network card or its driver died.", r"local catastrophic error", _RDMA)
def _card(cluster: Cluster) -> Break:
    return _card_fails(cluster, "local catastrophic error", 8, True)


@fault(
    "dmabuf-unsupported",
    "The driver of the network card cannot register GPU memory by DMA-BUF.",
    r"ibv_reg_dmabuf_mr failed with error Operation not supported",
    Needs(nodes=2, since="2.14.3", networks=("ib", "roce")),
)
def _dmabuf(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        failures = {}
        errno = " errno 95" if cluster.v >= (2, 19) else ""
        text = f"Call to ibv_reg_dmabuf_mr failed with error Operation not supported{errno}"
        steps = (("transport/net_ib.cc:1048", "ncclIbRegMrDmaBuf"), ("transport/net.cc:745", "sendProxyConnect"))
        for rank, _ in _pairs(cluster):
            lines = [
                warn(rank, "misc/ibvwrap.cc:288", text, "wrap_ibv_reg_dmabuf_mr", "proxy"),
                init_trail(rank, 2, *steps),
            ]
            failures[rank] = (lines, 2, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("connect", phases)
