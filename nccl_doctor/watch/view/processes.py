"""The table of processes: ranks, other processes on GPUs, and the programs that started them."""

from collections.abc import Callable
from typing import Any

from nccl_doctor.watch.series import Device, dicts, number
from nccl_doctor.watch.state import Node
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, Cell, Column, Look, cell, short_time

ProcessRow = tuple[Node, dict[str, Any]]
BLOCKED = ("disk-sleep", "zombie", "stopped", "tracing-stop")


def _value(key: str, right: bool = False) -> Callable[[ProcessRow, Look], Cell]:
    def shown(row: ProcessRow, look: Look) -> Cell:
        value = row[1].get(key)
        return cell(f"{value:.0f}" if isinstance(value, float) else value, "", right)

    return shown


def _by(key: str) -> Callable[[ProcessRow], Any]:
    return lambda row: (row[1].get(key) is not None, row[1].get(key) if row[1].get(key) is not None else 0)


def _state(row: ProcessRow, look: Look) -> Cell:
    state = row[1].get("state")
    return cell(
        {"disk-sleep": "D blocked", "stopped": "T stopped"}.get(str(state), state), BAD if state in BLOCKED else ""
    )


def gpu_of(row: ProcessRow) -> tuple[Device, dict[str, Any]] | None:
    """Returns the GPU that a process is on, and what the driver says of the process there."""
    node, process = row
    for gpu in node.gpus.values():
        for one in dicts(gpu.now.get("processes")):
            if one.get("pid") == process.get("pid"):
                return gpu, one
    return None


def _on_gpu(key: str) -> Callable[[ProcessRow], float | None]:
    def value(row: ProcessRow) -> float | None:
        found = gpu_of(row)
        return number(found[1].get(key)) if found is not None else None

    return value


gpu_memory, sm_share = _on_gpu("gpu_memory_usage"), _on_gpu("sm")


def _gpu_memory(row: ProcessRow, look: Look) -> Cell:
    used = gpu_memory(row)
    return cell(None if used is None else f"{used / 1024:.1f}G", right=True)


def _sm(row: ProcessRow, look: Look) -> Cell:
    share = sm_share(row)
    return cell(None if share is None else f"{share:.0f}", right=True)


def _memory(row: ProcessRow, look: Look) -> Cell:
    used = number(row[1].get("memory"))
    return cell(None if used is None else f"{used / 1024:.1f}G" if used >= 1024 else f"{used:.0f}M", right=True)


def _time(row: ProcessRow, look: Look) -> Cell:
    age = number(row[1].get("age"))
    return cell(None if age is None else short_time(age), right=True)


def near(row: ProcessRow, look: Look) -> Cell:
    """Returns the GPU of a process and whether the process is bound to cores near it."""
    found = gpu_of(row)
    if found is None:
        return cell(None)
    gpu = found[0]
    allowed, close = cpu_set(row[1].get("cpus")), cpu_set(gpu.now.get("cpus"))
    if not allowed or not close:
        return cell(gpu.name)
    if allowed <= close:
        return cell(f"{gpu.name} near")
    return cell(
        f"{gpu.name} FAR" if not allowed & close else f"{gpu.name} partly", BAD if not allowed & close else FAIR
    )


def cpu_set(text: Any) -> frozenset[int]:
    """Returns `0-3,8` as numbers; empty for anything else."""
    cpus: set[int] = set()
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or int(last or first) > 1 << 14:
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _command(row: ProcessRow, look: Look) -> Cell:
    depth = row[1].get("depth")
    branch = ("  " * (depth - 1) + ("`- " if look.ascii else "└─ ")) if isinstance(depth, int) and depth else ""
    return cell(f"{branch}{row[1].get('command') or ''}", "" if row[1].get("rank") is not None else DIM)


PROCESSES = (
    Column("node", "node", 8, lambda r, _: cell(r[0].name), lambda r: r[0].name, 0, 16, "n"),
    Column("rank", "rank", 4, _value("rank", True), _by("rank"), letter="r"),
    Column("pid", "pid", 7, _value("pid", True), _by("pid"), letter="p"),
    Column("user", "user", 7, _value("user"), _by("user"), 1, 10, "u"),
    Column("gpu", "GPU", 10, near, lambda r: near(r, Look()).plain, 2, 12, "g"),
    Column("gpumem", "GPU mem", 7, _gpu_memory, lambda r: gpu_memory(r) or 0, 1, letter="m"),
    Column("sm", "SM %", 4, _sm, lambda r: sm_share(r) or 0, 4, letter="s"),
    Column("cpu", "CPU %", 5, _value("cpu", True), _by("cpu"), 1, letter="c"),
    Column("state", "state", 9, _state, _by("state"), 2, letter="a"),
    Column("time", "time", 4, _time, _by("age"), 5, letter="t"),
    Column("memory", "memory", 6, _memory, _by("memory"), 6, letter="e"),
    Column("job", "job", 7, _value("job"), _by("job"), 7, 12, "j"),
    Column("container", "container", 9, _value("container"), _by("container"), 9, 12, "o"),
    Column("cpus", "cores", 9, _value("cpus"), _by("cpus"), 10, 12, "k"),
    Column("command", "command", 12, _command, _by("command"), 3, 200, "d"),
)


def in_tree(rows: list[ProcessRow]) -> list[ProcessRow]:
    """Returns processes sorted by node, each below the one that started it, with its depth."""
    known = {(node.name, pid) for node, process in rows if (pid := number(process.get("pid"))) is not None}
    below: dict[tuple[str, float] | None, list[ProcessRow]] = {}
    for node, process in rows:
        pid, parent = number(process.get("pid")), number(process.get("ppid"))
        key = (node.name, parent) if parent is not None and parent != pid and (node.name, parent) in known else None
        below.setdefault(key, []).append((node, process))
    ordered: list[ProcessRow] = []
    while below:  # a second time only where a node sends processes that started each other
        start = None if None in below else next(iter(below))
        pending = [(row, 0) for row in sorted(below.pop(start), key=_first, reverse=True)]
        while pending:
            (node, process), depth = pending.pop()
            ordered.append((node, {**process, "depth": depth}))
            pid = number(process.get("pid"))
            children = below.pop((node.name, pid), []) if pid is not None else []
            pending += [(row, depth + 1) for row in sorted(children, key=_place, reverse=True)]
    return ordered


def _first(row: ProcessRow) -> tuple[str, str, float, float]:
    return row[0].name, str(row[1].get("job")), *_place(row)


def _place(row: ProcessRow) -> tuple[float, float]:
    return number(row[1].get("rank")) or 0.0, number(row[1].get("pid")) or 0.0
