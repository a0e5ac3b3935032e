"""The PCI bus of an invented node: GPUs, NVSwitches, network cards and the bridges above them."""

from typing import NamedTuple

from nccl_doctor.simulate.node.machines import Machine, Nic
from nccl_doctor.simulate.node.tree import Tree, part

BUS = "/sys/bus/pci/devices"
_SPEEDS = {1: "2.5", 3: "8.0", 4: "16.0", 5: "32.0"}
_VENDORS = {"mlx5_core": "0x15b3", "efa": "0x1d0f", "ena": "0x1d0f", "gve": "0x1ae0"}
_NIC_IDS = {"efa": "0xefa2", "ena": "0xec20", "gve": "0x0042"}
_MELLANOX = {25: "0x101f", 200: "0x101b", 400: "0x1021"}
_SWITCHES = {4: "0x1af1", 5: "0x22a3"}  # NVSwitch of A100 and of H100, by PCIe generation of the machine


class Place(NamedTuple):
    """One device on the bus."""

    pci: str
    folder: str  # below /sys/devices
    above: tuple[str, ...]  # folders of the bridges, from the root


def gpus(machine: Machine) -> list[Place]:
    """GPUs in the order of their addresses."""
    return [_below(_complex(machine, number), 0) for number in range(machine.gpus)]


def nics(machine: Machine) -> list[tuple[Nic, Place]]:
    """Cards for GPU traffic share a switch with a GPU; others have a root port of their own."""
    found = []
    lonely = 0
    for nic in machine.nics:
        for number in range(nic.count):
            if nic.kind == "ethernet" or nic.storage:
                found.append((nic, _alone(0xE0 + lonely)))
                lonely += 1
                continue
            gpu = number * machine.gpus // nic.count
            beside = number - -(-gpu * nic.count // machine.gpus)
            found.append((nic, _below(_complex(machine, gpu), 1 + beside)))
    return found


def switches(machine: Machine) -> list[Place]:
    return [_alone(0xD8 + number) for number in range(machine.nvswitches)]


def _complex(machine: Machine, gpu: int) -> int:
    """The first bus number of the root complex that a GPU hangs on."""
    return 0x10 + gpu * (0xC0 // machine.gpus)


def _below(bus: int, number: int) -> Place:
    """The device number N below the PCIe switch of a root complex."""
    root = f"/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0"
    uplink = f"{root}/0000:{bus + 1:02x}:00.0"
    port = f"{uplink}/0000:{bus + 2:02x}:{number:02x}.0"
    pci = f"0000:{bus + 3 + number:02x}:00.0"
    return Place(pci, f"{port}/{pci}", (root, uplink, port))


def _alone(bus: int) -> Place:
    root = f"/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0"
    pci = f"0000:{bus:02x}:1f.0"
    return Place(pci, f"{root}/{pci}", (root,))


@part
def pci_bus(tree: Tree, machine: Machine) -> None:
    for number, place in enumerate(gpus(machine)):
        vendor, class_ = ("0x1002", "0x120000") if machine.amd else ("0x10de", "0x030200")
        device(tree, place, vendor, machine.device_id, class_, machine.pcie, number * machine.sockets // machine.gpus)
        put(tree, place, "current_link_speed", f"{_SPEEDS[1]} GT/s PCIe")  # nothing to do, so the link sleeps
        driver(tree, place, "amdgpu" if machine.amd else "nvidia")
    for place in switches(machine):
        device(tree, place, "0x10de", _SWITCHES[min(machine.pcie, 5)], "0x068000", machine.pcie, 0)
        driver(tree, place, "nvidia-nvswitch")
    for number, (nic, place) in enumerate(nics(machine)):
        device_id = _NIC_IDS.get(nic.driver) or _MELLANOX.get(nic.rate, "0x101b")
        class_ = "0x020700" if nic.kind == "ib" else "0x020000"
        device(tree, place, _VENDORS[nic.driver], device_id, class_, machine.pcie, number % machine.sockets)
        driver(tree, place, nic.driver)


def device(tree: Tree, place: Place, vendor: str, device_id: str, class_: str, generation: int, numa: int) -> None:
    """A device with all of its lanes, and the bridges above it."""
    for folder in (*place.above, place.folder):
        name = folder.rpartition("/")[2]
        if f"{folder}/vendor" not in tree.files:
            tree.put(f"{folder}/vendor", "0x1000")
            tree.put(f"{folder}/device", "0xc030")
            tree.put(f"{folder}/class", "0x060400")
            tree.put(f"{folder}/numa_node", numa)
            for end in ("current", "max"):
                tree.put(f"{folder}/{end}_link_width", 16)
                tree.put(f"{folder}/{end}_link_speed", f"{_SPEEDS[generation]} GT/s PCIe")
            tree.link(f"{BUS}/{name}", "../../.." + folder.removeprefix("/sys"))
    put(tree, place, "vendor", vendor)
    put(tree, place, "device", device_id)
    put(tree, place, "class", class_)
    put(
        tree,
        place,
        "config",
        (int(vendor, 0)).to_bytes(2, "little").hex() + int(device_id, 0).to_bytes(2, "little").hex(),
    )
    for name, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        put(tree, place, f"aer_dev_{name}", f"RxErr 0\nBadTLP 0\nTOTAL_ERR_{total} 0")


def put(tree: Tree, place: Place, name: str, text: str | int) -> None:
    tree.put(f"{place.folder}/{name}", text)


def driver(tree: Tree, place: Place, name: str | None) -> None:
    """Bind a device to a driver, or to none."""
    tree.remove(f"{place.folder}/driver")
    if name is not None:
        up = "../" * place.folder.removeprefix("/sys/").count("/")
        tree.link(f"{place.folder}/driver", f"{up}../bus/pci/drivers/{name}")
        tree.folders.add(f"/sys/bus/pci/drivers/{name}")


def take_out(tree: Tree, place: Place) -> None:
    """The device is gone."""
    tree.remove(place.folder)
    tree.remove(f"{BUS}/{place.pci}")
