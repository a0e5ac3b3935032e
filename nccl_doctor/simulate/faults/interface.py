"""Faults of the interface that NCCL announces to the other ranks, and of TCP between them."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import info, init_trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import fail_ranks, port, remote_code

_TWO = Needs(nodes=2)


def connect_failed(rank: Rank, where: str, why: str) -> tuple[list[str], int, str]:
    """Returns (lines, code, text of the WARN) of a rank that cannot connect; `where` is ADDRESS<PORT>, `why` errno's text."""
    v = rank.host.version
    lines, func = [], ""
    if v < (2, 10):
        file, text = "include/socket.h:390", f"Connect to {where} failed : {why}"
    elif v < (2, 16):
        file, text = "misc/socket.cc:379", f"Net : Connect to {where} failed : {why}"
    elif v < (2, 24):
        file, text = "misc/socket.cc:483", f"socketStartConnect: Connect to {where} failed : {why}"
    else:
        func = "ncclOsSocketPollConnect" if v >= (2, 29) else "socketPollConnect"
        file = "os/linux.cc:612" if v >= (2, 29) else "misc/socket.cc:542"
        to = f"connect to {where} returned" if v >= (2, 27) else "connect returned"
        for attempt in range(1, 4):
            lines.append(
                info(rank, f"{func}: {to} {why}, retrying ({attempt}/34) after sleep for {attempt * 100} msec")
            )
        if v >= (2, 27):
            text = f"{func}: {to} {why}, exceeded error retry count after 35 attempts"
        else:
            text = f"{func}: Connect to {where} failed : {why}"
    if v < (2, 24) and why in ("Connection refused", "Connection timed out"):
        lines += [info(rank, f"Call to connect returned {why}, retrying")] * 3
    code = remote_code(v) if v >= (2, 24) else 2
    lines.append(warn(rank, file, text, func))
    steps = (("misc/socket.cc:567", "ncclSocketConnect"), ("bootstrap.cc:279", "bootstrapInit"))
    lines.append(init_trail(rank, code, *steps))
    return lines, code, text


def unreachable(cluster: Cluster, target: Host, why: str, hosts: list[Host]) -> Break:
    """The ranks of `hosts` cannot connect to an address that `target` announced; the job ends in its rendezvous."""
    for host in cluster.hosts:
        host.rendezvous = False

    def phases() -> Iterator[Phase]:
        yield Phase(60.0)
        failures = {}
        for host in hosts:
            for rank in host.ranks[:4]:
                failures[rank] = connect_failed(rank, f"{target.address}<{port(cluster)}>", why)
        yield from fail_ranks(cluster, failures, "init")

    return Break("start", phases)


def _others(cluster: Cluster, host: Host) -> list[Host]:
    return [other for other in cluster.hosts if other is not host][:4]


@fault(
    "ifname-loopback-selected",
    "NCCL announces 127.0.0.1 to the other nodes because NCCL_SOCKET_IFNAME excludes only docker0.",
    r"Using (\[0\])?lo:127\.0\.0\.1",
    _TWO,
)
def _loopback(cluster: Cluster) -> Break:
    for host in cluster.hosts:
        host.interface, host.address = "lo", "127.0.0.1"
        host.env["NCCL_SOCKET_IFNAME"] = "^docker0"
    return unreachable(cluster, cluster.hosts[0], "Connection refused", cluster.hosts[1:5])


@fault(
    "link-local-interface-selected",
    "NCCL uses an interface that has only a link-local IPv6 address.",
    r"fe80::[0-9a-f:]+%\w+<",
    _TWO,
)
def _link_local(cluster: Cluster) -> Break:
    for host in cluster.hosts:
        host.interface = "ib1"
        host.address = f"fe80::{0x9600 + host.index:x}:6dff:fe{host.index:02x}:{0xA2C0 + host.index:x}%ib1"
    return unreachable(cluster, cluster.hosts[0], "Connection timed out", cluster.hosts[1:5])


@fault(
    "virtual-interface-selected",
    "One node announces the address of a bridge that exists only inside it.",
    r"Using (\[0\])?docker0:172\.17\.0\.1",
    _TWO,
)
def _virtual(cluster: Cluster) -> Break:
    host = cluster.victim.host
    host.interface, host.address = "docker0", "172.17.0.1"
    return unreachable(cluster, host, "No route to host", _others(cluster, host))


@fault(
    "ifname-not-found",
    "NCCL_SOCKET_IFNAME names an interface that one node does not have.",
    r"Bootstrap : no socket interface found",
)
def _not_found(cluster: Cluster) -> Break:
    host = cluster.victim.host
    host.env["NCCL_SOCKET_IFNAME"] = "ens102f9"
    host.bootstrap = False
    return Break("bootstrap", lambda: _no_interface(cluster, host))


def _no_interface(cluster: Cluster, host: Host) -> Iterator[Phase]:
    failures = {}
    for rank in host.ranks:
        text = "Bootstrap : no socket interface found"
        code = 5 if rank.host.version >= (2, 27) else 3 if rank.host.version >= (2, 16) else 2
        named = info(rank, f"NCCL_SOCKET_IFNAME set to {host.env['NCCL_SOCKET_IFNAME']}", "main")
        lines = [named, warn(rank, "bootstrap.cc:126", text, "bootstrapNetInit", "main")]
        failures[rank] = (lines, code, text)
    yield from fail_ranks(cluster, failures, "init")


@fault(
    "no-ip-interface",
    "One node has no interface with a usable IP address.",
    r"Socket creation failed : Address family not supported by protocol",
    Needs(until="2.23.4"),
)
def _no_ip(cluster: Cluster) -> Break:
    host = cluster.victim.host
    host.bootstrap = False

    def phases() -> Iterator[Phase]:
        failures = {}
        for rank in host.ranks:
            v = rank.host.version
            name = "ncclSocketInit" if v >= (2, 16) else "Net"
            text = f"{name} : Socket creation failed : Address family not supported by protocol".replace(
                "Init :", "Init:"
            )
            where = "misc/socket.cc:738" if v >= (2, 10) else "include/socket.h:371"
            lines = [warn(rank, where, text, thread="main"), info(rank, f"bootstrap.cc:208 -> {2}", "main")]
            failures[rank] = (lines, 2, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("bootstrap", phases)


@fault(
    "container-bridge-network",
    "The ranks run in containers on Docker's bridge and announce addresses that other hosts cannot reach.",
    r"eth0:172\.17\.0\.\d+<0>",
    _TWO,
)
def _bridge(cluster: Cluster) -> Break:
    for host in cluster.hosts:
        host.interface, host.address = "eth0", "172.17.0.2"
        host.name = f"{cluster.rng.getrandbits(48):012x}"
        for rank in host.ranks:
            rank.settle()
    return unreachable(cluster, cluster.hosts[0], "Connection refused", cluster.hosts[1:5])


@fault(
    "duplicate-ip-between-hosts",
    "Two nodes announce the same IP address.",
    r"Using .*:10\.\d+\.\d+\.\d+<0>",
    _TWO,
)
def _same_address(cluster: Cluster) -> Break:
    host = cluster.hosts[-1]
    host.address = cluster.hosts[0].address
    return unreachable(cluster, host, "Connection refused", [host])


@fault(
    "firewall-blocked",
    "A packet filter rejects TCP connections between the nodes.",
    r"No route to host",
    _TWO,
)
def _firewall(cluster: Cluster) -> Break:
    return unreachable(cluster, cluster.hosts[0], "No route to host", cluster.hosts[1:5])


@fault(
    "connection-refused",
    "No process listens at the announced address.",
    r"Connection refused",
    _TWO,
)
def _refused(cluster: Cluster) -> Break:
    host = cluster.victim.host
    return unreachable(cluster, host, "Connection refused", _others(cluster, host))


@fault(
    "connection-timeout",
    "TCP connections to one node time out.",
    r"Connection timed out",
    _TWO,
)
def _timeout(cluster: Cluster) -> Break:
    host = cluster.victim.host
    return unreachable(cluster, host, "Connection timed out", _others(cluster, host))


@fault(
    "foreign-tcp-connection",
    "A client that is not NCCL, here an HTTP scraper, connects to a port of a rank.",
    r"wrong magic 74656d2f20544547|magic mismatch \(peer 0x74656d2f20544547",
    Needs(since="2.18.3"),
)
def _foreign(cluster: Cluster) -> Break | None:
    rank, v = cluster.ranks[0], cluster.v
    magic = f"{cluster.rng.getrandbits(64) | 1 << 63:x}"
    who = f"10.0.0.9<{port(cluster)}>"
    if v >= (2, 30, 7):
        text = (
            f"socketFinalizeAccept from {who}: socket magic mismatch (peer 0x74656d2f20544547 != expected 0x{magic}), "
            "discarding peer connection"
        )
        cluster.add_after("start", rank, info(rank, text, "helper"))
        return None
    origin = f" from {who}" if v >= (2, 27) else ""
    text = f"socketFinalizeAccept{origin}: wrong magic 74656d2f20544547 != {magic}"
    line = warn(rank, "misc/socket.cc:598", text, "socketFinalizeAccept", "helper")
    if v >= (2, 27):
        cluster.add_after("start", rank, line)
        return None
    cluster.ranks[0].host.rendezvous = False
    steps = (("misc/socket.cc:660", "ncclSocketAccept"), ("bootstrap.cc:173", "bootstrapRoot"))

    def phases() -> Iterator[Phase]:
        yield from fail_ranks(cluster, {rank: ([line, init_trail(rank, 3, *steps)], 3, text)}, "init")

    return Break("start", phases)
