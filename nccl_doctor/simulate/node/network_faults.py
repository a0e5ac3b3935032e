"""What can be wrong with the network cards of an invented node."""

import json

from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.network import Card, cards, qos, unload
from nccl_doctor.simulate.node.network_efa import COMMAND, PLUGIN, plugin, say
from nccl_doctor.simulate.node.tree import Tree, fault

IB = ("nd-a100-v4", "nd-h100-v5", "dgx-h100")
ROCE = ("b200-roce", "l40s-pcie")
MANY = (*IB, "b200-roce")  # four rails and more
EFA = ("p3dn", "p4d", "p5", "p5en")


def rail(machine: Machine, number: int = -1) -> Card:
    """A card for GPU traffic, by default the last one."""
    return [card for card in cards(machine) if card.nic.kind in ("ib", "roce", "efa")][number]


def device(card: Card) -> str:
    """The folder of its RDMA device."""
    return f"{card.folder}/infiniband/{card.device}"


def port(card: Card) -> str:
    return f"{device(card)}/ports/1"


def driver_version(tree: Tree, *, opened: bool) -> None:
    """The NVIDIA driver with the open or the closed kernel module."""
    path = "/proc/driver/nvidia/version"
    kind = "NVIDIA UNIX Open Kernel Module for x86_64" if opened else "NVIDIA UNIX x86_64 Kernel Module"
    text = tree.files.get(path, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07")
    for old in ("NVIDIA UNIX Open Kernel Module for x86_64", "NVIDIA UNIX x86_64 Kernel Module"):
        text = text.replace(old, "\0")
    tree.put(path, text.replace("\0", kind))


@fault("rdma-cards-without-driver", *IB)
def _driver(tree: Tree, machine: Machine) -> None:
    unload(tree, "mlx5_ib")
    for card in cards(machine):
        if card.device is not None:
            tree.remove(f"{card.folder}/infiniband")
            tree.remove(f"{card.folder}/infiniband_verbs")
            tree.remove(f"/sys/class/infiniband/{card.device}")
            tree.remove(f"/sys/class/infiniband_verbs/uverbs{card.uverbs}")
    tree.remove("/dev/infiniband")


@fault("uverbs-module-missing", *IB, *ROCE)
def _module(tree: Tree, machine: Machine) -> None:
    unload(tree, "ib_uverbs")
    for card in cards(machine):
        tree.remove(f"{card.folder}/infiniband_verbs")
        tree.remove(f"/sys/class/infiniband_verbs/uverbs{card.uverbs}")
    tree.remove("/dev/infiniband")


@fault("uverbs-device-missing", *IB, *ROCE)
def _no_file(tree: Tree, machine: Machine) -> None:
    tree.remove(f"/dev/infiniband/uverbs{rail(machine).uverbs}")


@fault("uverbs-not-openable", *IB, *ROCE, *EFA)
def _mode(tree: Tree, machine: Machine) -> None:
    tree.stat(f"/dev/infiniband/uverbs{rail(machine).uverbs}", mode=0o20600, opens="EACCES")


@fault("rail-port-down", *MANY)
def _down(tree: Tree, machine: Machine) -> None:
    folder = port(rail(machine, 2))
    tree.put(f"{folder}/state", "1: DOWN")
    tree.put(f"{folder}/phys_state", "2: Polling")


@fault("rail-without-subnet-manager", *IB)
def _manager(tree: Tree, machine: Machine) -> None:
    folder = port(rail(machine, 3))
    tree.put(f"{folder}/state", "2: INIT")
    tree.put(f"{folder}/lid", "0xffff")
    tree.put(f"{folder}/sm_lid", "0x0")


@fault("rail-port-slow", *MANY)
def _slow(tree: Tree, machine: Machine) -> None:
    card = rail(machine)
    kind = {200: "HDR", 400: "NDR"}[card.nic.rate]
    tree.put(f"{port(card)}/rate", f"{card.nic.rate // 2} Gb/sec (2X {kind})")


@fault("rails-missing", *IB)
def _gone(tree: Tree, machine: Machine) -> None:
    card = rail(machine)
    bus.take_out(tree, next(place for _, place in bus.nics(machine) if place.pci == card.pci))
    tree.remove(f"/sys/class/infiniband/{card.device}")
    tree.remove(f"/sys/class/infiniband_verbs/uverbs{card.uverbs}")
    tree.remove(f"/dev/infiniband/uverbs{card.uverbs}")
    tree.remove(f"/sys/class/net/{card.interface}")


@fault("roce-address-missing", *ROCE)
def _address(tree: Tree, machine: Machine) -> None:
    card = rail(machine)
    for number in (2, 3):
        tree.put(f"{port(card)}/gids/{number}", ":".join(["0000"] * 8))
        tree.remove(f"{port(card)}/gid_attrs/types/{number}")
        tree.remove(f"{port(card)}/gid_attrs/ndevs/{number}")


@fault("roce-version-1-only", *ROCE)
def _version(tree: Tree, machine: Machine) -> None:
    for number in range(4):
        tree.put(f"{port(rail(machine))}/gid_attrs/types/{number}", "IB/RoCE v1")


@fault("roce-gid-index-wrong", *ROCE)
def _gid_index(tree: Tree, machine: Machine) -> None:
    tree.extra.setdefault("environ", {})["NCCL_IB_GID_INDEX"] = "1"


@fault("rail-firmware-odd", *MANY)
def _firmware(tree: Tree, machine: Machine) -> None:
    tree.put(f"{device(rail(machine, 5))}/fw_ver", "20.31.2354")


@fault("gpudirect-rdma-off", *IB, *ROCE)
def _peermem(tree: Tree, machine: Machine) -> None:
    unload(tree, "nvidia_peermem")
    tree.remove("/sys/kernel/mm/memory_peers")
    driver_version(tree, opened=False)


@fault("gpudirect-dmabuf-disabled", *IB, *ROCE)
def _dmabuf(tree: Tree, machine: Machine) -> None:
    unload(tree, "nvidia_peermem")
    tree.remove("/sys/kernel/mm/memory_peers")
    driver_version(tree, opened=True)
    tree.extra.setdefault("environ", {})["NCCL_DMABUF_ENABLE"] = "0"


@fault("peermem-not-registered", *IB, *ROCE)
def _registered(tree: Tree, machine: Machine) -> None:
    tree.remove("/sys/kernel/mm/memory_peers")
    driver_version(tree, opened=False)


@fault("rail-without-partition", *IB)
def _partition(tree: Tree, machine: Machine) -> None:
    tree.put(f"{port(rail(machine))}/pkeys/0", "0x7fff")


@fault("rail-mtu-differs", "b200-roce")
def _mtu(tree: Tree, machine: Machine) -> None:
    card = rail(machine)
    tree.put(f"{card.folder}/net/{card.interface}/mtu", 1500)


@fault("roce-congestion-control-elsewhere", *ROCE)
def _control_elsewhere(tree: Tree, machine: Machine) -> None:
    for card in cards(machine):
        if card.nic.kind == "roce":
            qos(tree, card, priority=5, trust="dscp", traffic_class=106)


@fault("rail-qos-differs", "b200-roce")
def _qos(tree: Tree, machine: Machine) -> None:
    qos(tree, rail(machine), priority=3, trust="dscp", traffic_class=104)


@fault("interface-without-carrier", "a3-highgpu")
def _carrier(tree: Tree, machine: Machine) -> None:
    folder = f"{cards(machine)[-1].folder}/net/eth4"
    tree.put(f"{folder}/operstate", "down")
    tree.put(f"{folder}/carrier", 0)


@fault("interfaces-missing", "a3-highgpu")
def _interface(tree: Tree, machine: Machine) -> None:
    card = cards(machine)[-1]
    tree.remove(f"{card.folder}/net")
    tree.remove(f"/sys/class/net/{card.interface}")
    told = json.loads(tree.extra["commands"]["ip -j addr"]["text"])
    tree.command("ip -j addr", json.dumps([one for one in told if one["ifname"] != card.interface]))


@fault("interface-mtu-differs", "a3-highgpu")
def _interface_mtu(tree: Tree, machine: Machine) -> None:
    tree.put(f"{cards(machine)[-1].folder}/net/eth4/mtu", 1460)


@fault("bond-member-down", *ROCE, "dgx-h100")
def _bond(tree: Tree, machine: Machine) -> None:
    member = "Slave Interface: {}\nMII Status: {}\nSpeed: {}\nDuplex: full\nLink Failure Count: {}\n"
    tree.put(
        "/proc/net/bonding/bond0",
        "Ethernet Channel Bonding Driver: v5.15.0\n\nBonding Mode: fault-tolerance (active-backup)\nMII Status: up\n\n"
        + member.format("eth0", "up", "25000 Mbps", 0)
        + "\n"
        + member.format("eth1", "down", "Unknown", 3),
    )


@fault("efa-module-not-loaded", *EFA)
def _efa_module(tree: Tree, machine: Machine) -> None:
    unload(tree, "efa")
    for card in cards(machine):
        if card.nic.kind == "efa":
            tree.remove(f"{card.folder}/infiniband")
            tree.remove(f"{card.folder}/infiniband_verbs")
            tree.remove(f"/sys/class/infiniband/{card.device}")
            tree.remove(f"/sys/class/infiniband_verbs/uverbs{card.uverbs}")
    tree.remove("/dev/infiniband")
    tree.command(COMMAND, "fi_getinfo: -61 (No data available)", 61)


@fault("efa-cards-missing", "p4d", "p5", "p5en")
def _efa_card(tree: Tree, machine: Machine) -> None:
    _gone(tree, machine)
    say(tree, [card for card in cards(machine) if card.nic.kind == "efa"][:-1])


@fault("efa-devices-incomplete", "p4d", "p5", "p5en")
def _efa_device(tree: Tree, machine: Machine) -> None:
    card = rail(machine)
    for kind, name in (("infiniband", card.device), ("infiniband_verbs", f"uverbs{card.uverbs}")):
        tree.remove(f"{card.folder}/{kind}")
        tree.remove(f"/sys/class/{kind}/{name}")
    say(tree, [card for card in cards(machine) if card.nic.kind == "efa"][:-1])


@fault("efa-provider-unusable", *EFA)
def _efa_provider(tree: Tree, machine: Machine) -> None:
    tree.command(COMMAND, "fi_getinfo: -61 (No data available)", 61)


@fault("efa-domains-incomplete", "p4d", "p5", "p5en")
def _efa_domains(tree: Tree, machine: Machine) -> None:
    say(tree, [card for card in cards(machine) if card.nic.kind == "efa"][:-2])


@fault("efa-gdr-off", "p4d", "p5", "p5en")
def _efa_gdr(tree: Tree, machine: Machine) -> None:
    for card in cards(machine):
        if card.nic.kind == "efa":
            tree.put(f"{card.folder}/p2p", "")


@fault("efa-plugin-missing", *EFA)
def _efa_no_plugin(tree: Tree, machine: Machine) -> None:
    tree.remove("/opt/amazon/ofi-nccl")


@fault("efa-plugin-not-searched", *EFA)
def _efa_path(tree: Tree, machine: Machine) -> None:
    tree.remove("/etc/ld.so.conf.d/100_ofinccl.conf")


@fault("efa-plugin-broken", *EFA)
def _efa_plugin(tree: Tree, machine: Machine) -> None:
    plugin(tree, PLUGIN, size=0, elf=False, needed=[])


@fault("efa-libfabric-old", "p5", "p5en")
def _efa_old(tree: Tree, machine: Machine) -> None:
    tree.put(
        "/opt/amazon/efa_installed_packages",
        "# EFA installer version: 1.22.0\n# Packages installed:\nlibfabric-aws-1.17.1amzn1.0_amd64",
    )
