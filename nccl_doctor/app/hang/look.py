"""One look at the ranks of this node: counters of /proc, stacks, stuck connections, as one record for each job."""

import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nccl_doctor.app.hang import pyspy
from nccl_doctor.app.hang.frames import read_stack
from nccl_doctor.app.hang.sockets import stuck
from nccl_doctor.node.host.job_processes import RankProcess

MAX_PARALLEL = 8
NATIVE_PARALLEL = 2  # each reads the symbols of large libraries
SOCKETS = 4  # connections of a rank that a record keeps
_TICK = 100  # clock ticks a second, USER_HZ of all architectures with GPUs
_STATES = {
    "R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "stopped", "Z": "zombie", "X": "ended",
}  # fmt: skip


def look(
    ranks: Sequence[RankProcess],
    number: int,
    *,
    since: Mapping[int, float] | None = None,
    quiet: Mapping[int, float] | None = None,
    gpus: Mapping[int, int] | None = None,
    native: bool = False,
    seconds: float = 10.0,
    proc: Path = Path("/proc"),
) -> list[dict[str, Any]]:
    """Returns a record of kind `hang` for each job; `since`, `quiet` and `gpus` are what samples say of a process.

    A rank without a stack has a `problem`.
    """
    now = time.time()
    counters = {one.pid: read_counters(one.pid, proc) for one in ranks}
    program = pyspy.program()

    def ask(one: RankProcess) -> tuple[str, str | None]:
        if counters[one.pid]["state"] in ("zombie", "ended"):
            return "", "has ended"
        if program is None:
            return "", "py-spy is not installed: run pip install py-spy"
        return pyspy.dump(program, one.pid, native=native, seconds=seconds)

    with ThreadPoolExecutor(NATIVE_PARALLEL if native else MAX_PARALLEL) as pool:
        answers = list(pool.map(ask, ranks))
    jobs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    worlds: dict[str, int | None] = {}
    sockets: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one, (text, problem) in zip(ranks, answers, strict=True):
        name = one.name
        worlds[name] = one.world
        known: dict[str, Any] = {"rank": one.rank, "pid": one.pid, **counters[one.pid]}
        if problem is not None:
            known["problem"] = problem
        else:
            known |= read_stack(text, one.pid, proc)._asdict()
        for key, values in (("since", since), ("quiet", quiet), ("gpu", gpus)):
            if values is not None and one.pid in values:
                known[key] = values[one.pid]
        jobs[name].append(known)
        sockets[name] += [
            {"rank": one.rank, "pid": one.pid, **held._asdict()} for held in stuck(one.pid, proc)[:SOCKETS]
        ]
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return [
        {"kind": "hang", "hostname": socket.gethostname(), "query_time": stamp, "job": name, "look": number,
         "world": worlds[name], "ranks": found, "sockets": sockets[name]}
        for name, found in jobs.items()
    ]  # fmt: skip


def read_counters(pid: int, proc: Path = Path("/proc")) -> dict[str, Any]:
    """Returns state, CPU seconds and voluntary context switches of the main thread (proc_pid_stat(5), proc_pid_status(5))."""
    try:
        fields = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        status = (proc / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return {"state": "ended"}
    switches = status.partition("\nvoluntary_ctxt_switches:")[2].split("\n")[0].strip()
    return {
        "state": _STATES.get(fields[0], "sleeping"),
        "cpu": (int(fields[11]) + int(fields[12])) / _TICK,
        "switches": int(switches) if switches.isdecimal() else None,
    }
