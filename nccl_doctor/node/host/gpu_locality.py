"""Where the GPUs sit: NUMA node, CPUs near them, and IOMMU group."""

import re
from collections.abc import Iterator

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import GpuPlace
from nccl_doctor.node.host import task
from nccl_doctor.node.runtime.root import Root, fields

PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def gpus(root: Root) -> list[str]:
    """PCI addresses of NVIDIA GPUs, in their order."""
    return [
        name
        for name in root.names(PCI)
        if _BDF.fullmatch(name)
        and (root.value(f"{PCI}/{name}/class") or "").startswith(("0x0302", "0x0300"))
        and root.value(f"{PCI}/{name}/vendor") == NVIDIA
    ]


def collect(root: Root) -> Iterator[GpuPlace]:
    """A row for each GPU."""
    cards = gpus(root)
    if not cards:
        return
    near = _near(root)
    granted = _granted(root, cards)
    for position, pci in enumerate(cards):
        node = root.number(f"{PCI}/{pci}/numa_node")
        node = None if node == -1 else node  # the firmware does not say
        cpus = root.value(f"{PCI}/{pci}/local_cpulist")
        seen = Seen(f"{PCI}/{pci}", f"numa_node={node} local_cpulist={cpus}")
        yield GpuPlace(
            host=None, pci=pci, position=position, numa=node, cpus=cpus, granted=granted.get(pci),
            distance=near.get(node) if node is not None else None,
            iommu=root.value(f"{PCI}/{pci}/iommu_group/type"), ref=seen,
        )  # fmt: skip


def _near(root: Root) -> dict[int, int]:
    """NUMA node -> distance to the nearest node that this task may run on."""
    allowed = task.cpu_set(fields(root.text("/proc/self/status") or "").get("Cpus_allowed_list"))
    base = "/sys/devices/system/node"
    nodes = sorted(int(name[4:]) for name in root.names(base) if re.fullmatch(r"node\d{1,4}", name))
    own = [n for n in nodes if allowed & task.cpu_set(root.value(f"{base}/node{n}/cpulist"))]
    rows: dict[int, int] = {}
    for node in nodes:
        distances = (root.value(f"{base}/node{node}/distance") or "").split()
        known = [
            int(distances[nodes.index(n)])
            for n in own
            if nodes.index(n) < len(distances) and distances[nodes.index(n)].isdecimal()
        ]
        if known:
            rows[node] = min(known)
    return rows


def _granted(root: Root, found: list[str]) -> dict[str, int]:
    """Which GPUs the task is given; empty where that is not said or not in numbers of this node."""
    variables = task.environment(root)
    listed = [part.strip() for part in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if not listed:
        return {}
    if all(part.startswith("GPU-") for part in listed):
        owner = _by_uuid(root, found)
        chosen = {pci for uuid, pci in owner.items() if any(uuid.startswith(part) for part in listed)}
        return {pci: int(pci in chosen) for pci in found} if chosen else {}
    if not all(part.isdecimal() for part in listed):
        return {}
    numbers = [int(part) for part in listed]
    step = [int(part) for part in variables.get("SLURM_STEP_GPUS", "").split(",") if part.isdecimal()]
    if step and max(numbers) < len(step):  # devices are fenced: the numbers count inside what the step was given
        numbers = [step[number] for number in numbers]
    return {pci: int(position in numbers) for position, pci in enumerate(found)}


def _by_uuid(root: Root, found: list[str]) -> dict[str, str]:
    base = "/proc/driver/nvidia/gpus"
    return {fields(root.text(f"{base}/{pci}/information") or "").get("GPU UUID", "?"): pci for pci in found}
