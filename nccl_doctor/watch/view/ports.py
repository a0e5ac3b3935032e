"""The table of network ports, and their sums."""

from collections.abc import Callable

from nccl_doctor.watch.series import Device, number
from nccl_doctor.watch.state import Node, State
from nccl_doctor.watch.view.cells import BAD, FAIR, Cell, Column, Line, Look, amount, cell, short_time, whole

PortRow = tuple[Node, Device]
UP = ("ACTIVE", "UP", None)
ERROR_SECONDS = 10.0  # over which the rate of errors is taken


def is_bad(port: Device) -> bool:
    """Returns whether a port is down or counted errors since the watch began."""
    return bool(port.errors) or port.now.get("state") not in UP


def error_rate(port: Device) -> float | None:
    """Returns new errors per second over the last seconds."""
    return port.lately("errors", ERROR_SECONDS)


def _state(row: PortRow, look: Look) -> Cell:
    state = row[1].now.get("state")
    return cell(state, "" if state in UP else BAD)


def _rate(name: str) -> Callable[[PortRow, Look], Cell]:
    def shown(row: PortRow, look: Look) -> Cell:
        value = row[1].last(name)
        return cell(None if value is None else f"{value:.1f}", right=True)

    return shown


def _load(row: PortRow) -> float | None:
    """Returns the share of the link speed that the busier direction uses."""
    speed = number(row[1].now.get("speed"))
    rates = [value for way in ("rx", "tx") if (value := row[1].last(way)) is not None]
    return max(rates) / speed if rates and speed else None


def _load_cell(row: PortRow, look: Look) -> Cell:
    share = _load(row)
    return cell(None if share is None else f"{share:.0%}", right=True)


def _errors(row: PortRow, look: Look) -> Cell:
    found = row[1].errors
    return cell(", ".join(f"{name} +{count}" for name, count in found.items()), BAD if found else "")


def _error_rate(row: PortRow, look: Look) -> Cell:
    rate = error_rate(row[1])
    return cell(None if rate is None else f"{rate:.1f}" if rate else "0", BAD if rate else "", True)


PORTS = (
    Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16, "n"),
    Column("port", "port", 9, lambda r, _: cell(r[1].name), lambda r: r[1].name, 0, 14, "p"),
    Column("kind", "kind", 8, lambda r, _: cell(r[1].now.get("kind")), lambda r: str(r[1].now.get("kind")), 5, letter="k"),
    Column("state", "state", 6, _state, lambda r: str(r[1].now.get("state")), 1, 8, "s"),
    Column("speed", "Gb/s", 5, lambda r, _: cell(whole(number(r[1].now.get("speed"))), right=True),
           lambda r: number(r[1].now.get("speed")) or 0, 3, letter="g"),
    Column("rx", "rx Gb/s", 7, _rate("rx"), lambda r: r[1].last("rx") or 0, letter="r"),
    Column("tx", "tx Gb/s", 7, _rate("tx"), lambda r: r[1].last("tx") or 0, letter="t"),
    Column("load", "load", 5, _load_cell, lambda r: _load(r) or 0, 4, letter="l"),
    Column("history", "history", 10, lambda r, look: cell(look.spark(r[1].values("rx"), number(r[1].now.get("speed")) or 100, 10)),
           lambda r: r[1].last("rx") or 0, 7, letter="h"),
    Column("rate", "err/s", 5, _error_rate, lambda r: error_rate(r[1]) or 0, 2, letter="e"),
    Column("errors", "new errors", 12, _errors, lambda r: sum(r[1].errors.values()), 2, 60, "w"),
)  # fmt: skip


def sum_line(node: Node, look: Look, width: int, now: float) -> Line:
    """Returns the sums over the ports of a node: `gpu-a  9 ports  rx 2561.0 of 3225 Gb/s  tx ...  errors +3 (0.2/s)`."""
    ports = list(node.ports.values())
    age = node.age("port", now)
    if age is not None:
        return ((look.fit(f"{node.name}  {len(ports)} ports  {short_time(age)} old, not counted", width), "dim"),)
    speed = sum(number(port.now.get("speed")) or 0.0 for port in ports)
    of = f" of {speed:.0f}" if speed else ""
    parts = [f"{node.name}  {len(ports)} ports"]
    parts += [f"{way} {sum(port.last(way) or 0.0 for port in ports):.1f}{of} Gb/s" for way in ("rx", "tx")]
    down = [port.name for port in ports if port.now.get("state") not in UP]
    errors = sum(sum(port.errors.values()) for port in ports)
    rate = sum(error_rate(port) or 0.0 for port in ports)
    parts.append(f"errors +{errors} ({rate:.1f}/s)" if errors else "no new errors")
    if down:
        parts.append(f"down: {', '.join(down)}")
    return ((look.fit("  ".join(parts), width), BAD if rate or down else FAIR if errors else ""),)


def traffic_line(state: State, look: Look, width: int, now: float) -> Line:
    """Returns what moves on all nodes with fresh values: RDMA, Ethernet, NVLink, PCIe and disks."""
    sums: dict[str, float] = {}

    def add(name: str, *values: float | None) -> None:
        for value in values:
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value

    errors = down = 0
    for node in state.nodes.values():
        if node.age("port", now) is None:
            for port in node.ports.values():
                name = "Ethernet" if port.now.get("kind") == "ethernet" else "RDMA"
                add(name, port.last("rx"), port.last("tx"))
                errors += sum(port.errors.values())
                down += port.now.get("state") not in UP
        if node.age("gpu", now) is None:
            for gpu in node.gpus.values():
                add("NVLink", gpu.last("nvlink_rx"), gpu.last("nvlink_tx"))
                add("PCIe", gpu.last("pcie_rx"), gpu.last("pcie_tx"))
        if node.age("host", now) is None:
            add("disk", node.host.last("disk_read"), node.host.last("disk_write"))
    units: dict[str, Callable[[float], str]] = {
        "RDMA": lambda x: f"{x:.0f} Gb/s", "Ethernet": lambda x: f"{x:.1f} Gb/s", "NVLink": lambda x: f"{amount(x)}B/s",
        "PCIe": lambda x: f"{amount(x)}B/s", "disk": lambda x: f"{x:.0f} MiB/s",
    }  # fmt: skip
    parts = [f"ports down: {down}"] if down else []
    parts += [f"new port errors: {errors}"] if errors else []
    parts += [f"{name} {units[name](sums[name])}" for name in units if name in sums]
    text = look.join([f"traffic  {parts[0] if parts else '-'}", *parts[1:]], width, look.dot)
    return ((text, BAD if down else FAIR if errors else ""),)
