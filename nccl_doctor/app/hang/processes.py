"""Samples the processes of a node that matter to a job: its ranks, all processes on GPUs, and the programs that started the ranks."""

import os
import re
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from nccl_doctor.node.host import job_processes

MIB = 1 << 20
RANKS_EVERY = 5.0  # seconds between two searches for ranks, at least
RANKS_SHARE = 200.0  # pause after a search for ranks, as a multiple of its CPU time
DEPTH = 8  # programs above a rank, at most
_CONTAINER = re.compile(
    r"(?:docker|cri-containerd|crio|libpod)[-/]([0-9a-f]{12})[0-9a-f]{52}|/kubepods\S{0,900}/([0-9a-f]{12})[0-9a-f]{52}"
)


class Processes:
    """Resource use, CPU binding and state of processes; `on_gpus` returns the processes that the driver sees on GPUs."""

    def __init__(self, on_gpus: Callable[[], Collection[int]] = tuple) -> None:
        import psutil

        self._psutil = psutil
        self._on_gpus = on_gpus
        self._known: dict[int, Any] = {}
        self._moved: dict[int, tuple[int, float]] = {}  # pid -> context switches of the main thread, since when
        self._ranks: list[job_processes.RankProcess] = []
        self._above: list[int] = []  # programs that started ranks
        self._next = 0.0
        self._steps: Any = None  # a JobSteps once there is a rank

    def read(self) -> dict[str, Any]:
        """Returns the current sample; `role` is rank, gpu or other, `steps` are those of jobs that write to a file."""
        if time.monotonic() >= self._next:
            before = time.thread_time()
            self._ranks = job_processes.find().ranks
            self._above = self._find_above()
            self._next = time.monotonic() + max(RANKS_EVERY, RANKS_SHARE * (time.thread_time() - before))
        ranks = {one.pid: one for one in self._ranks}
        others = {**dict.fromkeys(self._above, "other"), **dict.fromkeys(self._on_gpus(), "gpu")}
        found = [self._rank(one) for one in ranks.values()]
        found += [self._record(pid, role) for pid, role in others.items() if pid not in ranks]
        for pid in self._known.keys() - ranks.keys() - others.keys():
            self._forget(pid)
        return {
            "processes": [record for record in found if record is not None],
            "steps": self._read_steps(),
        }

    def _read_steps(self) -> list[dict[str, Any]]:
        """Returns the steps of the jobs on this node; what reads them is imported when there is a rank."""
        if self._steps is None and self._ranks:
            from nccl_doctor.app.hang.steps import JobSteps

            self._steps = JobSteps()
        return self._steps.read(self._ranks, time.time()) if self._steps is not None else []

    def _find_above(self) -> list[int]:
        """Returns the processes between the ranks and the first process of the node, a launcher for example."""
        above: dict[int, None] = {}
        for one in self._ranks:
            pid = one.pid
            for _ in range(DEPTH):
                try:
                    pid = self._process(pid).ppid()
                except self._psutil.Error:
                    break
                if pid <= 1 or pid in above:
                    break
                above[pid] = None
        return list(above)

    def _process(self, pid: int) -> Any:
        return self._known.get(pid) or self._known.setdefault(pid, self._psutil.Process(pid))

    def _forget(self, pid: int) -> None:
        self._known.pop(pid, None)
        self._moved.pop(pid, None)

    def _rank(self, one: job_processes.RankProcess) -> dict[str, Any] | None:
        record, since = self._record(one.pid, "rank"), self._since(one.pid)
        if record is None or since is None:
            return None
        return {
            **record, "rank": one.rank, "local_rank": one.local_rank, "world": one.world, "job": one.job, "name": one.name,
            "recording": Path(one.recording).name if one.recording else None,
            "since": since, "quiet": _quiet(one.pid), "waited": _waited(one.pid), "command": one.command[:200],
        }  # fmt: skip

    def _record(self, pid: int, role: str) -> dict[str, Any] | None:
        """Returns what one process uses; None where it has ended. Of a command only the program and its first argument."""
        try:
            process = self._process(pid)
            with process.oneshot():
                words = process.cmdline()[:2] if role != "rank" else []
                return {
                    "pid": pid, "ppid": process.ppid(), "role": role, "user": process.username(), "state": process.status(),
                    "cpu": process.cpu_percent(None), "memory": mib(process.memory_info().rss),
                    "threads": process.num_threads(), "age": round(max(time.time() - process.create_time(), 0.0)),
                    "cpus": _folded(process.cpu_affinity()), "container": _container(pid),
                    "command": " ".join(words)[:200] or process.name(),
                }  # fmt: skip
        except self._psutil.Error:
            self._forget(pid)
            return None

    def _since(self, pid: int) -> float | None:
        """Returns when the main thread of a process was last seen to wake up, in seconds since the epoch."""
        try:
            switches = self._process(pid).num_ctx_switches().voluntary
        except self._psutil.Error:
            return None
        before = self._moved.get(pid)
        if before is None or before[0] != switches:
            self._moved[pid] = before = switches, round(time.time(), 1)
        return before[1]


def mib(number: int | None) -> float | None:
    """Returns bytes as MiB."""
    return round(number / MIB, 1) if number is not None else None


def _folded(cpus: list[int]) -> str:
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in parts)


def _quiet(pid: int) -> float | None:
    """Returns seconds since a process wrote to stdout; None if stdout is not a file."""
    try:
        output = os.stat(f"/proc/{pid}/fd/1")  # noqa: PTH116
    except OSError:
        return None
    return round(max(time.time() - output.st_mtime, 0.0), 1) if stat.S_ISREG(output.st_mode) else None


def _waited(pid: int) -> float | None:
    """Returns the seconds that the main thread of a process was ready and had no processor (scheduler/sched-stats.rst)."""
    try:
        return round(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9, 3)
    except (OSError, ValueError, IndexError):
        return None


def _container(pid: int) -> str | None:
    """Returns the first twelve digits of the container id in the cgroup name of docker, containerd or CRI-O."""
    try:
        found = _CONTAINER.search(Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace"))
    except OSError:
        return None
    return (found[1] or found[2]) if found else None
