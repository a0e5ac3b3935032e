"""The lines below the GPUs of the first tab: hosts, ports and alerts."""

from collections.abc import Iterable

from nccl_doctor.watch.series import Device, number
from nccl_doctor.watch.state import Node, State
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, Line, Look, Span, short_time
from nccl_doctor.watch.view.findings import STYLES, Group
from nccl_doctor.watch.view.nodes import node_state, worst_first
from nccl_doctor.watch.view.ports import UP, is_bad
from nccl_doctor.watch.view.wrapping import wrap_text

RATES = 11  # columns for the rates of a port
ERRORS = 11  # columns for the errors or the state of a port


def host_line(node: Node, look: Look, width: int, clock: float | None = None) -> Line:
    """Returns CPU, memory, /dev/shm and disk use of a node as one line, dim where the values are out of date at `clock`."""
    now = node.host.now
    cpu, used, total = number(now.get("cpu")), number(now.get("memory_used")), number(now.get("memory_total"))
    shm, shm_total = number(now.get("shm_used")), number(now.get("shm_total"))
    swap = number(now.get("swap_used"))
    bar = 10 if width >= 100 else 0

    def gauge(share: float) -> str:
        return f"{look.gauge(share, bar)} " if bar else ""

    parts = [f"{node.name}  CPU {gauge(cpu / 100)}{cpu:3.0f} %" if cpu is not None else f"{node.name}  CPU -"]
    if used is not None and total:
        parts.append(f"memory {gauge(used / total)}{used / 1024:.0f}/{total / 1024:.0f} GiB")
    if shm is not None and shm_total:
        parts.append(f"shm {shm / shm_total:.0%}")
    if swap:
        parts.append(f"swap {swap / 1024:.0f} GiB")
    disk = [node.host.last(name) for name in ("disk_read", "disk_write")]
    if disk[0] is not None and disk[1] is not None:
        parts.append(f"disk {disk[0]:.0f}+{disk[1]:.0f} MiB/s")
    load, cpus = number(now.get("load")), number(now.get("cpus"))
    if load is not None and cpus and width >= 100:
        parts.append(f"load {load:.0f} of {cpus:.0f} cores")
    age = None if clock is None else node.age("host", clock)
    if age is not None:
        return ((look.join([f"{short_time(age)} old", *parts], width, "  "), DIM),)
    full = max(_share(used, total), _share(shm, shm_total))
    return ((look.join(parts, width, "  "), BAD if full >= 0.97 else FAIR if full >= 0.9 else ""),)


def _share(used: float | None, total: float | None) -> float:
    """Returns used / total; 0 if unknown, which colours nothing."""
    return used / total if used is not None and total else 0.0


def port_lines(state: State, look: Look, width: int, most: int, now: float, bad_only: bool = False) -> list[Line]:
    """Returns ports side by side, those with errors or without a link first; the last cell counts those left out."""
    several = len(state.nodes) > 1
    ports = sorted(
        ((node, port) for node in state.nodes.values() for port in node.ports.values() if is_bad(port) or not bad_only),
        key=lambda row: not is_bad(row[1]),
    )
    names = max((len(_name(node, port, several)) for node, port in ports), default=0)
    each = names + 1 + RATES + (ERRORS if any(is_bad(port) for _, port in ports) else 0) + 2
    per = max(width // each, 1)
    rows = -(-len(ports) // per)
    shown = ports if rows <= most else ports[: max(most * per - 1, 0)]
    cells = [_port(node, port, several, now) for node, port in shown]
    if len(shown) < len(ports):
        cells.append((f"{len(ports) - len(shown)} more: press 3", DIM))
    lines: list[Line] = []
    for at in range(0, len(cells), per):
        spans: list[Span] = []
        for text, style in cells[at : at + per]:
            spans += [(look.fit(text, min(each, width) - 2), style), ("  ", "")]
        lines.append(tuple(spans[:-1]))
    return lines[:most]


def _name(node: Node, port: Device, several: bool) -> str:
    return f"{node.name[:12]} {port.name[:16]}" if several else port.name[:16]


def _port(node: Node, port: Device, several: bool, now: float) -> Span:
    name = _name(node, port, several)
    errors = f" +{sum(port.errors.values())} err" if port.errors else ""
    age = node.age("port", now)
    if age is not None:
        return f"{name} {short_time(age)} old{errors}", DIM
    if port.now.get("state") not in UP:
        return f"{name} {port.now.get('state')}{errors}", BAD
    return f"{name} {_gigabits(port.last('rx'))}/{_gigabits(port.last('tx'))} Gb{errors}", BAD if errors else ""


def _gigabits(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


Alert = tuple[str, str, Group | None]  # text, style, and the finding that it is about


def alerts(state: State, groups: Iterable[Group], now: float, skipped: Iterable[str] = ()) -> list[Alert]:
    """Returns nodes that do not answer, current findings, the worst first, and what of a recording was skipped."""
    found: list[Alert] = []
    for node in worst_first(state, now):
        badness, description = node_state(node, now)
        if badness:
            found.append((f"{node.name}  {description}", FAIR if badness == 1 else BAD, None))
    for group in groups:
        finding = group.finding
        if not group.over and finding.severity != "note":
            where = f" {','.join(group.nodes)}" if group.nodes else ""
            text = f"{finding.severity.upper()}{where} {finding.name}: {group.message}"
            found.append((text, STYLES[finding.severity], group))
    return [*found, *((f"skipped  {text}", DIM, None) for text in skipped)]


def alert_lines(found: list[Alert], look: Look, width: int, most: int) -> tuple[list[Line], list[Group | None]]:
    """Returns the alerts on at most so many lines, wrapped where there is space, and the finding of each line."""
    wrapped = [(wrap_text(look.ascii, text, width), style, group) for text, style, group in found]
    per = max((n for n in (4, 3, 2) if sum(min(len(lines), n) for lines, _, _ in wrapped) <= most), default=1)
    drawn: list[tuple[Line, Group | None]] = []
    for place, (lines, style, group) in enumerate(wrapped):
        if len(drawn) + 1 >= most and place + 1 < len(wrapped):
            drawn.append((((look.fit(f"{len(wrapped) - place} more: press 5", width), DIM),), None))
            break
        for line in lines[: per - 1]:
            drawn.append((((look.fit(line, width), style),), group))
        if rest := lines[per - 1 :]:
            drawn.append(
                (((look.fit(" ".join([rest[0], *(line.strip() for line in rest[1:])]), width), style),), group)
            )
    return [line for line, _ in drawn][:most], [group for _, group in drawn][:most]
