"""AMD GPUs as the amdgpu driver shows them below /sys, and their XGMI links as the compute driver (KFD) lists them.

    /sys/bus/pci/devices/0000:c1:00.0/gpu_busy_percent       0
    /sys/bus/pci/devices/0000:c1:00.0/ras/umc_err_count      ue: 0
                                                             ce: 3
    /sys/class/kfd/kfd/topology/nodes/2/properties           domain 0
                                                             location_id 49408         bus << 8 | device << 3 | function
    /sys/class/kfd/kfd/topology/nodes/2/io_links/1/properties
                                                             type 11                   XGMI; 2 is PCIe

Linux `Documentation/gpu/amdgpu/`, `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import AmdGpu, NodeCounter
from nccl_doctor.node.gpu import pci
from nccl_doctor.node.runtime.root import Absent, Root

TABLES = (AmdGpu, NodeCounter)
NODES = "/sys/class/kfd/kfd/topology/nodes"
XGMI = 11
_COUNT = re.compile(r"^(ue|ce):\s*(\d{1,18})$", re.MULTILINE)


class Errors(NamedTuple):
    """Memory errors of one GPU since the driver was loaded; None where no block counts them."""

    uncorrected: int | None
    corrected: int | None
    blocks: str  # with errors that were not corrected: umc, gfx


def collect(root: Root) -> Iterator[Any]:
    """A row a GPU, and the counters whose growth matters. Raises Absent without an AMD GPU."""
    cards = [device for device in pci.devices(root) if device.kind == "amd-gpu"]
    if not cards:
        raise Absent("no AMD GPU on the PCI bus")
    links = xgmi_links(root)
    for device in cards:
        base = f"{pci.BUS}/{device.pci}"
        errors = read_errors(root, base)
        driver = root.target(f"{base}/driver")
        total, used = (root.number(f"{base}/mem_info_vram_{name}") for name in ("total", "used"))
        replays = root.number(f"{base}/pcie_replay_count")
        hive = root.value(f"{base}/xgmi_hive_info/xgmi_hive_id")
        row = AmdGpu(
            host=None, gpu=None, pci=device.pci, device=device.device, model=root.value(f"{base}/product_name"),
            driver=os.path.basename(driver) if driver else None, unique_id=root.value(f"{base}/unique_id"),
            hive=hive if hive != "0" else None, util=root.number(f"{base}/gpu_busy_percent"),
            memory_total=total / 2**20 if total is not None else None,
            memory_used=used / 2**20 if used is not None else None, uncorrected=errors.uncorrected,
            corrected=errors.corrected, blocks=errors.blocks, links=links.get(device.pci), ref=Seen(base, ""),
        )  # fmt: skip
        shown = " ".join(
            f"{name}={value}" for name, value in row._asdict().items() if value is not None and name != "ref"
        )
        yield row._replace(ref=Seen(base, shown))
        for name, value in (("pcie-replay", replays), ("ecc-corrected", errors.corrected)):
            if value is not None:
                yield NodeCounter(None, device.pci, name, value, None, Seen(base, f"{device.pci} {name} {value}"))


def read_errors(root: Root, base: str) -> Errors:
    """The sums of ras/*_err_count."""
    sums: Counter[str] = Counter()
    blocks = []
    for name in root.names(f"{base}/ras"):
        if name.endswith("_err_count"):
            counts = parse_errors(root.text(f"{base}/ras/{name}") or "")
            sums.update(counts)
            if counts.get("ue"):
                blocks.append(name.removesuffix("_err_count"))
    return Errors(sums.get("ue"), sums.get("ce"), ", ".join(blocks))


def parse_errors(text: str) -> dict[str, int]:
    """`ue: 0`, `ce: 3` -> both numbers; a block without counters prints other text."""
    return {name: int(value) for name, value in _COUNT.findall(text)}


def xgmi_links(root: Root) -> dict[str, int]:
    """PCI address -> number of XGMI links to other GPUs."""
    links = {}
    for number in root.names(NODES):
        folder = f"{NODES}/{number}"
        properties = parse_properties(root.text(f"{folder}/properties") or "")
        if (address := parse_location(properties)) is not None:
            texts = (root.text(f"{folder}/io_links/{link}/properties") for link in root.names(f"{folder}/io_links"))
            links[address] = sum(parse_properties(text or "").get("type") == XGMI for text in texts)
    return links


def parse_properties(text: str) -> dict[str, int]:
    """`location_id 49408` -> a number a name."""
    words = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal() and len(pair[1]) < 20}


def parse_location(properties: Mapping[str, int]) -> str | None:
    """The PCI address of a GPU; None for a node that is a CPU (location 0)."""
    location = properties.get("location_id", 0)
    if not 0 < location < 1 << 16:
        return None
    domain = properties.get("domain", 0) & 0xFFFFFFFF
    return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
