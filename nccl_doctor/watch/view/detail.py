"""The space below a table: charts of the selected GPU, port or node, the whole text of a finding or a process."""

from collections.abc import Sequence
from typing import Any

from nccl_doctor.watch.series import Device, number
from nccl_doctor.watch.state import Node, State
from nccl_doctor.watch.view.cells import DIM, Column, Line, Look, choose, row_line, title_line
from nccl_doctor.watch.view.chart import Panel, of_device, side_by_side
from nccl_doctor.watch.view.findings import Group, full_text
from nccl_doctor.watch.view.gpus import gpu_columns, odd_first, peers
from nccl_doctor.watch.view.processes import PROCESSES, ProcessRow, gpu_of
from nccl_doctor.watch.view.wrapping import wrap_text

LEAST = 5  # lines that are worth a detail
CHARTS = 11  # lines of the charts of the overview, at most


def job_panels(state: State, now: float) -> list[Panel]:
    """Returns the charts of all nodes together, and of the steps of the job where they are known."""
    all_nodes, progress = state.totals, state.progress(now)
    rx, tx = all_nodes.values("rx"), all_nodes.values("tx")
    traffic = [None if a is None or b is None else a + b for a, b in zip(rx, tx, strict=True)]
    return [
        *([of_device(progress.device, "seconds", "step", "ms", 0.001)] if progress is not None else []),
        of_device(all_nodes, "util", "utilisation, mean", "%", top=100.0),
        of_device(all_nodes, "power", "power, all GPUs", "kW", 1000.0),
        Panel("network, in and out", "Gb/s", all_nodes.times, traffic),
    ]


def gpu_panels(gpu: Device) -> list[Panel]:
    """Returns the charts of a GPU, the most important first."""
    return [
        of_device(gpu, "util", "utilisation", "%", top=100.0),
        of_device(gpu, "power", "power", "W", top=number(gpu.now.get("enforced.power.limit"))),
        of_device(gpu, "temperature", "temperature", "C", top=100.0),
        of_device(gpu, "memory", "memory", "GiB", 1024.0, (number(gpu.now.get("memory.total")) or 0) / 1024 or None),
        of_device(gpu, "mem_util", "memory bandwidth in use", "%", top=100.0),
        of_device(gpu, "clock", "clock of the SMs", "MHz"),
        of_device(gpu, "nvlink_rx", "NVLink received", "GB/s", 1e9),
        of_device(gpu, "nvlink_tx", "NVLink sent", "GB/s", 1e9),
        of_device(gpu, "pcie_rx", "PCIe received", "GB/s", 1e9),
        of_device(gpu, "pcie_tx", "PCIe sent", "GB/s", 1e9),
    ]


def port_panels(port: Device) -> list[Panel]:
    """Returns the charts of a port."""
    return [
        of_device(port, "rx", f"{port.name} received", "Gb/s"),
        of_device(port, "tx", f"{port.name} sent", "Gb/s"),
        of_device(port, "errors", f"{port.name} new errors", "/s"),
    ]


def node_panels(node: Node) -> list[Panel]:
    """Returns the charts of a node: its GPUs together, and the host."""
    panels = []
    gpus = [gpu for gpu in node.gpus.values() if gpu.times]
    if gpus:
        count = min(len(gpu.times) for gpu in gpus)
        times = list(gpus[0].times)[-count:]
        for name, title, unit, mean, top in (
            ("util", "utilisation, mean", "%", True, 100.0), ("power", "power, all GPUs", "W", False, None),
        ):  # fmt: skip
            columns = zip(*(list(gpu.values(name))[-count:] for gpu in gpus), strict=False)
            sums = [
                None if None in one else sum(x for x in one if x is not None) / (len(one) if mean else 1)
                for one in columns
            ]
            panels.append(Panel(f"{node.name} {title}", unit, times, sums, 1.0, top))
    return [*panels, of_device(node.host, "cpu", f"{node.name} CPU", "%", top=100.0)]


def process_text(row: ProcessRow) -> str:
    """Returns all that is known of a process."""
    node, process = row
    found = gpu_of(row)
    facts = [
        f"{node.name} pid {process.get('pid')}, started by pid {process.get('ppid')}" if process.get("ppid") else
        f"{node.name} pid {process.get('pid')}",
        f"rank {process['rank']} of {process.get('world') or '?'}" if process.get("rank") is not None else "not a rank",
        f"on {found[0].name}" if found is not None else "on no GPU",
        f"threads {process['threads']}" if process.get("threads") is not None else "",
        f"last output {process['quiet']:.0f} s ago" if number(process.get("quiet")) is not None else "",
        f"container {process['container']}" if process.get("container") else "",
    ]  # fmt: skip
    return f"{', '.join(fact for fact in facts if fact)}\n{process.get('command') or ''}"


def draw(tab: str, row: Any, state: State, look: Look, now: float, width: int, height: int) -> list[Line]:
    """Returns exactly `height` lines about the selected row; on the overview, about all nodes."""
    lines: list[Line] = [()]
    if tab == "overview":
        lines = _overview(state, look, now, width, height)
    elif row is None:
        pass
    elif tab == "GPUs":
        heading = f"{row[0].name} {row[1].name}  {row[1].now.get('name') or ''}  {row[1].now.get('uuid') or ''}"
        lines += [((look.fit(heading, width), DIM),)]
        lines += side_by_side(look, gpu_panels(row[1]), now, width, height - 2)
    elif tab == "network":
        lines += side_by_side(look, port_panels(row[1]), now, width, height - 1)
    elif tab == "nodes":
        lines += _node(row, state, look, now, width, height - 1)
    else:
        text = full_text(row) if isinstance(row, Group) else process_text(row)
        lines += [((look.fit(line, width), ""),) for line in wrap_text(look.ascii, text, width)]
        if tab == "processes" and (found := gpu_of(row)) is not None:
            lines += [(), *side_by_side(look, gpu_panels(found[0]), now, width, height - len(lines) - 1)]
        if len(lines) > height:
            lines[height - 1 :] = [((look.fit("more: press Enter", width), DIM),)]
    return (lines + [()] * height)[:height]


def _node(node: Node, state: State, look: Look, now: float, width: int, height: int) -> list[Line]:
    """Returns charts of a node, then its GPUs and its processes where lines are left."""
    lines = side_by_side(look, node_panels(node), now, width, min(height, CHARTS))
    gpus = [row for row in odd_first(state, now) if row[0] is node]
    columns = [column for column in gpu_columns(peers(state, now), now) if column.key != "node"]
    lines += _fill(height - len(lines), columns, gpus, look, width, node.age("gpu", now) is not None)
    processes = [(node, one) for one in node.processes if one.get("role") != "other"]
    columns = [column for column in PROCESSES if column.key != "node"]
    return lines + _fill(height - len(lines), columns, processes, look, width, node.age("process", now) is not None)


def _fill(height: int, columns: Sequence[Column], rows: Sequence[Any], look: Look, width: int, old: bool) -> list[Line]:
    """Returns a blank line and a table of at most `height` lines; nothing where only a few lines are left."""
    return [(), *_table(columns, rows[: height - 2], look, width, old)] if height > 3 and rows else []


def _table(columns: Sequence[Column], rows: Sequence[Any], look: Look, width: int, old: bool = False) -> list[Line]:
    """Returns a title and rows, grey where the values are out of date."""
    fitted = choose(columns, width, rows, look)
    drawn = [[column.cell(row, look) for column, _ in fitted] for row in rows]
    title, _ = title_line(fitted, look, [cell.right for cell in drawn[0]], None, False, False)
    if old:
        drawn = [[one._replace(style=DIM) for one in cells] for cells in drawn]
    return [title, *(row_line(cells, fitted, look) for cells in drawn)]


def _overview(state: State, look: Look, now: float, width: int, height: int) -> list[Line]:
    """Returns charts of all nodes, then processes where lines are left."""
    rows = [(node, one) for node in state.nodes.values() for one in node.processes if one.get("role") != "other"]
    most = CHARTS if rows and height >= CHARTS + 6 else height - 1
    charts = side_by_side(look, job_panels(state, now), now, width, most)
    lines: list[Line] = [(), *charts] if charts else []
    left = height - len(lines) - 2
    if left >= 3 and rows:
        columns = [column for column in PROCESSES if column.key != "node" or len(state.nodes) > 1]
        lines += [(), *_table(columns, rows[:left], look, width)]
    return lines
