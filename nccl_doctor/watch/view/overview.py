"""The lines below the GPUs of the first tab: hosts, ports and alerts."""

from collections.abc import Iterable

from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.state import Device, Node, State, number
from nccl_doctor.watch.view import panes
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, Line, Look, Span

RATES = 11  # columns for the rates of a port
ERRORS = 11  # columns for the errors or the state of a port


def host_line(node: Node, look: Look, width: int, clock: float | None = None) -> Line:
    """Returns CPU, memory, /dev/shm and disk use of a node as one line, dim where the values are out of date at `clock`."""
    now = node.host.now
    cpu, used, total = number(now.get("cpu")), number(now.get("memory_used")), number(now.get("memory_total"))
    shm, shm_total = number(now.get("shm_used")), number(now.get("shm_total"))
    bar = 10 if width >= 100 else 0

    def gauge(share: float) -> str:
        return f"{look.gauge(share, bar)} " if bar else ""

    parts = [f"{node.name}  CPU {gauge(cpu / 100)}{cpu:3.0f} %" if cpu is not None else f"{node.name}  CPU -"]
    if used is not None and total:
        parts.append(f"memory {gauge(used / total)}{used / 1024:.0f}/{total / 1024:.0f} GiB")
    if shm is not None and shm_total:
        parts.append(f"shm {shm / shm_total:.0%}")
    disk = [node.host.last(name) for name in ("disk_read", "disk_write")]
    if disk[0] is not None and disk[1] is not None:
        parts.append(f"disk {disk[0]:.0f}+{disk[1]:.0f} MiB/s")
    age = None if clock is None else node.age("host", clock)
    if age is not None:
        return ((look.fit("  ".join([*parts, f"{panes.short_time(age)} old"]), width), DIM),)
    full = max(_share(used, total), _share(shm, shm_total))
    return ((look.fit("  ".join(parts), width), BAD if full >= 0.97 else FAIR if full >= 0.9 else ""),)


def _share(used: float | None, total: float | None) -> float:
    """Returns used / total; 0 if unknown, which colours nothing."""
    return used / total if used is not None and total else 0.0


def port_lines(state: State, look: Look, width: int, most: int) -> list[Line]:
    """Returns ports side by side, those with errors or without a link first; the last cell counts those left out."""
    several = len(state.nodes) > 1
    ports = sorted(
        ((node, port) for node in state.nodes.values() for port in node.ports.values()),
        key=lambda row: not _bad(row[1]),
    )
    names = max((len(_name(node, port, several)) for node, port in ports), default=0)
    each = names + 1 + RATES + (ERRORS if any(_bad(port) for _, port in ports) else 0) + 2
    per = max(width // each, 1)
    rows = -(-len(ports) // per)
    shown = ports if rows <= most else ports[: max(most * per - 1, 0)]
    cells = [(_port(node, port, several), BAD if _bad(port) else "") for node, port in shown]
    if len(shown) < len(ports):
        cells.append((f"{len(ports) - len(shown)} more: press 3", DIM))
    lines: list[Line] = []
    for at in range(0, len(cells), per):
        spans: list[Span] = []
        for text, style in cells[at : at + per]:
            spans += [(look.fit(text, min(each, width) - 2), style), ("  ", "")]
        lines.append(tuple(spans[:-1]))
    return lines[:most]


def _bad(port: Device) -> bool:
    return bool(port.errors) or port.now.get("state") not in ("ACTIVE", "UP", None)


def _name(node: Node, port: Device, several: bool) -> str:
    return f"{node.name[:12]} {port.name[:16]}" if several else port.name[:16]


def _port(node: Node, port: Device, several: bool) -> str:
    rx, tx = port.last("rx"), port.last("tx")
    name = _name(node, port, several)
    errors = f" +{sum(port.errors.values())} err" if port.errors else ""
    if port.now.get("state") not in ("ACTIVE", "UP", None):
        return f"{name} {port.now.get('state')}{errors}"
    return f"{name} {_gigabits(rx)}/{_gigabits(tx)} Gb{errors}"


def _gigabits(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def alert_lines(
    state: State, episodes: Iterable[Episode], look: Look, now: float, width: int, most: int, rules_problem: str = ""
) -> list[Line]:
    """Returns a failure of the rules, nodes that do not answer, and current findings, the worst first."""
    lines: list[Span] = []
    if rules_problem:
        lines.append((f"the rules failed, so findings are out of date: {rules_problem}", BAD))
    for node in panes.worst_first(state, now):
        badness, description = panes.node_state(node, now)
        if badness:
            lines.append((f"{node.name}  {description}", FAIR if badness == 1 else BAD))
    for episode in panes.episodes(episodes):
        finding = episode.finding
        if episode.over or finding.severity == "note":
            continue
        where = f" {finding.hosts}" if finding.hosts else ""
        text = f"{finding.severity.upper()}{where} {finding.name}: {finding.message}"
        lines.append((text, panes.STYLES[finding.severity]))
        if finding.name == "spinning-in-collective" and HINT not in lines:
            lines.append(HINT)
    if len(lines) > most:
        lines[most - 1 :] = [(f"{len(lines) - most + 1} more: press 5", DIM)]
    return [((look.fit(text, width), style),) for text, style in lines[:most]]


HINT: Span = ("  press s for the stacks of all ranks, r for the status from NCCL's RAS", "bold")
