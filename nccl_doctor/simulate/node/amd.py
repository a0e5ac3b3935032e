"""AMD GPUs of an invented node, and what can be wrong with them."""

from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.kernel_log import HOUR, print_line
from nccl_doctor.simulate.node.machines import AMD_MACHINES, Machine
from nccl_doctor.simulate.node.tree import Tree, fault, part

AMD = tuple(AMD_MACHINES)
NODES = "/sys/class/kfd/kfd/topology/nodes"
_XGMI, _PCIE = 11, 2
_BLOCKS = ("umc", "sdma", "gfx", "mmhub", "xgmi_wafl")


@part
def amdgpu(tree: Tree, machine: Machine) -> None:
    """Files of the driver below /sys, and the topology of KFD: two CPUs first, then each GPU with links to all others."""
    if not machine.amd:
        return
    tree.put("/proc/modules", tree.files.get("/proc/modules", "") + "amdgpu 13500416 0 - Live 0x0000000000000000")
    places = bus.gpus(machine)
    for number, place in enumerate(places):
        for name, text in (
            ("product_name", machine.gpu), ("unique_id", f"{0x5A1C9F0000000000 + number:016x}"), ("gpu_busy_percent", 0),
            ("mem_info_vram_total", machine.memory << 20), ("mem_info_vram_used", 297 << 20), ("pcie_replay_count", 0),
            ("xgmi_hive_info/xgmi_hive_id", "6148914691236517205"),
        ):  # fmt: skip
            bus.put(tree, place, name, text)
        for block in _BLOCKS:
            bus.put(tree, place, f"ras/{block}_err_count", "ue: 0\nce: 0")
        node = machine.sockets + number
        bus_number, _, rest = place.pci.removeprefix("0000:").partition(":")
        location = int(bus_number, 16) << 8 | int(rest.partition(".")[0], 16) << 3
        tree.put(f"{NODES}/{node}/properties", f"cpu_cores_count 0\nsimd_count 1216\nlocation_id {location}\ndomain 0")
        _link(tree, node, 0, number * machine.sockets // machine.gpus, _PCIE)
        for link, peer in enumerate((peer for peer in range(machine.gpus) if peer != number), 1):
            _link(tree, node, link, machine.sockets + peer, _XGMI)
    for socket in range(machine.sockets):
        tree.put(
            f"{NODES}/{socket}/properties",
            f"cpu_cores_count {machine.cores // 2}\nsimd_count 0\nlocation_id 0\ndomain 0",
        )


def _link(tree: Tree, node: int, link: int, to: int, kind: int) -> None:
    tree.put(f"{NODES}/{node}/io_links/{link}/properties", f"type {kind}\nnode_from {node}\nnode_to {to}\nweight 15")


@fault("amd-gpu-uncorrectable", *AMD)
def _uncorrectable(tree: Tree, machine: Machine) -> None:
    bus.put(tree, bus.gpus(machine)[3], "ras/umc_err_count", "ue: 2\nce: 14")


@fault("amd-gpu-without-driver", *AMD)
def _unbound(tree: Tree, machine: Machine) -> None:
    place = bus.gpus(machine)[5]
    bus.driver(tree, place, None)
    for name in (
        "product_name",
        "unique_id",
        "gpu_busy_percent",
        "mem_info_vram_total",
        "mem_info_vram_used",
        "ras",
        "xgmi_hive_info",
    ):
        tree.remove(f"{place.folder}/{name}")


@fault("amd-xgmi-links-missing", *AMD)
def _links(tree: Tree, machine: Machine) -> None:
    for one, other in ((2, 3), (3, 2)):
        node = machine.sockets + one
        link = 1 + [peer for peer in range(machine.gpus) if peer != one].index(other)
        _link(tree, node, link, machine.sockets + other, _PCIE)


@fault("amd-gpu-reset-failed", *AMD)
def _failed(tree: Tree, machine: Machine) -> None:
    pci = bus.gpus(machine)[1].pci
    print_line(
        tree, HOUR,
        f"amdgpu {pci}: amdgpu: ring comp_1.0.0 timeout, signaled seq=111, emitted seq=113",
        f"amdgpu {pci}: amdgpu: GPU reset begin!",
        f"amdgpu {pci}: amdgpu: ASIC reset failed with error, -110 for drm dev, {pci}",
    )  # fmt: skip


@fault("amd-gpu-reset", *AMD)
def _reset(tree: Tree, machine: Machine) -> None:
    pci = bus.gpus(machine)[1].pci
    print_line(tree, HOUR, f"amdgpu {pci}: amdgpu: GPU reset begin!", f"amdgpu {pci}: amdgpu: GPU reset(2) succeeded!")


@fault("amd-gpu-error-logged", *AMD)
def _ras(tree: Tree, machine: Machine) -> None:
    pci = bus.gpus(machine)[1].pci
    print_line(tree, HOUR, f"amdgpu {pci}: amdgpu: 1 uncorrectable hardware errors detected in umc block")


@fault("amd-gpu-refused", *AMD)
def _off_bus(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, f"amdgpu {bus.gpus(machine)[1].pci}: amdgpu: device lost from bus!")
