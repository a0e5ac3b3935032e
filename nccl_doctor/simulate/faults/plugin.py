"""Faults that decide which network is used: verbs library, devices, filters and plug-ins."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import fail_ranks, remote_code
from nccl_doctor.simulate.startup import ofi

_RDMA = Needs(nodes=2, networks=("ib", "roce"))
_FORCED = Needs(nodes=2, networks=("ib", "roce"), since="2.10.3")  # NCCL_NET; before it the log always says why
_EFA = Needs(nodes=2, networks=("efa",))


def _to_sockets(cluster: Cluster, hosts: list[Host], ib: str) -> None:
    """These hosts use TCP; `ib` says why."""
    for host in hosts:
        host.ib, host.network = ib, "Socket"
    cluster.slow = 9.0


@fault(
    "tcp-fallback",
    "Traffic between nodes uses TCP sockets though the nodes have RDMA cards; the log does not say why.",
    r"via NET/Socket",
    _FORCED,
)
def _tcp(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "disabled")
    for host in cluster.hosts:
        host.interface = "ib0"


@fault(
    "tcp-forced-by-env",
    "NCCL_NET=Socket on nodes that have RDMA cards.",
    r"NCCL_NET set by environment to Socket",
    _FORCED,
)
def _tcp_by_setting(cluster: Cluster) -> None:
    _tcp(cluster)
    for host in cluster.hosts:
        host.env["NCCL_NET"] = "Socket"


@fault(
    "libibverbs-missing",
    "libibverbs cannot be loaded, so NCCL sees no RDMA card.",
    r"Failed to open libibverbs\.so\[\.1\]|Count not open libibverbs",
    _RDMA,
)
def _no_library(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "no-library")


@fault("no-ib-device", "The verbs library is there but no usable RDMA card.", r"NET/IB : No device found", _RDMA)
def _no_device(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "no-device")


@fault(
    "container-missing-rdma-device",
    "The container does not have the device files of the RDMA cards.",
    r"Unable to open device mlx5_0",
    _RDMA,
)
def _not_in_container(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "open-failed")


@fault(
    "ib-hca-filter-no-match",
    "NCCL_IB_HCA names no card of the nodes.",
    r"NCCL_IB_HCA set to mlx4_0",
    _RDMA,
)
def _filter(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "no-device")
    for host in cluster.hosts:
        host.env["NCCL_IB_HCA"] = "mlx4_0"


@fault(
    "ib-disabled-by-env",
    "NCCL_IB_DISABLE=1 switches the RDMA cards off.",
    r"NCCL_IB_DISABLE set by environment to 1\.",
    _RDMA,
)
def _disabled(cluster: Cluster) -> None:
    _to_sockets(cluster, cluster.hosts, "disabled")
    for host in cluster.hosts:
        host.env["NCCL_IB_DISABLE"] = "1"


@fault(
    "net-plugin-load-failed",
    "The network plug-in is there but cannot be loaded.",
    r"IBVERBS_PRIVATE_34",
    Needs(nodes=2, networks=("ib", "roce", "efa")),
)
def _broken_plugin(cluster: Cluster) -> None:
    for host in cluster.hosts:
        host.plugin = (
            "/usr/lib/x86_64-linux-gnu/libibverbs.so.1: version `IBVERBS_PRIVATE_34' not found "
            "(required by /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so)"
        )
    if cluster.spec.network == "efa":
        _to_sockets(cluster, cluster.hosts, "no-device")


@fault(
    "ofi-no-provider",
    "libfabric offers no provider that the plug-in can use.",
    r"Couldn't find any optimal provider|fi_getinfo\(\) call failed|No eligible providers were found",
    _EFA,
)
def _no_provider(cluster: Cluster) -> None:
    _without_provider(cluster, "Function not implemented")


@fault(
    "efa-device-missing",
    "The container has no EFA device, so libfabric finds no data.",
    r"fi_getinfo\(\) call failed: No data available",
    Needs(nodes=2, networks=("efa",), since="2.18.3"),
)
def _no_efa_device(cluster: Cluster) -> None:
    _without_provider(cluster, "No data available")


def _without_provider(cluster: Cluster, error: str) -> None:
    v = cluster.v
    lines = [("", text) for text in ofi(cluster, v)[:-1]]
    if v < (2, 18):
        lines.append(("find_ofi_provider:543", "Couldn't find any optimal provider"))
    else:
        lines.append(("nccl_net_ofi_rdma_init:7978", f"OFI fi_getinfo() call failed: {error}"))
        if v >= (2, 23):
            lines.append(("", "No eligible providers were found"))
        signature = (
            "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**)" if v >= (2, 27) else "nccl_net_ofi_create_plugin"
        )
        lines.append((f"{signature}:259", "Unable to find a protocol that worked.  Failing initialization."))
    _to_sockets(cluster, cluster.hosts, "no-device")
    for host in cluster.hosts:
        host.plugin_lines = lines


@fault(
    "ofi-wrong-provider",
    "libfabric offers only its TCP provider on a machine with EFA.",
    r"Selected [Pp]rovider is tcp",
    _EFA,
)
def _wrong_provider(cluster: Cluster) -> None:
    v = cluster.v
    last = {True: "Selected Provider is tcp", False: "Selected Provider is tcp (found 1 nics)"}[v < (2, 18)]
    if v >= (2, 23):
        last = "Selected provider is tcp, fabric is 10.0.0.0/16 (found 1 nics)"
    usual = [
        text.replace("RDMA", "SENDRECV") for text in ofi(cluster, v)[:-1] if not text.startswith("Setting provider")
    ]
    for host in cluster.hosts:
        host.plugin_lines = [("", text) for text in [*usual, last]]
        host.peermem = False
    cluster.slow = 7.0


@fault(
    "efa-security-group",
    "The security group drops EFA packets between the instances.",
    r"NET/OFI Request \S+ (\(\w+\) )?completed with error",
    _EFA,
)
def _security_group(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        yield Phase(45.0)
        failures = {}
        v = cluster.v
        for host in cluster.hosts[:4]:
            rank = host.ranks[0]
            request = f"0x7f{cluster.rng.getrandbits(40):010x}"
            if v < (2, 18):
                error = "RC: 20. Error: unknown error. Completed length: 0"
            else:
                error = (
                    "RC: 4115. Error: 4115 (Unresponsive receiver (reachable by EFA device but handshake failed)). "
                    "Completed length: 0"
                )
            state = "{ buffer_index: 255, dev: 1, size: 0, state: CREATED, direction: SEND }"
            text = f"NET/OFI Request {request} completed with error. {error}, Request: {state}"
            where = "ofi_process_cq:1039" if v < (2, 18) else "process_err_completion:812"
            steps = (("transport/net.cc:1165", "sendProxyProgress"), ("proxy.cc:698", "progressOps"))
            code = remote_code(v)
            lines = [warn(rank, where, text, thread="proxy"), trail(rank, code, *steps, thread="proxy")]
            failures[rank] = (lines, code, text)
        yield from fail_ranks(cluster, failures)

    return Break("complete" if cluster.v < (2, 22) else "connected", phases)
