"""Network cards of an invented node: PCI, /sys/class/infiniband, /sys/class/net, devices and modules."""

import json
import posixpath
from typing import NamedTuple

from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.machines import Machine, Nic
from nccl_doctor.simulate.node.tree import Tree, part

IB = "/sys/class/infiniband"
VERBS = "/sys/class/infiniband_verbs"
NET = "/sys/class/net"
SPEEDS = {25: "1X EDR", 100: "4X EDR", 200: "4X HDR", 400: "4X NDR", 800: "4X XDR"}
# rate -> hca_type, board_id, firmware
_MODELS = {
    25: ("MT4127", "MT_0000000547", "26.39.1002"),
    200: ("MT4123", "MT_0000000223", "20.39.1002"),
    400: ("MT4129", "MT_0000000838", "28.39.1002"),
}
_COUNTERS = {
    "symbol_error": 0, "link_error_recovery": 0, "link_downed": 0, "port_rcv_errors": 0, "port_rcv_remote_physical_errors": 0,
    "port_xmit_discards": 0, "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 15,
    "port_xmit_wait": 2489603, "port_xmit_data": 230539874932, "port_rcv_data": 230539874011,
}  # fmt: skip
_HARDWARE = {
    "lifespan": 12, "out_of_sequence": 3, "packet_seq_err": 3, "local_ack_timeout_err": 0, "rnr_nak_retry_err": 0,
    "implied_nak_seq_err": 0, "out_of_buffer": 0, "duplicate_request": 0, "roce_slow_restart": 0, "roce_adp_retrans": 0,
    "rx_icrc_encapsulated": 0,
}  # fmt: skip
_EFA_PORT = {
    "lifespan": 12, "rx_drops": 0, "retrans_pkts": 12, "retrans_bytes": 105000, "retrans_timeout_events": 0,
    "unresponsive_remote_events": 0, "impaired_remote_conn_events": 0, "rx_bytes": 993481234, "tx_bytes": 993481299,
}  # fmt: skip
_EFA_DEVICE = {
    "submitted_cmds": 812, "cmds_err": 0, "no_completion_cmds": 0, "alloc_pd_err": 0, "create_qp_err": 0, "reg_mr_err": 0,
    "mmap_err": 0, "keep_alive_rcvd": 3456,
}  # fmt: skip
_MODULES = ("ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm")


class Card(NamedTuple):
    """One card of a node."""

    nic: Nic
    number: int  # among those of its kind
    folder: str  # below /sys/devices
    pci: str
    device: str | None  # RDMA device
    uverbs: int | None
    interface: str | None


def cards(machine: Machine) -> list[Card]:
    """Every card, in its place on the PCI bus."""
    found: list[Card] = []
    numbers: dict[str, int] = {}
    verbs = 0
    for nic, place in bus.nics(machine):
        number = numbers[nic.kind] = numbers.get(nic.kind, -1) + 1
        device = _device(machine, nic, number, place.pci)
        card = Card(
            nic, number, place.folder, place.pci, device, verbs if device else None, _interface(machine, nic, number)
        )
        found.append(card)
        verbs += device is not None
    return found


def _device(machine: Machine, nic: Nic, number: int, pci: str) -> str | None:
    if nic.kind == "ethernet":
        if nic.driver != "mlx5_core":
            return None
        return "mlx5_an0" if machine.vendor.startswith("Microsoft") else f"mlx5_{max(n.count for n in machine.nics)}"
    if nic.prefix == "rdmap":
        return f"rdmap{int(pci[5:7], 16)}s{int(pci[8:10], 16)}"
    return f"{nic.prefix}{number}"


def _interface(machine: Machine, nic: Nic, number: int) -> str | None:
    if nic.kind == "ib":
        return f"ib{number}" if machine.name == "dgx-h100" else None  # the others have no IPoIB
    return {"ethernet": f"eth{number}", "roce": f"rail{number}", "efa": None}[nic.kind]


def _model(nic: Nic) -> tuple[str, str, str]:
    return _MODELS.get(nic.rate, _MODELS[200])


@part
def network(tree: Tree, machine: Machine) -> None:
    """Everything that the collectors of network cards read."""
    every = cards(machine)
    addresses = [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]}
    ]
    for card in every:
        tree.put(f"{card.folder}/uevent", f"DRIVER={card.nic.driver}\nPCI_SLOT_NAME={card.pci}")
        if card.device is not None:
            _rdma(tree, card)
        if card.interface is not None:
            _netdev(tree, card)
            if (address := own_address(card)) is not None:
                info = {"family": "inet", "local": address, "prefixlen": 24, "scope": "global"}
                addresses.append({"ifname": card.interface, "addr_info": [info]})
    tree.put(f"{NET}/lo/type", 772)
    tree.put(f"{NET}/lo/operstate", "unknown")
    tree.put(f"{NET}/lo/mtu", 65536)
    tree.command("ip -j addr", json.dumps(addresses))
    if any(card.device for card in every):
        load(tree, *_MODULES, *({"efa"} if any(c.nic.kind == "efa" for c in every) else {"mlx5_core", "mlx5_ib"}))
        device_file(tree, "/dev/infiniband/rdma_cm", 10 << 8 | 58)
    if any(nic.kind in ("ib", "roce") for nic in machine.nics):
        load(tree, "nvidia_peermem")
        tree.put("/sys/module/nvidia_peermem/version", "550.90.07")
        tree.put("/sys/kernel/mm/memory_peers/nv_mem/version", "550.90.07")


def own_address(card: Card) -> str | None:
    """IPv4 address of the card's interface."""
    return {"ethernet": f"10.1.{card.number}.11", "roce": f"10.2.{card.number}.11"}.get(card.nic.kind)


def load(tree: Tree, *names: str) -> None:
    """Add modules to those that are loaded."""
    lines = tree.files.get("/proc/modules", "").splitlines()
    for name in names:
        if not any(line.startswith(f"{name} ") for line in lines):
            lines.append(f"{name} 413696 2 - Live 0x0000000000000000")
            tree.put(f"/sys/module/{name}/initstate", "live")
    tree.put("/proc/modules", "\n".join(lines))


def unload(tree: Tree, name: str) -> None:
    """Take a module out."""
    lines = [line for line in tree.files["/proc/modules"].splitlines() if not line.startswith(f"{name} ")]
    tree.put("/proc/modules", "\n".join(lines))
    tree.remove(f"/sys/module/{name}")


def device_file(tree: Tree, path: str, device: int) -> None:
    tree.put(path, "")
    tree.stat(path, mode=0o20666, uid=0, gid=0, device=device, opens="")


def _classed(tree: Tree, card: Card, kind: str, name: str) -> str:
    """A folder of a device below its card, with the link from /sys/class; returns the folder."""
    folder = f"{card.folder}/{kind}/{name}"
    tree.link(f"/sys/class/{kind}/{name}", posixpath.relpath(folder, f"/sys/class/{kind}"))
    tree.link(f"{folder}/device", "../..")
    return folder


def _rdma(tree: Tree, card: Card) -> None:
    assert card.device is not None
    nic = card.nic
    folder = _classed(tree, card, "infiniband", card.device)
    layer = {"ib": "InfiniBand", "efa": "Unspecified"}.get(nic.kind, "Ethernet")
    port = f"{folder}/ports/1"
    tree.put(f"{port}/state", "4: ACTIVE")
    tree.put(f"{port}/phys_state", "5: LinkUp")
    tree.put(f"{port}/rate", f"{nic.rate} Gb/sec ({SPEEDS[nic.rate]})")
    tree.put(f"{port}/link_layer", layer)
    verbs = _classed(tree, card, "infiniband_verbs", f"uverbs{card.uverbs}")
    tree.put(f"{verbs}/ibdev", card.device)
    device_file(tree, f"/dev/infiniband/uverbs{card.uverbs}", 231 << 8 | 192 + (card.uverbs or 0))
    if nic.kind == "efa":
        tree.put(f"{folder}/fw_ver", "0.0.0.0")
        tree.put(f"{card.folder}/p2p", "NVIDIA peermem")
        _numbers(tree, f"{folder}/hw_counters", _EFA_DEVICE)
        _numbers(tree, f"{port}/hw_counters", _EFA_PORT)
        return
    model, board, firmware = _model(nic)
    for name, value in (("hca_type", model), ("board_id", board), ("fw_ver", firmware)):
        tree.put(f"{folder}/{name}", value)
    _numbers(tree, f"{port}/counters", _COUNTERS)
    _numbers(tree, f"{port}/hw_counters", _HARDWARE)
    if nic.kind == "ib":
        tree.put(f"{port}/lid", f"0x{0x96 + card.number:x}")
        tree.put(f"{port}/sm_lid", "0x11c")
        for number in range(16):
            tree.put(f"{port}/pkeys/{number}", "0xffff" if number == 0 else "0x0000")
    else:
        gids(tree, port, card)


def gids(tree: Tree, port: str, card: Card) -> None:
    """The table of addresses of an Ethernet port: link-local and IPv4, each for both versions of RoCE."""
    local = f"fe80:0000:0000:0000:a288:c2ff:fe5b:{0x300 + card.number:04x}"
    address = [int(part) for part in (own_address(card) or "0.0.0.0").split(".")]
    routed = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*address)
    for number, gid in enumerate((local, local, routed, routed)):
        tree.put(f"{port}/gids/{number}", gid)
        tree.put(f"{port}/gid_attrs/types/{number}", ("IB/RoCE v1", "RoCE v2")[number % 2])
        tree.put(f"{port}/gid_attrs/ndevs/{number}", card.interface or "")
    for number in range(4, 8):
        tree.put(f"{port}/gids/{number}", ":".join(["0000"] * 8))


def _netdev(tree: Tree, card: Card) -> None:
    assert card.interface is not None
    ipoib = card.nic.kind == "ib"
    folder = _classed(tree, card, "net", card.interface)
    speed = {"gve": None, "ena": None}.get(card.nic.driver, card.nic.rate * 1000)
    values: dict[str, str | int | None] = {
        "type": 32 if ipoib else 1, "operstate": "down" if ipoib else "up", "carrier": None if ipoib else 1,
        "speed": None if ipoib else speed, "carrier_changes": 0 if ipoib else 1,
        "mtu": {"ib": 2044, "roce": 9000}.get(card.nic.kind, {"gve": 8244, "ena": 9001}.get(card.nic.driver, 1500)),
    }  # fmt: skip
    for name, value in values.items():
        if value is not None:
            tree.put(f"{folder}/{name}", value)
    counters = {
        "rx_errors": 0,
        "tx_errors": 0,
        "rx_dropped": 4,
        "tx_dropped": 0,
        "rx_crc_errors": 0,
        "rx_bytes": 81234567,
    }
    _numbers(tree, f"{folder}/statistics", counters)
    if card.nic.kind == "roce":
        qos(tree, card, priority=3, trust="dscp", traffic_class=106)


def qos(tree: Tree, card: Card, *, priority: int, trust: str, traffic_class: int) -> None:
    """Marks of RoCE traffic, and the priority with congestion control, as NVIDIA's own driver shows them."""
    folder = f"{card.folder}/net/{card.interface}"
    for point in ("roce_np", "roce_rp"):
        _numbers(tree, f"{folder}/ecn/{point}/enable", {str(number): int(number == priority) for number in range(8)})
    tree.put(f"{folder}/qos/trust", trust)
    tree.put(f"{card.folder}/infiniband/{card.device}/tc/1/traffic_class", f"Global tclass={traffic_class}")


def _numbers(tree: Tree, folder: str, values: dict[str, int]) -> None:
    for name, value in values.items():
        tree.put(f"{folder}/{name}", value)
