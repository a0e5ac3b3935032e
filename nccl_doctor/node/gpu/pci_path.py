"""How far two devices on the PCI bus are apart, in the words of `nvidia-smi topo -m`."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccl_doctor.node.runtime.root import Root

DEVICES = "/sys/bus/pci/devices"
NEAR = ("PIX", "PXB")  # what NCCL takes for GPUDirect RDMA by default
_FAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Card(NamedTuple):
    """A function on the PCI bus."""

    pci: str
    vendor: str  # 0x10de
    kind: str  # class, 0x030200
    device: str  # 0x2330


class Place(NamedTuple):
    """Where a card sits."""

    pci: str
    bridges: tuple[str, ...]  # host bridge first, the card itself last; empty where the tree does not show it
    numa: int | None


def cards(root: Root, vendors: Sequence[str]) -> Iterator[Card]:
    """The functions of these vendors."""
    for pci in root.names(DEVICES):
        vendor = root.value(f"{DEVICES}/{pci}/vendor")
        if vendor is not None and vendor in vendors and _ADDRESS.fullmatch(pci):
            kind, device = (root.value(f"{DEVICES}/{pci}/{name}") or "" for name in ("class", "device"))
            yield Card(pci, vendor, kind, device)


def is_gpu(card: Card) -> bool:
    return card.vendor == "0x10de" and card.kind.startswith(("0x0302", "0x0300"))


def place(root: Root, pci: str) -> Place:
    """Bridges and NUMA node of a card."""
    node = root.number(f"{DEVICES}/{pci}/numa_node")
    return Place(pci, bridges(root.target(f"{DEVICES}/{pci}") or ""), node if node is not None and node >= 0 else None)


def bridges(path: str) -> tuple[str, ...]:
    """`/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0` -> host bridge, bridge, card."""
    parts = path.split("/")
    start = next((i for i, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
    if start is None:
        return ()
    return (parts[start], *(part for part in parts[start + 1 :] if _ADDRESS.fullmatch(part)))


def distance(one: Place, other: Place) -> str | None:
    """PIX: one switch, PXB: several, PHB: one host bridge, NODE: one NUMA node, SYS: across; None where it is not known."""
    if not one.bridges or not other.bridges:
        return None
    common = 0
    for left, right in zip(one.bridges, other.bridges, strict=False):
        if left != right:
            break
        common += 1
    if common >= 2:
        below = max(len(one.bridges), len(other.bridges)) - common
        return "PIX" if below <= 2 else "PXB"
    if common == 1:
        return "PHB"
    if one.numa is None or other.numa is None:
        return None
    return "NODE" if one.numa == other.numa else "SYS"


def nearest(card: Place, others: Sequence[Place]) -> tuple[str | None, str | None, int]:
    """Address of the nearest of the others, how far it is, and how many are near enough for GPUDirect."""
    known = [(parsed, other.pci) for other in others if (parsed := distance(card, other)) is not None]
    if not known:
        return None, None, 0
    path, pci = min(known, key=lambda item: (_FAR.index(item[0]), item[1]))
    return pci, path, sum(parsed in NEAR for parsed, _ in known)
