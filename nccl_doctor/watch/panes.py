"""What the tables of the screen show: columns, the width from which they are shown, and the cells of a row."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from nccl_doctor.watch.judge import Episode
from nccl_doctor.watch.state import Device, Node, State, number, throttle

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"
GOOD, FAIR, BAD, DIM = "green", "yellow", "red", "dim"


@dataclass(frozen=True)
class Look:
    """How values are drawn."""

    ascii: bool = False

    @property
    def bars(self) -> str:
        return ASCII_BARS if self.ascii else BARS

    def spark(self, values: Iterable[float | None], top: float, width: int) -> str:
        """The newest values as a row of bars; a blank where a value is missing."""
        newest = list(values)[-width:]
        steps = len(self.bars) - 1
        drawn = [" " if v is None else self.bars[min(max(round(v / top * steps), 0), steps)] for v in newest]
        return "".join(drawn).rjust(width)

    def gauge(self, share: float | None, width: int) -> str:
        """A horizontal bar."""
        if share is None:
            return " " * width
        full = round(min(max(share, 0.0), 1.0) * width)
        return ("#" if self.ascii else "█") * full + ("." if self.ascii else "░") * (width - full)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    title: str
    width: int
    cell: Callable[[Any, Look], Text]
    order: Callable[[Any], Any]  # what rows are sorted by
    least: int = 0  # cells of the screen from which it is shown


def _text(value: object, style: str = "", right: bool = False) -> Text:
    return Text(
        "-" if value is None else str(value),
        style=DIM if value is None else style,
        justify="right" if right else "left",
    )


def _grade(value: float | None, fair: float, bad: float) -> str:
    """Colour of a value that is worse the higher it is."""
    if value is None:
        return DIM
    return BAD if value >= bad else FAIR if value >= fair else ""


GpuRow = tuple[Node, Device]


def _util(row: GpuRow, look: Look) -> Text:
    util = row[1].last("util")
    if util is None:
        return _text(row[1].now.get("error"), BAD)
    return _text(f"{util:3.0f} %", GOOD if util >= 80 else FAIR if util >= 25 else BAD, right=True)


def _power(row: GpuRow, look: Look) -> Text:
    power, limit = row[1].last("power"), number(row[1].now.get("enforced.power.limit"))
    if power is None:
        return _text(None, right=True)
    return _text(f"{power:.0f}/{limit:.0f} W" if limit else f"{power:.0f} W", right=True)


def _memory(row: GpuRow, look: Look) -> Text:
    used, total = row[1].last("memory"), number(row[1].now.get("memory.total"))
    if used is None or not total:
        return _text(None, right=True)
    return _text(f"{used / 1024:.1f}/{total / 1024:.0f}G", _grade(used / total, 0.95, 0.99), right=True)


def _rate(device: Device, *names: str) -> Text:
    values = [value for name in names if (value := device.last(name)) is not None]
    return _text(_amount(sum(values)) if values else None, right=True)


def _amount(rate: float) -> str:
    """Bytes per second in the largest unit that keeps a digit before the point."""
    for unit in ("B", "K", "M", "G"):
        if rate < 1000:
            return f"{rate:.0f}{unit}" if rate >= 10 or unit == "B" else f"{rate:.1f}{unit}"
        rate /= 1000
    return f"{rate:.1f}T"


def _why(row: GpuRow, look: Look) -> Text:
    word = throttle(row[1].now.get("clock_reasons"))
    grave = word in ("power brake", "HW thermal", "HW slowdown", "SW thermal")
    return _text(word or "", BAD if grave else DIM)


def _rank_of(row: GpuRow) -> str:
    node, gpu = row
    pids = {one.get("pid") for one in gpu.now.get("processes") or () if isinstance(one, dict)}
    ranks = sorted(one["rank"] for one in node.ranks if one.get("pid") in pids and isinstance(one.get("rank"), int))
    return ",".join(map(str, ranks))


GPUS = (
    Column("node", "node", 10, lambda r, _: _text(r[0].name[:10]), lambda r: r[0].name),
    Column("gpu", "gpu", 3, lambda r, _: _text(r[1].now.get("index"), right=True), lambda r: r[1].now.get("index", 0)),
    Column("util", "util", 5, _util, lambda r: r[1].last("util") or 0),
    Column("history", "history", 12, lambda r, look: _text(look.spark(_values(r[1], "util"), 100, 12)),
           lambda r: r[1].last("util") or 0, 72),
    Column("memory", "memory", 10, _memory, lambda r: r[1].last("memory") or 0, 50),
    Column("power", "power", 9, _power, lambda r: r[1].last("power") or 0),
    Column("temp", "temp", 5, lambda r, _: _text(_degrees(r[1].last("temperature")), _grade(r[1].last("temperature"), 80, 87), True),
           lambda r: r[1].last("temperature") or 0, 60),
    Column("clock", "MHz", 5, lambda r, _: _text(_whole(r[1].last("clock")), right=True), lambda r: r[1].last("clock") or 0, 66),
    Column("why", "held by", 11, _why, lambda r: throttle(r[1].now.get("clock_reasons")), 78),
    Column("nvlink", "NVLink", 6, lambda r, _: _rate(r[1], "nvlink_rx", "nvlink_tx"), lambda r: r[1].last("nvlink_rx") or 0, 100),
    Column("pcie", "PCIe", 6, lambda r, _: _rate(r[1], "pcie_rx", "pcie_tx"), lambda r: r[1].last("pcie_rx") or 0, 108),
    Column("rank", "rank", 6, lambda r, _: _text(_rank_of(r)), _rank_of, 116),
    Column("model", "model", 24, lambda r, _: _text(r[1].now.get("name"), DIM), lambda r: str(r[1].now.get("name")), 150),
)  # fmt: skip


def _values(device: Device, name: str) -> Iterable[float | None]:
    series = device.series.get(name)
    return series.values if series is not None else ()


def _degrees(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} C"


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


PortRow = tuple[Node, Device]


def _state(row: PortRow, look: Look) -> Text:
    state = row[1].now.get("state")
    return _text(state, "" if state in ("ACTIVE", "UP") else BAD)


def _port_rate(name: str) -> Callable[[PortRow, Look], Text]:
    def cell(row: PortRow, look: Look) -> Text:
        value = row[1].last(name)
        return _text(None if value is None else f"{value:.1f}", right=True)

    return cell


def _errors(row: PortRow, look: Look) -> Text:
    found = row[1].errors
    return _text(", ".join(f"{name} +{count}" for name, count in found.items()), BAD if found else "")


PORTS = (
    Column("node", "node", 10, lambda r, _: _text(r[0].name[:10]), lambda r: r[0].name),
    Column("port", "port", 12, lambda r, _: _text(r[1].name), lambda r: r[1].name),
    Column("kind", "kind", 8, lambda r, _: _text(r[1].now.get("kind")), lambda r: str(r[1].now.get("kind")), 70),
    Column("state", "state", 7, _state, lambda r: str(r[1].now.get("state"))),
    Column("speed", "Gb/s", 5, lambda r, _: _text(_whole(number(r[1].now.get("speed"))), right=True),
           lambda r: number(r[1].now.get("speed")) or 0, 60),
    Column("rx", "rx Gb/s", 7, _port_rate("rx"), lambda r: r[1].last("rx") or 0),
    Column("tx", "tx Gb/s", 7, _port_rate("tx"), lambda r: r[1].last("tx") or 0),
    Column("history", "history", 12, lambda r, look: _text(look.spark(_values(r[1], "rx"), number(r[1].now.get("speed")) or 100, 12)),
           lambda r: r[1].last("rx") or 0, 92),
    Column("errors", "errors since start", 30, _errors, lambda r: sum(r[1].errors.values()), 78),
)  # fmt: skip

ProcessRow = tuple[Node, dict[str, Any]]


def _process(
    key: str, right: bool = False, style: Callable[[Any], str] = lambda _: ""
) -> Callable[[ProcessRow, Look], Text]:
    def cell(row: ProcessRow, look: Look) -> Text:
        value = row[1].get(key)
        return _text(f"{value:.0f}" if isinstance(value, float) else value, style(value), right)

    return cell


def _by(key: str) -> Callable[[ProcessRow], Any]:
    return lambda row: (row[1].get(key) is not None, row[1].get(key) if row[1].get(key) is not None else 0)


PROCESSES = (
    Column("node", "node", 10, lambda r, _: _text(r[0].name[:10]), lambda r: r[0].name),
    Column("rank", "rank", 4, _process("rank", True), _by("rank")),
    Column("pid", "pid", 8, _process("pid", True), _by("pid")),
    Column("user", "user", 9, _process("user"), _by("user"), 70),
    Column("state", "state", 10, _process("state", style=lambda v: BAD if v == "disk-sleep" else ""), _by("state")),
    Column("cpu", "CPU %", 5, _process("cpu", True), _by("cpu")),
    Column("memory", "MiB", 7, _process("memory", True), _by("memory"), 60),
    Column("cpus", "cores", 10, _process("cpus"), _by("cpus"), 90),
    Column("job", "job", 8, _process("job"), _by("job"), 80),
    Column("container", "container", 12, _process("container"), _by("container"), 130),
    Column("command", "command", 40, _process("command"), _by("command"), 100),
)

STYLES = {"error": BAD, "warning": FAIR, "note": "cyan"}


def _how_bad(episode: Episode, look: Look) -> Text:
    if episode.over:
        return _text("over", DIM)
    return _text(episode.finding.severity, STYLES.get(episode.finding.severity, ""))


FINDINGS = (
    Column("severity", "how bad", 8, _how_bad, lambda e: e.finding.severity),
    Column("first", "since", 8, lambda e, _: _text(clock(e.first)), lambda e: e.first),
    Column("hosts", "where", 12, lambda e, _: _text(e.finding.hosts), lambda e: e.finding.hosts, 60),
    Column("name", "what", 24, lambda e, _: _text(e.finding.name), lambda e: e.finding.name),
    Column("message", "message", 90, lambda e, _: _text(e.finding.message), lambda e: e.finding.message, 78),
)  # fmt: skip


def _mean(node: Node, name: str) -> float | None:
    values = [value for gpu in node.gpus.values() if (value := gpu.last(name)) is not None]
    return sum(values) / len(values) if values else None


def _lowest(node: Node) -> float | None:
    return min((value for gpu in node.gpus.values() if (value := gpu.last("util")) is not None), default=None)


def _total(node: Node, way: str) -> float:
    return sum(port.last(way) or 0.0 for port in node.ports.values())


def node_state(node: Node, now: float) -> tuple[int, str]:
    """(how bad, words): worst first is how nodes are sorted."""
    if node.gone is not None:
        return 3, f"gone: {node.gone}"
    silent = {kind: seconds for kind in node.heard if (seconds := node.silent(kind, now)) is not None}
    if silent:
        kind, seconds = max(silent.items(), key=lambda item: item[1])
        return 2, f"{kind}: no answer since {seconds:.0f} s"
    if node.problems:
        kind, problem = next(iter(node.problems.items()))
        return 1, f"{kind}: {problem}"
    return 0, "ok"


def node_columns(now: float) -> tuple[Column, ...]:
    """The overview of nodes, one line each."""

    def percent(name: str, value: Callable[[Node], float | None]) -> Column:
        return Column(name, name, 5, lambda n, _: _text(_percent(value(n)), right=True), lambda n: value(n) or 0)

    def lowest(node: Node, look: Look) -> Text:
        value = _lowest(node)
        return _text(_percent(value), BAD if value is not None and value < 25 else "", True)

    def state(node: Node, look: Look) -> Text:
        bad, words = node_state(node, now)
        return _text(words, ("", FAIR, BAD, BAD)[bad])

    def traffic(node: Node) -> float:
        return _total(node, "rx") + _total(node, "tx")

    return (
        Column("node", "node", 16, lambda n, _: _text(n.name), lambda n: n.name),
        Column("gpus", "GPUs", 4, lambda n, _: _text(len(n.gpus), right=True), lambda n: len(n.gpus)),
        percent("util", lambda n: _mean(n, "util")),
        Column("lowest", "low", 5, lowest, lambda n: _lowest(n) or 0),
        Column("temp", "temp", 5, lambda n, _: _text(_degrees(_mean(n, "temperature")), right=True),
               lambda n: _mean(n, "temperature") or 0, 70),
        Column("net", "net Gb/s", 8, lambda n, _: _text(f"{traffic(n):.1f}", right=True), traffic, 60),
        percent("CPU", lambda n: n.host.last("cpu")),
        Column("state", "state", 40, state, lambda n: node_state(n, now)),
    )  # fmt: skip


def worst_first(state: State) -> list[Node]:
    return sorted(
        state.nodes.values(), key=lambda node: (-node_state(node, state.now)[0], _lowest(node) or 0.0, node.name)
    )


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} %"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def episodes(found: Iterable[Episode]) -> list[Episode]:
    """What holds now before what is over, the gravest first, the newest first."""
    grave = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda e: (e.over, grave.get(e.finding.severity, 3), -e.first))


def host_line(node: Node, look: Look) -> Text:
    """Processors, memory, /dev/shm and disks of a node in one line."""
    now = node.host.now
    cpu, used, total = number(now.get("cpu")), number(now.get("memory_used")), number(now.get("memory_total"))
    shm, shm_total = number(now.get("shm_used")), number(now.get("shm_total"))
    parts = [f"{node.name}: CPU {look.gauge(cpu / 100 if cpu is not None else None, 10)} {cpu or 0:3.0f} %"]
    if used is not None and total:
        parts.append(f"memory {look.gauge(used / total, 10)} {used / 1024:.0f}/{total / 1024:.0f} GiB")
    if shm is not None and shm_total:
        parts.append(f"/dev/shm {shm / shm_total:.0%}")
    disk = [node.host.last(name) for name in ("disk_read", "disk_write")]
    if disk[0] is not None and disk[1] is not None:
        parts.append(f"disk {disk[0]:.0f}+{disk[1]:.0f} MiB/s")
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
