"""InfiniBand, RoCE and EFA devices as /sys shows them, and what the kernel has loaded for them and for GPUDirect RDMA."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import IbPort, NodeCounter, RdmaDevice, RdmaGid, RdmaStack, RoceQos
from nccl_doctor.node.gpu import pci_path
from nccl_doctor.node.gpu.pci_path import Card, Place
from nccl_doctor.node.network import counters
from nccl_doctor.node.rdma import rdma_ports, roce_qos
from nccl_doctor.node.runtime.root import Absent, Root, fields

TABLES = (RdmaStack, RdmaDevice, IbPort, RdmaGid, RoceQos, NodeCounter)
BASE = rdma_ports.BASE
VERBS = "/sys/class/infiniband_verbs"
MELLANOX, AMAZON, NVIDIA = "0x15b3", "0x1d0f", "0x10de"
SLOW = 50.0  # Gb/s; a slower Ethernet card is not meant for GPU traffic
_DRIVERS = {"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma"}
_MANAGEMENT = re.compile(r"_an\d|_bond_|_eth\d|_mgmt")  # names by which clouds and udev mark the other cards
_PEERS = "/sys/kernel/mm/memory_peers"


class _Draft(NamedTuple):
    """A device before its purpose is known."""

    row: RdmaDevice
    rate: float  # Gb/s, the highest of its active ports
    seen: Seen


def collect(root: Root) -> Iterator[Any]:
    """Rows of the stack, of each device, its ports, addresses and counters."""
    names = root.names(BASE)
    pci = list(pci_path.cards(root, (MELLANOX, AMAZON, NVIDIA)))
    rdma = [card for card in pci if is_rdma(card) and not root.exists(f"{pci_path.DEVICES}/{card.pci}/physfn")]
    if not names and not rdma:
        raise Absent("no /sys/class/infiniband and no InfiniBand card on the PCI bus")
    gpus = [pci_path.place(root, card.pci) for card in pci if pci_path.is_gpu(card)]
    verbs = {root.value(f"{VERBS}/{name}/ibdev"): name for name in root.names(VERBS) if name.startswith("uverbs")}
    drafts = [_draft(root, name, verbs, gpus) for name in names]
    yield stack(root, _drivers(drafts), len(names), len(rdma), len(gpus))
    chosen = rails([(draft.row, draft.rate) for draft in drafts], len(gpus))
    for draft in drafts:
        yield draft.row._replace(rail=int(draft.row.device in chosen))
        for port in rdma_ports.ports(root, draft.row.device):
            yield from rdma_ports.collect(root, draft.row.device, port, draft.row.kind)
        if draft.row.kind == "roce":
            yield from roce_qos.collect(root, draft.row.device, draft.row.interfaces.split())
        if draft.row.kind == "efa":
            folder = f"{BASE}/{draft.row.device}/hw_counters"
            yield from counters.collect(root, draft.row.device, folder, counters.EFA_DEVICE)


def is_rdma(card: Card) -> bool:
    """True for cards that are of use with an RDMA driver only."""
    if card.vendor == AMAZON:
        return re.fullmatch(r"0xefa\d", card.device) is not None
    return card.vendor == MELLANOX and card.kind.startswith("0x0207")


def _draft(root: Root, name: str, verbs: dict[str | None, str], gpus: Sequence[Place]) -> _Draft:
    folder = f"{BASE}/{name}"
    properties = fields(root.text(f"{folder}/device/uevent") or "", "=")
    pci = properties.get("PCI_SLOT_NAME")
    driver = properties.get("DRIVER")
    ports = rdma_ports.ports(root, name)
    active = [p for p in ports if rdma_ports.state(root.value(f"{folder}/ports/{p}/state")).startswith("Active")]
    rates = [rdma_ports.rate(root.value(f"{folder}/ports/{p}/rate")).gbps or 0.0 for p in active]
    layer = rdma_ports.layer(root, name, ports[0]) if ports else None
    kind = "efa" if driver == "efa" or name.startswith("efa_") else "roce" if layer == "Ethernet" else "ib"
    place = pci_path.place(root, pci) if pci else None
    gpu, path, near = pci_path.nearest(place, gpus) if place else (None, None, 0)
    interfaces = root.names(f"{folder}/device/net")
    uverbs = f"/dev/infiniband/{verbs[name]}" if name in verbs else None
    error, mode = _opens(root, uverbs) if uverbs else (None, None)
    rows = {key: root.value(f"{folder}/{key}") for key in ("fw_ver", "hca_type", "board_id")}
    words = [
        f"{key}={value}" for key, value in (*rows.items(), ("pci", pci), ("nearest GPU", gpu), ("path", path)) if value
    ]
    if uverbs:
        words.append(f"{uverbs}: {error or 'opens'}{f', mode {mode}' if mode else ''}")
    row = RdmaDevice(
        host=None, device=name, kind=kind, driver=driver, rail=0, firmware=rows["fw_ver"], model=rows["hca_type"],
        board=rows["board_id"], pci=pci, numa=place.numa if place else None,
        virtual=int(root.exists(f"{folder}/device/physfn")), interfaces=" ".join(interfaces),
        mtu=root.number(f"/sys/class/net/{interfaces[0]}/mtu") if interfaces else None, uverbs=uverbs, error=error,
        mode=mode, gpu=gpu, gpu_path=path, gpus_near=near if path else None,
        p2p=(root.text(f"{folder}/device/p2p") or "").strip() if kind == "efa" else None,
        ref=Seen(folder, " ".join(words)),
    )  # fmt: skip
    return _Draft(row, max(rates, default=0.0), Seen(folder, ""))


def _opens(root: Root, path: str) -> tuple[str | None, str | None]:
    """Why the caller cannot open a device, and its permissions."""
    answer = root.opens(path)
    if answer is None:
        return "missing", None
    status = root.stat(path)
    return answer or None, f"{status.mode & 0o777:04o}" if status else None


def _drivers(drafts: Sequence[_Draft]) -> set[str]:
    """The RDMA modules that these devices, or their cards, need."""
    return {_DRIVERS.get(draft.row.driver, draft.row.driver) for draft in drafts if draft.row.driver}


def rails(devices: Sequence[tuple[RdmaDevice, float]], gpus: int) -> set[str]:
    """Which devices seem meant for the traffic of GPUs: the class that is most, fastest and nearest to GPUs, and its equals.

    Where each GPU has such a device below its own PCIe switch, the others are for storage or logins, also when they are of the
    same board: those far from all GPUs, and those one switch further away (HGX boards with storage cards below the switches).
    """
    classes: dict[tuple[str, str | None], list[tuple[RdmaDevice, float]]] = defaultdict(list)
    for device, rate in devices:
        if device.kind == "efa" or not _MANAGEMENT.search(device.device):
            classes[device.kind, device.board or device.model].append((device, rate))
    fast = {
        key: max(rate for _, rate in members)
        for key, members in classes.items()
        if key[0] != "roce" or max(rate for _, rate in members) >= SLOW
    }
    if not fast:
        return set()

    def weight(key: tuple[str, str | None]) -> tuple[Any, ...]:
        members = classes[key]
        return sum(bool(d.gpus_near) for d, _ in members), len(members) * fast[key], key[0], key[1] or ""

    best = max(fast, key=weight)
    chosen = [
        device
        for key, rate in fast.items()
        if key == best or (key[0] == best[0] and rate >= fast[best])
        for device, _ in classes[key]
    ]
    if sum(device.gpu_path == "PIX" for device in chosen) >= gpus > 0:
        return {device.device for device in chosen if device.gpu_path == "PIX"}
    served = sum(device.gpus_near or 0 for device in chosen) >= gpus > 0
    return {device.device for device in chosen if not (served and device.gpus_near == 0)}


def modules(text: str | None) -> set[str] | None:
    """The names in /proc/modules; None where it cannot be read."""
    return {line.split()[0] for line in text.splitlines() if line.strip()} if text is not None else None


def stack(root: Root, drivers: set[str], devices: int, cards: int, gpus: int) -> RdmaStack:
    """What is loaded. A module may be part of the kernel: then /sys/module has it, or what it makes is there."""
    loaded = modules(root.text("/proc/modules"))

    def there(*names: str) -> int | None:
        if any(root.exists(f"/sys/module/{name}") or name in (loaded or ()) for name in names):
            return 1
        return 0 if loaded is not None else None

    uverbs = 1 if root.names(VERBS) else there("ib_uverbs")
    wanted = drivers or {"efa" if root.exists("/sys/module/efa") else "mlx5_ib"}
    driver = 1 if devices else there(*wanted)
    peermem = there("nvidia_peermem", "nv_peer_mem")
    registered = any(root.exists(f"{_PEERS}/{name}/version") for name in ("nv_mem", "nv_mem_nc")) if peermem else None
    version = root.value("/proc/driver/nvidia/version")
    release = root.value("/proc/sys/kernel/osrelease") or ""
    opened = None if version is None else int("Open Kernel Module" in version)
    dmabuf = shares_dmabuf(opened, release)
    loaded_text = ", ".join(
        f"{name}: {'?' if value is None else 'yes' if value else 'no'}"
        for name, value in (
            ("ib_uverbs", uverbs),
            ("RDMA driver", driver),
            ("nvidia_peermem", peermem),
            ("open NVIDIA module", opened),
            ("DMA-BUF", dmabuf),
        )
    )
    return RdmaStack(
        host=None, devices=devices, cards=cards, uverbs=uverbs, driver=driver, cm=there("rdma_ucm"),
        peermem=peermem, registered=int(registered) if registered is not None else None, open_module=opened,
        dmabuf=dmabuf, gpus=gpus, ref=Seen("/proc/modules", f"{loaded_text}; kernel {release or '?'}"),
    )  # fmt: skip


def shares_dmabuf(opened: int | None, release: str) -> int | None:
    """1 where GPU memory can be registered as DMA-BUF: the open kernel module and Linux 5.12 or newer."""
    version = re.match(r"(\d{1,3})\.(\d{1,4})", release)
    if opened is None or version is None:
        return None
    if not opened:
        return 0
    new = (int(version[1]), int(version[2])) >= (5, 12)
    return 1 if new else None if ".el8" in release else 0  # Red Hat 8 carries parts of newer RDMA code
