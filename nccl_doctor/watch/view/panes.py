"""Columns of the tables of the screen: title, cell, sort key, and which are dropped first on a narrow screen."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.state import KINDS, Device, Node, State, dicts, number, throttle
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, GOOD, Cell, Column, Look, cell


def _grade(value: float | None, fair: float, bad: float) -> str:
    """Returns the colour of a value that is worse the higher it is."""
    if value is None:
        return DIM
    return BAD if value >= bad else FAIR if value >= fair else ""


GpuRow = tuple[Node, Device]


def _util(row: GpuRow, look: Look) -> Cell:
    util = row[1].last("util")
    if util is None:
        return cell(row[1].now.get("error"), BAD)
    power, limit = row[1].last("power"), number(row[1].now.get("enforced.power.limit"))
    waiting = util >= 95 and power is not None and limit is not None and power <= 0.25 * limit
    return cell(f"{util:3.0f} %", GOOD if util >= 80 and not waiting else FAIR if util >= 25 else BAD, right=True)


def _power(row: GpuRow, look: Look) -> Cell:
    power, limit = row[1].last("power"), number(row[1].now.get("enforced.power.limit"))
    if power is None:
        return cell(None, right=True)
    return cell(f"{power:.0f}/{limit:.0f} W" if limit else f"{power:.0f} W", right=True)


def _memory(row: GpuRow, look: Look) -> Cell:
    used, total = row[1].last("memory"), number(row[1].now.get("memory.total"))
    if used is None or not total:
        return cell(None, right=True)
    return cell(
        f"{used / 1024:.1f}/{total / 1024:.0f}G" if used < 102_400 else f"{used / 1024:.0f}/{total / 1024:.0f}G",
        _grade(used / total, 0.95, 0.99),
        right=True,
    )


def _rate(device: Device, *names: str) -> Cell:
    values = [value for name in names if (value := device.last(name)) is not None]
    return cell(_amount(sum(values)) if values else None, right=True)


def _amount(rate: float) -> str:
    """Returns bytes per second in the largest unit that keeps a digit before the decimal point."""
    for unit in ("B", "K", "M", "G"):
        if rate < 1000:
            return f"{rate:.0f}{unit}" if rate >= 10 or unit == "B" else f"{rate:.1f}{unit}"
        rate /= 1000
    return f"{rate:.1f}T"


def _why(row: GpuRow, look: Look) -> Cell:
    word = throttle(row[1].now.get("clock_reasons"))
    grave = word in ("power brake", "HW thermal", "HW slowdown", "SW thermal")
    return cell(word or "", BAD if grave else DIM)


def _ranks(row: GpuRow) -> list[int]:
    node, gpu = row
    pids = [process.get("pid") for process in dicts(gpu.now.get("processes"))]
    return sorted(rank["rank"] for rank in node.ranks if rank.get("pid") in pids and isinstance(rank.get("rank"), int))


def _rank_of(row: GpuRow) -> str:
    return ",".join(map(str, _ranks(row)))


def _first_rank(row: GpuRow) -> int:
    return min(_ranks(row), default=-1)


GPUS = (
    Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16),
    Column("gpu", "gpu", 3, lambda r, _: cell(r[1].now.get("index"), right=True), lambda r: r[1].now.get("index", 0)),
    Column("util", "util", 5, _util, lambda r: r[1].last("util") or 0),
    Column("history", "history", 10, lambda r, look: cell(look.spark(_values(r[1], "util"), 100, 10)),
           lambda r: r[1].last("util") or 0, 6),
    Column("memory", "memory", 9, _memory, lambda r: r[1].last("memory") or 0, 2),
    Column("power", "power", 9, _power, lambda r: r[1].last("power") or 0, 1),
    Column("temp", "temp", 4, lambda r, _: cell(_degrees(r[1].last("temperature")), _grade(r[1].last("temperature"), 80, 87), True),
           lambda r: r[1].last("temperature") or 0, 3),
    Column("clock", "MHz", 4, lambda r, _: cell(_whole(r[1].last("clock")), right=True), lambda r: r[1].last("clock") or 0, 5),
    Column("why", "throttled by", 12, _why, lambda r: throttle(r[1].now.get("clock_reasons")), 7),
    Column("nvlink", "NVLink/s", 8, lambda r, _: _rate(r[1], "nvlink_rx", "nvlink_tx"), lambda r: r[1].last("nvlink_rx") or 0, 8),
    Column("pcie", "PCIe/s", 6, lambda r, _: _rate(r[1], "pcie_rx", "pcie_tx"), lambda r: r[1].last("pcie_rx") or 0, 9),
    Column("rank", "rank", 4, lambda r, _: cell(_rank_of(r), right=True), lambda r: _first_rank(r), 4),
    Column("model", "model", 12, lambda r, _: cell(r[1].now.get("name"), DIM), lambda r: str(r[1].now.get("name")), 10, 28),
)  # fmt: skip


def _values(device: Device, name: str) -> Iterable[float | None]:
    series = device.series.get(name)
    return series.values if series is not None else ()


def _degrees(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} C"


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


PortRow = tuple[Node, Device]


def _state(row: PortRow, look: Look) -> Cell:
    state = row[1].now.get("state")
    return cell(state, "" if state in ("ACTIVE", "UP") else BAD)


def _port_rate(name: str) -> Callable[[PortRow, Look], Cell]:
    def shown(row: PortRow, look: Look) -> Cell:
        value = row[1].last(name)
        return cell(None if value is None else f"{value:.1f}", right=True)

    return shown


def _errors(row: PortRow, look: Look) -> Cell:
    found = row[1].errors
    return cell(", ".join(f"{name} +{count}" for name, count in found.items()), BAD if found else "")


PORTS = (
    Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16),
    Column("port", "port", 9, lambda r, _: cell(r[1].name), lambda r: r[1].name, 0, 14),
    Column("kind", "kind", 8, lambda r, _: cell(r[1].now.get("kind")), lambda r: str(r[1].now.get("kind")), 4),
    Column("state", "state", 6, _state, lambda r: str(r[1].now.get("state")), 1, 8),
    Column("speed", "Gb/s", 5, lambda r, _: cell(_whole(number(r[1].now.get("speed"))), right=True),
           lambda r: number(r[1].now.get("speed")) or 0, 2),
    Column("rx", "rx Gb/s", 7, _port_rate("rx"), lambda r: r[1].last("rx") or 0),
    Column("tx", "tx Gb/s", 7, _port_rate("tx"), lambda r: r[1].last("tx") or 0),
    Column("history", "history", 10, lambda r, look: cell(look.spark(_values(r[1], "rx"), number(r[1].now.get("speed")) or 100, 10)),
           lambda r: r[1].last("rx") or 0, 5),
    Column("errors", "new errors", 12, _errors, lambda r: sum(r[1].errors.values()), 3, 60),
)  # fmt: skip

ProcessRow = tuple[Node, dict[str, Any]]


def _process(
    key: str, right: bool = False, style: Callable[[Any], str] = lambda _: ""
) -> Callable[[ProcessRow, Look], Cell]:
    def shown(row: ProcessRow, look: Look) -> Cell:
        value = row[1].get(key)
        return cell(f"{value:.0f}" if isinstance(value, float) else value, style(value), right)

    return shown


def _by(key: str) -> Callable[[ProcessRow], Any]:
    return lambda row: (row[1].get(key) is not None, row[1].get(key) if row[1].get(key) is not None else 0)


def _state_of(row: ProcessRow, look: Look) -> Cell:
    state = row[1].get("state")
    return cell({"disk-sleep": "D blocked"}.get(str(state), state), BAD if state in ("disk-sleep", "zombie") else "")


def _gpu_of(row: ProcessRow) -> Device | None:
    node, rank = row
    for gpu in node.gpus.values():
        if any(process.get("pid") == rank.get("pid") for process in dicts(gpu.now.get("processes"))):
            return gpu
    return None


def _near(row: ProcessRow, look: Look) -> Cell:
    """Returns whether the process is bound to cores near its GPU."""
    gpu = _gpu_of(row)
    if gpu is None:
        return cell(None)
    allowed, near = cpu_set(row[1].get("cpus")), cpu_set(gpu.now.get("cpus"))
    if not allowed or not near:
        return cell(gpu.name)
    if allowed <= near:
        return cell(f"{gpu.name} near")
    return cell(f"{gpu.name} FAR" if not allowed & near else f"{gpu.name} partly", BAD if not allowed & near else FAIR)


def cpu_set(text: Any) -> frozenset[int]:
    """Returns `0-3,8` as numbers; empty for anything else."""
    cpus: set[int] = set()
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or int(last or first) > 1 << 14:
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


PROCESSES = (
    Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16),
    Column("rank", "rank", 4, _process("rank", True), _by("rank")),
    Column("pid", "pid", 7, _process("pid", True), _by("pid")),
    Column("user", "user", 8, _process("user"), _by("user"), 3),
    Column("state", "state", 9, _state_of, _by("state"), 1),
    Column("cpu", "CPU %", 5, _process("cpu", True), _by("cpu"), 1),
    Column("memory", "MiB", 6, _process("memory", True), _by("memory"), 2),
    Column("gpu", "GPU's NUMA", 11, _near, lambda r: _near(r, Look()).plain, 4),
    Column("cpus", "cores", 9, _process("cpus"), _by("cpus"), 7, 12),
    Column("job", "job", 7, _process("job"), _by("job"), 5, 10),
    Column("container", "container", 12, _process("container"), _by("container"), 8),
    Column("command", "command", 16, _process("command"), _by("command"), 6, 200),
)

STYLES = {"error": BAD, "warning": FAIR, "note": "cyan"}


def _severity(episode: Episode, look: Look) -> Cell:
    if episode.over:
        return cell("over", DIM)
    return cell(episode.finding.severity, STYLES.get(episode.finding.severity, ""))


def _severity_rank(episode: Episode) -> int:
    return SEVERITY_RANKS.get(episode.finding.severity, 3)


SEVERITY_RANKS = {"error": 0, "warning": 1, "note": 2}
FINDINGS = (
    Column("severity", "severity", 8, _severity, _severity_rank),
    Column("first", "since", 8, lambda e, _: cell(clock(e.first)), lambda e: e.first),
    Column("last", "until", 8, lambda e, _: cell(clock(e.last) if e.over else "now", DIM if e.over else ""), lambda e: e.last, 1),
    Column("hosts", "where", 8, lambda e, _: cell(e.finding.hosts or "-"), lambda e: e.finding.hosts, 2, 20),
    Column("name", "finding", 22, lambda e, _: cell(e.finding.name), lambda e: e.finding.name, 0, 30),
    Column("message", "message", 20, lambda e, _: cell(e.finding.message), lambda e: e.finding.message, 3, 300),
)  # fmt: skip


def _mean(node: Node, name: str) -> float | None:
    values = [value for gpu in node.gpus.values() if (value := gpu.last(name)) is not None]
    return sum(values) / len(values) if values else None


def _lowest(node: Node) -> float | None:
    return min((value for gpu in node.gpus.values() if (value := gpu.last("util")) is not None), default=None)


def _sum(node: Node, name: str) -> float | None:
    values = [value for gpu in node.gpus.values() if (value := gpu.last(name)) is not None]
    return sum(values) if values else None


def _highest(node: Node) -> float | None:
    return max((value for gpu in node.gpus.values() if (value := gpu.last("temperature")) is not None), default=None)


def _total(node: Node, way: str) -> float:
    return sum(port.last(way) or 0.0 for port in node.ports.values())


def short_time(seconds: float) -> str:
    """Returns `42s`, `17m` or `5h`."""
    return (
        f"{seconds:.0f}s" if seconds < 100 else f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"
    )


def node_state(node: Node, now: float) -> tuple[int, str]:
    """Returns how bad the state of a node is (0 to 3) and a description: `(3, "gone: Connection refused")`."""
    if node.gone is not None:
        return 3, f"gone: {node.gone}"
    silent = {kind: seconds for kind in KINDS if (seconds := node.silent(kind, now)) is not None}
    if len(silent) == len(KINDS):
        return 3, f"no answer for {min(silent.values()):.0f} s"
    if silent:
        kind, seconds = max(silent.items(), key=lambda item: item[1])
        return 2, f"{kind}: no answer for {seconds:.0f} s"
    if node.problems:
        kind, problem = next(iter(node.problems.items()))
        return 1, f"{kind}: {' '.join(problem.split())}"
    return 0, "ok"


def node_columns(now: float) -> tuple[Column, ...]:
    """Returns the columns of the table of nodes; values that are out of date are left out."""

    def fresh(kind: str, value: Callable[[Node], float | None]) -> Callable[[Node], float | None]:
        return lambda node: value(node) if node.age(kind, now) is None else None

    def percent(name: str, value: Callable[[Node], float | None], rank: int) -> Column:
        return Column(name, name, 5, lambda n, _: cell(_percent(value(n)), right=True), lambda n: value(n) or 0, rank)

    def lowest(node: Node, look: Look) -> Cell:
        value = low(node)
        return cell(_percent(value), BAD if value is not None and value < 25 else "", True)

    def state(node: Node, look: Look) -> Cell:
        badness, description = node_state(node, now)
        return cell(description, ("", FAIR, BAD, BAD)[badness])

    low, power, hottest = fresh("gpu", _lowest), fresh("gpu", lambda n: _sum(n, "power")), fresh("gpu", _highest)
    traffic = fresh("port", lambda n: _total(n, "rx") + _total(n, "tx"))

    def new_errors(node: Node) -> int:
        return sum(sum(port.errors.values()) for port in node.ports.values())

    return (
        Column("node", "node", 10, lambda n, _: cell(n.name), lambda n: n.name, 0, 24),
        Column("gpus", "GPUs", 4, lambda n, _: cell(len(n.gpus), right=True), lambda n: len(n.gpus)),
        percent("util", fresh("gpu", lambda n: _mean(n, "util")), 0),
        Column("lowest", "low", 5, lowest, lambda n: low(n) or 0),
        Column("power", "watt", 5, lambda n, _: cell(_whole(power(n)), right=True), lambda n: power(n) or 0, 4),
        Column("temp", "hottest", 7, lambda n, _: cell(_degrees(hottest(n)), _grade(hottest(n), 80, 87), True),
               lambda n: hottest(n) or 0, 3),
        Column("net", "net Gb/s", 8, lambda n, _: cell(None if (rate := traffic(n)) is None else f"{rate:.1f}", right=True),
               lambda n: traffic(n) or 0, 2),
        Column("errors", "errors", 6, lambda n, _: cell(new_errors(n) or "", BAD, True), new_errors, 5),
        percent("CPU", fresh("host", lambda n: n.host.last("cpu")), 6),
        Column("state", "state", 28, state, lambda n: node_state(n, now), 1, 100),
    )  # fmt: skip


def bad_first(state: State, now: float) -> list[Node]:
    """Returns nodes that do not answer before the others, which keep their order."""
    return sorted(state.nodes.values(), key=lambda node: -node_state(node, now)[0])


def worst_first(state: State, now: float) -> list[Node]:
    return sorted(state.nodes.values(), key=lambda node: (-node_state(node, now)[0], _lowest(node) or 0.0, node.name))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} %"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def episodes(all_episodes: Iterable[Episode]) -> list[Episode]:
    """Returns episodes sorted: current before over, then by severity, then the newest first."""
    return sorted(all_episodes, key=lambda e: (e.over, _severity_rank(e), -e.first))
