"""The table of GPUs, and which of them differ from the others of the job."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from nccl_doctor.watch.series import Device, dicts, number
from nccl_doctor.watch.state import Node, State, throttle
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, GOOD, Cell, Column, Look, cell, grade, rate_cell, whole

GpuRow = tuple[Node, Device]
JUDGED = 10.0  # seconds over which a GPU is compared with the others
APART = 40.0  # points of utilisation that tell a GPU from the others
GRAVE = ("power brake", "HW thermal", "HW slowdown", "SW thermal")


class Peers(NamedTuple):
    """Medians over the GPUs in use, by which one GPU is judged; None where there are fewer than three."""

    util: float | None
    power: float | None


def peers(state: State, now: float) -> Peers:
    """Returns the medians over GPUs that a process uses and whose values are fresh."""
    fresh = [gpu for node, gpu in state.gpus() if node.age("gpu", now) is None]
    used = [gpu for gpu in fresh if _in_use(gpu)]
    return Peers(_median(used, "util"), _median(used, "power"))


def _median(gpus: Iterable[Device], name: str) -> float | None:
    values = [value for gpu in gpus if (value := gpu.lately(name, JUDGED)) is not None]
    return median(values) if len(values) > 2 else None


def _in_use(gpu: Device) -> bool:
    return bool(dicts(gpu.now.get("processes")))


def oddness(row: GpuRow, others: Peers, now: float) -> tuple[int, str]:
    """Returns how much a GPU stands out (0: not at all) and why: `(3, "idle, others 97 %")`."""
    node, gpu = row
    if node.age("gpu", now) is not None:
        return 2, ""
    error, reason = gpu.now.get("error"), throttle(gpu.now.get("clock_reasons"))
    if isinstance(error, str):
        return 5, error
    util, power = gpu.lately("util", JUDGED), gpu.lately("power", JUDGED)
    if _in_use(gpu) and util is not None and others.util is not None and abs(util - others.util) >= APART:
        word = "busy" if util > others.util else "idle" if (gpu.last("util") or 0) < 10 else "slow"
        return 4, f"{word}, others {others.util:.0f} %"
    if reason in GRAVE:
        return 3, reason
    if (gpu.last("temperature") or 0) >= 87:
        return 3, "hot"
    if _in_use(gpu) and power is not None and others.power is not None and power < 0.6 * others.power:
        return 1, f"power, others {others.power:.0f} W"
    return 0, "waits" if waits(gpu) else reason


def waits(gpu: Device) -> bool:
    """Returns whether a GPU is busy without doing work: NCCL's kernels poll while they wait."""
    util, power, limit = gpu.last("util"), gpu.last("power"), number(gpu.now.get("enforced.power.limit"))
    return util is not None and util >= 95 and power is not None and limit is not None and power <= 0.25 * limit


def odd_first(state: State, now: float) -> list[GpuRow]:
    """Returns all GPUs, those that stand out first, then those whose values are out of date."""
    others = peers(state, now)
    return sorted(state.gpus(), key=lambda row: -oddness(row, others, now)[0])


def _util(row: GpuRow, look: Look) -> Cell:
    util = row[1].last("util")
    if util is None:
        return cell("lost" if row[1].now.get("error") else None, BAD, right=True)
    style = GOOD if util >= 80 and not waits(row[1]) else FAIR if util >= 25 else BAD if _in_use(row[1]) else DIM
    return cell(f"{util:3.0f} %", style, right=True)


def _power(row: GpuRow, look: Look) -> Cell:
    power, limit = row[1].last("power"), number(row[1].now.get("enforced.power.limit"))
    if power is None:
        return cell(None, right=True)
    return cell(f"{power:.0f}/{limit:.0f} W" if limit else f"{power:.0f} W", right=True)


def _memory(row: GpuRow, look: Look) -> Cell:
    used, total = row[1].last("memory"), number(row[1].now.get("memory.total"))
    if used is None or not total:
        return cell(None, right=True)
    text = f"{used / 1024:.1f}/{total / 1024:.0f}G" if used < 102_400 else f"{used / 1024:.0f}/{total / 1024:.0f}G"
    return cell(text, grade(used / total, 0.95, 0.99), right=True)


def _degrees(row: GpuRow, look: Look) -> Cell:
    value = row[1].last("temperature")
    return cell(None if value is None else f"{value:.0f} C", grade(value, 80, 87), True)


def _percent(name: str) -> "Column":
    def shown(row: GpuRow, look: Look) -> Cell:
        value = row[1].last(name)
        return cell(None if value is None else f"{value:.0f} %", right=True)

    return Column(name, "mem BW", 6, shown, lambda r: r[1].last(name) or 0, 6, letter="b")


def ranks_of(row: GpuRow) -> list[int]:
    """Returns the ranks whose processes are on a GPU."""
    node, gpu = row
    pids = [process.get("pid") for process in dicts(gpu.now.get("processes"))]
    return sorted(
        {one["rank"] for one in node.processes if one.get("pid") in pids and isinstance(one.get("rank"), int)}
    )


def gpu_columns(others: Peers, now: float) -> tuple[Column, ...]:
    """Returns the columns of the table of GPUs."""

    def note(row: GpuRow, look: Look) -> Cell:
        rank, text = oddness(row, others, now)
        return cell(text, BAD if rank > 2 else FAIR if rank or text == "waits" else DIM)

    def rank(row: GpuRow, look: Look) -> Cell:
        return cell(",".join(map(str, ranks_of(row))), right=True)

    return (
        Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16, "n"),
        Column("gpu", "GPU", 3, lambda r, _: cell(r[1].now.get("index"), right=True), lambda r: r[1].now.get("index", 0),
               letter="g"),
        Column("util", "util", 5, _util, lambda r: r[1].last("util") or 0, letter="u"),
        Column("note", "note", 12, note, lambda r: oddness(r, others, now)[0], 1, 22, "o"),
        Column("power", "power", 9, _power, lambda r: r[1].last("power") or 0, 1, letter="p"),
        Column("rank", "rank", 4, rank, lambda r: min(ranks_of(r), default=-1), 2, letter="r"),
        Column("temp", "temp", 4, _degrees, lambda r: r[1].last("temperature") or 0, 3, letter="t"),
        Column("memory", "memory", 9, _memory, lambda r: r[1].last("memory") or 0, 4, letter="m"),
        Column("clock", "MHz", 4, lambda r, _: cell(whole(r[1].last("clock")), right=True), lambda r: r[1].last("clock") or 0,
               5, letter="c"),
        _percent("mem_util"),
        Column("history", "history", 10, lambda r, look: cell(look.spark(r[1].values("util"), 100, 10), GOOD),
               lambda r: r[1].last("util") or 0, 7, letter="h"),
        Column("nvlink", "NVLink/s", 8, lambda r, _: rate_cell(r[1], "nvlink_rx", "nvlink_tx"),
               lambda r: r[1].last("nvlink_rx") or 0, 8, letter="l"),
        Column("pcie", "PCIe/s", 6, lambda r, _: rate_cell(r[1], "pcie_rx", "pcie_tx"), lambda r: r[1].last("pcie_rx") or 0, 9,
               letter="i"),
        Column("model", "model", 12, lambda r, _: cell(r[1].now.get("name"), DIM), lambda r: str(r[1].now.get("name")), 10, 28,
               "d"),
    )  # fmt: skip
