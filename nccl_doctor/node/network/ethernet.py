"""Network interfaces: their links, bonds, addresses and error counters, and the settings by which NCCL chooses among them."""

import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import BondMember, NetLink, NodeCounter, TaskSetting
from nccl_doctor.node.network import counters
from nccl_doctor.node.runtime.root import Absent, Root, fields
from nccl_doctor.node.software.variables import variables

TABLES = (NetLink, BondMember, NodeCounter, TaskSetting)
BASE = "/sys/class/net"
MOST = 128  # interfaces that are read; nodes of Kubernetes have hundreds of veth
_SETTINGS = (
    "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX",
    "NCCL_IB_TC", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_ADDR_FAMILY", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_DMABUF_ENABLE",
    "NCCL_TOPO_FILE", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_USE_HUGE_PAGE",
)  # fmt: skip
_LOOPBACK, _INFINIBAND = 772, 32  # ARPHRD numbers of if_arp.h
_MEMBER = re.compile(r"Slave Interface: (\S{1,30})")


def collect(root: Root) -> Iterator[Any]:
    """Rows of each interface except container ends of veth pairs, of bonds, counters and settings."""
    names = root.names(BASE)
    if not names:
        raise Absent(f"no interfaces in {BASE}")
    known = addresses(root)
    links = [link for name in names[: 8 * MOST] if (link := _link(root, name, known)) is not None][:MOST]
    for link in links:
        yield link
        if link.kind in ("physical", "bond"):
            yield from counters.collect(root, link.name, f"{BASE}/{link.name}/statistics", counters.INTERFACE)
            yield from counters.collect(root, link.name, f"{BASE}/{link.name}", ("carrier_changes",))
    for name in root.names("/proc/net/bonding"):
        yield from parse_bond(name, root.text(f"/proc/net/bonding/{name}") or "")
    for name, value in variables(root).items():
        if name in _SETTINGS:
            yield TaskSetting(None, name, value, Seen("environment of the task", f"{name}={value}"))


def _link(root: Root, name: str, known: dict[str, list[str]]) -> NetLink | None:
    folder = f"{BASE}/{name}"
    kind = _kind(root, folder, name)
    if kind is None:
        return None
    card = fields(root.text(f"{folder}/device/uevent") or "", "=")
    state = root.value(f"{folder}/operstate")
    speed = root.number(f"{folder}/speed")
    speed = speed if speed is not None and 0 < speed < 0xFFFFFFFF else None
    mtu = root.number(f"{folder}/mtu")
    carrier = root.number(f"{folder}/carrier")
    master = (root.target(f"{folder}/master") or "").rpartition("/")[2] or None
    own = " ".join(known.get(name, []))
    text = f"{name}: {kind} state={state} carrier={carrier} speed={speed} mtu={mtu} {own}".rstrip()
    devices = root.names(f"{folder}/device/infiniband")
    return NetLink(
        host=None, name=name, kind=kind, state=state, carrier=carrier, speed=speed, mtu=mtu,
        driver=card.get("DRIVER"), master=master, device=devices[0] if devices else None,
        pci=card.get("PCI_SLOT_NAME"), addresses=own, ref=Seen(folder, text),
    )  # fmt: skip


def _kind(root: Root, folder: str, name: str) -> str | None:
    """What an interface is; None for veth pairs and other interfaces of containers."""
    if root.exists(f"{folder}/device"):
        return "ipoib" if root.number(f"{folder}/type") == _INFINIBAND else "physical"
    if root.exists(f"{folder}/bonding"):
        return "bond"
    if root.exists(f"{folder}/bridge"):
        return "bridge"
    if root.number(f"{folder}/type") == _LOOPBACK:
        return "loopback"
    if "DEVTYPE=vlan" in (root.text(f"{folder}/uevent") or ""):
        return "vlan"
    return "virtual" if re.match(r"eth\d|en[ops]|ib\d|net\d", name) else None


def addresses(root: Root) -> dict[str, list[str]]:
    """Interface -> its addresses with their prefix, without link-local ones: from `ip`, else from /proc/net."""
    output = root.run("ip", "-j", "addr")
    if output is not None and output.status == 0:
        parsed = parse_addresses(output.text)
        if parsed:
            return parsed
    return from_routes(root.text("/proc/net/fib_trie") or "", root.text("/proc/net/route") or "")


def parse_addresses(text: str) -> dict[str, list[str]]:
    """What `ip -j addr` prints."""
    rows: dict[str, list[str]] = defaultdict(list)
    try:
        interfaces = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    for one in interfaces if isinstance(interfaces, list) else []:
        for entry in (one.get("addr_info") or []) if isinstance(one, dict) else []:
            if isinstance(entry, dict) and entry.get("scope") != "link" and entry.get("local"):
                rows[str(one.get("ifname"))].append(f"{entry['local']}/{entry.get('prefixlen')}")
    return dict(rows)


def from_routes(trie: str, routes: str) -> dict[str, list[str]]:
    """Own IPv4 addresses (fib_trie) given to the interface of the subnet (route) that holds them, where only one does."""
    subnets: list[tuple[ipaddress.IPv4Network, str]] = []
    for line in routes.splitlines()[1:]:
        parts = line.split()
        try:
            if int(parts[2], 16) == 0 and int(parts[7], 16):
                target, mask = (_little_endian(parts[index]) for index in (1, 7))
                subnets.append((ipaddress.IPv4Network(f"{target}/{mask}"), parts[0]))
        except (IndexError, ValueError):
            continue
    rows: dict[str, list[str]] = defaultdict(list)
    for text in dict.fromkeys(re.findall(r"\|-- (\d[\d.]{6,14})\n\s+/32 host LOCAL", trie)):
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        holders = {(name, net.prefixlen) for net, name in subnets if address in net}
        if len(holders) == 1:
            name, prefix = holders.pop()
            rows[name].append(f"{address}/{prefix}")
    return dict(rows)


def _little_endian(text: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(text), "little"))


def parse_bond(bond: str, text: str) -> Iterator[BondMember]:
    """The members of a bond, from /proc/net/bonding/NAME."""
    mode = fields(text).get("Bonding Mode")
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _MEMBER.match(line)]
    for start, end in pairwise([*starts, len(lines)]):
        properties = fields("\n".join(lines[start:end]))
        speed = re.match(r"(\d{1,7}) Mbps", properties.get("Speed", ""))
        aggregator = properties.get("Aggregator ID", "")
        status = properties.get("MII Status")
        seen = Seen(f"/proc/net/bonding/{bond}", f"{lines[start].strip()}, MII Status: {status}", start + 1)
        yield BondMember(
            None, bond, mode, properties["Slave Interface"], status, int(speed[1]) if speed else None,
            int(aggregator) if aggregator.isdecimal() and len(aggregator) < 9 else None, seen,
        )  # fmt: skip
