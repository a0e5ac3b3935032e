"""Which interfaces TCP of a job may pick, and what the node's own name leads to."""

import ipaddress
import re
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import HostName, NodeInterface, NodeRoute
from nccl_doctor.node.runtime import children
from nccl_doctor.node.runtime.root import Root

MOST = 64  # interfaces; a node full of pods has hundreds of veth
_VIRTUAL = re.compile(
    r"(?:docker|br-|virbr|vnet|veth|cni|podman|lxc|lxdbr|cilium|flannel|cali|kube-|nodelocaldns|tun|tap|wg|tailscale|zt|vmnet)"
)
_PORT = re.compile(r"(?:veth|cali|lxc[0-9a-f]{6}|vnet|tap)")  # interfaces of pods and guests
_UP = 1  # RTF_UP


class Route(NamedTuple):
    """A line of the routing table."""

    interface: str
    subnet: str
    gateway: str | None
    metric: int
    line: int


def parse_routes(text: str) -> Iterator[Route]:
    """/proc/net/route: addresses are hexadecimal, in the byte order of the machine."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) < 8 or words[0] == "Iface":
            continue
        try:
            destination, gateway, mask = (_address(words[i]) for i in (1, 2, 7))
            if int(words[3], 16) & _UP:
                network = ipaddress.ip_network(f"{destination}/{mask}", strict=False)
                yield Route(words[0], str(network), None if int(gateway) == 0 else str(gateway), int(words[6]), number)
        except ValueError:
            continue


def _address(text: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(text.zfill(8)), "little"))


def collect(root: Root) -> Iterator[NodeRoute | NodeInterface]:
    path = "/proc/net/route"
    text = root.text(path)
    routes = list(parse_routes(text or ""))
    for route in routes:
        seen = Seen(path, f"{route.interface} {route.subnet} via {route.gateway or '-'}", route.line)
        yield NodeRoute(None, route.interface, route.subnet, route.gateway, route.metric, seen)
    for number, line in enumerate((root.text("/proc/net/ipv6_route") or "").splitlines(), 1):
        words = line.split()
        if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
            seen = Seen("/proc/net/ipv6_route", f"{words[9]} ::/0", number)
            yield NodeRoute(None, words[9], "::/0", None, 0, seen)
    yield from _interfaces(root, routes)


def parse_devices(text: str) -> list[str]:
    """Names in /proc/net/dev, in the order of the kernel."""
    return re.findall(r"^[ \t]*([^\s:|]{1,15}):", text, re.MULTILINE)


def _interfaces(root: Root, routes: list[Route]) -> Iterator[NodeInterface]:
    base = "/proc/sys/net/ipv4/conf"
    every = root.number(f"{base}/all/rp_filter")
    names = [name for name in parse_devices(root.text("/proc/net/dev") or "") if name != "lo" and not _PORT.match(name)]
    for position, name in enumerate(names[:MOST]):
        state = root.value(f"/sys/class/net/{name}/operstate")
        own = root.number(f"{base}/{name}/rp_filter")
        filters = [value for value in (every, own) if value is not None]
        subnets = " ".join(
            dict.fromkeys(
                r.subnet for r in routes if r.interface == name and r.gateway is None and not r.subnet.endswith("/0")
            )
        )
        yield NodeInterface(
            None, name, position, None if state is None else int(state in ("up", "unknown")),
            int(bool(_VIRTUAL.match(name))), subnets, _stricter(filters),
            Seen("/proc/net/dev", f"{name} state={state} subnets={subnets or '-'} rp_filter={own}"),
        )  # fmt: skip


def _stricter(filters: list[int]) -> int | None:
    """The kernel takes the larger of both values; 2 is loose, 1 strict."""
    return max(filters) if filters else None


def read_name(root: Root) -> Iterator[HostName]:
    """One row: the live node is asked with a deadline, of a tree /etc/hosts is read."""
    kept = root.asked("hostname", _ask)
    if not isinstance(kept, dict) or "name" not in kept:
        name = root.value("/proc/sys/kernel/hostname")
        text = root.text("/etc/hosts")
        if name is None or text is None:
            return
        addresses = lookup(text, name)
        if not addresses:  # DNS may know it
            return
        kept = {"name": name, "addresses": addresses}
    addresses = [str(address) for address in kept.get("addresses") or []]
    error = kept.get("error")
    seen = Seen("hostname", f"{kept['name']}: {' '.join(addresses) or error or 'no address'}")
    yield HostName(
        None, str(kept["name"]), " ".join(addresses), int(bool(addresses) and all(map(_loops, addresses))), error,
        kept.get("seconds"), seen,
    )  # fmt: skip


def lookup(hosts: str, name: str) -> list[str]:
    """Addresses of a name in the text of /etc/hosts."""
    rows = []
    for line in hosts.splitlines():
        words = line.partition("#")[0].split()
        if name in words[1:]:
            rows.append(words[0])
    return rows


def _loops(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _ask(seconds: float = 1.5) -> dict[str, Any]:
    """getaddrinfo in a child: a dead name server blocks it for many seconds."""
    name = socket.gethostname()
    started = time.monotonic()
    try:
        parsed = children.ask(lambda: _resolve(name), seconds)
    except OSError as error:  # a time-out is one too
        parsed = {"error": str(error)}
    return {"name": name, **parsed, "seconds": round(time.monotonic() - started, 4)}


def _resolve(name: str) -> dict[str, Any]:
    try:
        parsed = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"addresses": [], "error": str(error.strerror or error)}
    return {"addresses": list(dict.fromkeys(str(entry[4][0]) for entry in parsed))[:16]}
