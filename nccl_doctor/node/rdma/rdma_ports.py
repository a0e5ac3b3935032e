"""Ports of RDMA devices: state, rate, addresses."""

import ipaddress
import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import IbPort, NodeCounter, RdmaGid
from nccl_doctor.node.network import counters
from nccl_doctor.node.runtime.root import Root

BASE = "/sys/class/infiniband"
_STATES = {"INIT": "Initializing", "ACTIVE_DEFER": "Active_defer"}
_RATE = re.compile(r"(\d{1,6}(?:\.\d{0,3})?) Gb/sec(?: \((\d{1,2})X ?(\w{0,4})\))?")
_KEYS = 16  # partition keys that are read; a subnet manager fills the table from its start
_EMPTY = 16  # empty places in a row after which the rest of the table of GIDs is taken for empty


class Rate(NamedTuple):
    """The fields of the file `rate`."""

    gbps: float | None
    lanes: int | None
    speed: str | None  # NDR


def ports(root: Root, device: str) -> list[int]:
    """The numbers of its ports."""
    return sorted(int(name) for name in root.names(f"{BASE}/{device}/ports") if name.isdecimal() and len(name) < 4)


def state(text: str | None) -> str:
    """`4: ACTIVE` -> Active; empty where it cannot be read."""
    word = (text or "").rpartition(":")[2].strip().upper()
    return _STATES.get(word, word.capitalize())


def physical(text: str | None) -> str | None:
    """`5: LinkUp` -> LinkUp."""
    return (text or "").rpartition(":")[2].strip() or None


def rate(text: str | None) -> Rate:
    """`400 Gb/sec (4X NDR)` -> 400, 4, NDR."""
    match = _RATE.match(text or "")
    try:
        return (
            Rate(float(match[1]), int(match[2]) if match[2] else None, match[3] or None)
            if match
            else Rate(None, None, None)
        )
    except ValueError:
        return Rate(None, None, None)


def layer(root: Root, device: str, port: int) -> str | None:
    """InfiniBand, Ethernet; the first line, because a faulty driver prints two."""
    return (root.value(f"{BASE}/{device}/ports/{port}/link_layer") or "").partition("\n")[0].strip() or None


def collect(root: Root, device: str, port: int, kind: str) -> Iterator[IbPort | NodeCounter | RdmaGid]:
    """Rows of one port; `kind` is that of the device."""
    folder = f"{BASE}/{device}/ports/{port}"
    rows = {name: root.value(f"{folder}/{name}") for name in ("state", "phys_state", "rate", "link_layer")}
    speed = rate(rows["rate"])
    text = " ".join(f"{name}={value}" for name, value in rows.items() if value is not None)
    lid = sm_lid = keys = None
    if kind == "ib":
        lid, sm_lid, keys = root.number(f"{folder}/lid"), root.number(f"{folder}/sm_lid"), _partitions(root, folder)
        text += f" lid={lid} sm_lid={sm_lid}"
    yield IbPort(
        host=None, file=BASE, hca=device, port=port, state=state(rows["state"]),
        physical=physical(rows["phys_state"]), rate=speed.gbps, link_layer=layer(root, device, port),
        lanes=speed.lanes, speed=speed.speed, lid=lid, sm_lid=sm_lid, partitions=keys, mtu=None,
        ref=Seen(folder, text),
    )  # fmt: skip
    if kind == "roce":
        yield from _gids(root, device, port, folder)
    name = f"{device}/{port}"
    if kind == "efa":
        yield from counters.collect(root, name, f"{folder}/hw_counters", counters.EFA_PORT)
    else:
        yield from counters.collect(root, name, f"{folder}/counters", counters.PORT)
        yield from counters.collect(root, name, f"{folder}/hw_counters", counters.PORT_HARDWARE)


def _partitions(root: Root, folder: str) -> int | None:
    """Keys with full membership (the highest bit); None where the table cannot be read."""
    keys = [key for number in range(_KEYS) if (key := root.number(f"{folder}/pkeys/{number}")) is not None]
    return sum(bool(key & 0x8000) for key in keys) if keys else None


def _gids(root: Root, device: str, port: int, folder: str) -> Iterator[RdmaGid]:
    empty = 0
    names = sorted(int(name) for name in root.names(f"{folder}/gids") if name.isdecimal() and len(name) < 5)
    for number in names:
        gid = parse_gid(root.value(f"{folder}/gids/{number}"))
        if gid is None:
            empty += 1
            if empty >= _EMPTY:
                return
            continue
        empty = 0
        kind = root.value(f"{folder}/gid_attrs/types/{number}")
        interface = root.value(f"{folder}/gid_attrs/ndevs/{number}")
        address = str(gid.ipv4_mapped) if gid.ipv4_mapped else None
        scope = "ipv4" if address else "link-local" if gid.is_link_local else "global"
        text = f"GID {number} {address or gid} {kind or '(type not readable)'} {interface or ''}".rstrip()
        yield RdmaGid(
            host=None, device=device, port=port, number=number, gid=str(gid), address=address, scope=scope,
            kind=kind, interface=interface, ref=Seen(f"{folder}/gids/{number}", text),
        )  # fmt: skip


def parse_gid(text: str | None) -> ipaddress.IPv6Address | None:
    """An address of a port; None for an empty place of the table."""
    try:
        parsed = ipaddress.IPv6Address(text or "")
    except ValueError:
        return None
    return None if int(parsed) & ((1 << 64) - 1) == 0 and (int(parsed) == 0 or parsed.is_link_local) else parsed
