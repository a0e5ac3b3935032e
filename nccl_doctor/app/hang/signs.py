"""Cheap signs that a job stands still, from the samples of each second; no rules, no stacks.

A job is suspicious while none of its GPUs works and at least half of its ranks on this node have not woken up for some
seconds, or its GPUs spin, or a rank has ended or is stopped while others are left, or its output is silent for much longer than
ever before. A look at the stacks decides.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from nccl_doctor.node.host.job_processes import RankProcess

BLOCKED = 5.0  # seconds for which a main thread did not wake up
SPINS = 8.0  # seconds for which a GPU spins
BROKEN = 3.0  # seconds since a rank ended or was stopped
SILENT = 20.0  # seconds without output, at least
LONGER = 4.0  # times the longest pause in the output before
IDLE_GPU = 5.0  # % utilisation
LOW_POWER = 0.35  # share of the power limit that a GPU draws while a collective's kernel waits
QUIET_LINK = 50e6  # bytes/s on NVLink or PCIe that polling causes


@dataclass
class Job:
    """What the samples show of one job on this node."""

    name: str
    ranks: dict[int, RankProcess] = field(default_factory=dict)  # pid -> rank, those that ended too
    since: dict[int, float] = field(default_factory=dict)  # pid -> when its main thread woke up last
    quiet: dict[int, float] = field(default_factory=dict)  # pid -> seconds since its last output
    broken: dict[int, float] = field(default_factory=dict)  # pid -> since when it is stopped, a zombie or gone
    gpus: dict[int, int] = field(default_factory=dict)  # pid -> GPU
    longest_pause: float = 0.0  # seconds between two outputs of a rank
    spins_since: float | None = None
    works: bool = False  # a GPU of it works
    blocked: float = BLOCKED

    def suspicious(self, now: float) -> bool:
        """Returns whether the job may stand still."""
        left = [pid for pid in self.ranks if pid not in self.broken]
        if not left or self.works:
            return False
        if any(now - at >= BROKEN for at in self.broken.values()):
            return True
        if self.spins_since is not None and now - self.spins_since >= SPINS:
            return True
        blocked = sum(now - self.since.get(pid, now) >= self.blocked for pid in left)
        return 2 * blocked >= len(left) or self._silent()

    def moves(self, now: float) -> bool:
        """Returns whether most ranks have woken up within a moment."""
        left = [pid for pid in self.ranks if pid not in self.broken]
        awake = sum(now - self.since.get(pid, now) < self.blocked / 2 for pid in left)
        return self.works or (self.spins_since is None and not self.broken and 2 * awake > len(left))

    def _silent(self) -> bool:
        silence = min(self.quiet.values(), default=0.0)
        return bool(self.longest_pause) and silence > max(SILENT, LONGER * self.longest_pause)


class Signs:
    """All jobs on this node."""

    def __init__(self, blocked: float = BLOCKED, recording: str | None = None) -> None:
        """With `recording`, only ranks that run under it count: other jobs of the node are not its business."""
        self.jobs: dict[str, Job] = {}
        self._recording = recording
        self._blocked = blocked
        self._gpus: dict[int, dict[str, Any]] = {}

    def add(self, record: dict[str, Any], now: float, silence: float | None = None) -> None:
        """Add a sample of kind `process` or `gpu`; `silence` is how long ago the recorded job wrote its last output."""
        if record.get("kind") == "gpu":
            self._gpus = {gpu["index"]: gpu for gpu in record.get("gpus") or ()}
        elif record.get("kind") == "process" and "processes" in record:
            self._add_ranks(record["processes"], now, silence)

    def _add_ranks(self, processes: list[dict[str, Any]], now: float, silence: float | None) -> None:
        by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in processes:
            if not isinstance(one.get("rank"), int) or not one.get("name"):  # another process on a GPU
                continue
            if self._recording is None or one.get("recording") == self._recording:
                by_job[one["name"]].append(one)
        self.jobs = {name: job for name, job in self.jobs.items() if name in by_job}
        for name, found in by_job.items():
            job = self.jobs.setdefault(name, Job(name, blocked=self._blocked))
            self._add_job(job, found, now, silence)

    def _add_job(self, job: Job, found: list[dict[str, Any]], now: float, silence: float | None) -> None:
        present = {one["pid"]: one for one in found}
        for pid, one in present.items():
            job.ranks[pid] = RankProcess(
                pid, one["rank"], one["local_rank"], one["world"], 0, one["job"], one["command"], one["name"]
            )
            job.since[pid] = one["since"]
            quiet = one["quiet"] if one["quiet"] is not None else silence
            if quiet is not None:
                before = job.quiet.get(pid, 0.0)
                if quiet < before:
                    job.longest_pause = max(job.longest_pause, before)
                job.quiet[pid] = quiet
        replaced = {one["rank"] for one in found}
        for pid, rank in list(job.ranks.items()):
            if pid in present and present[pid]["state"] not in ("stopped", "zombie"):
                job.broken.pop(pid, None)
            elif pid not in present and rank.rank in replaced:  # the launcher has started it again
                del job.ranks[pid]
                job.broken.pop(pid, None)
            else:
                job.broken.setdefault(pid, now)
        self._add_gpus(job, now)

    def _add_gpus(self, job: Job, now: float) -> None:
        job.gpus = {
            task["pid"]: index for index, gpu in self._gpus.items() for task in gpu.get("processes") or ()
            if task.get("pid") in job.ranks
        }  # fmt: skip
        states = [_gpu_state(self._gpus[index]) for index in set(job.gpus.values())]
        job.works = "works" in states
        spins = "spins" in states and not job.works
        job.spins_since = (job.spins_since or now) if spins else None


def _gpu_state(gpu: dict[str, Any]) -> str:
    """Returns whether a GPU works, spins in a collective or idles; `unknown` where NVML does not say."""
    util, power, limit = gpu.get("utilization.gpu"), gpu.get("power.draw"), gpu.get("enforced.power.limit")
    if util is None:
        return "unknown"
    if util <= IDLE_GPU:
        return "idle"
    links = [gpu.get(name) or 0.0 for name in ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")]
    if power is None or not limit:
        return "unknown"
    return "works" if power > LOW_POWER * limit or max(links) > QUIET_LINK else "spins"
