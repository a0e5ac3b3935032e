"""Records of an invented job on two nodes with eight GPUs each: for `--demo`, documentation and tests.

The first minute is healthy. Then a GPU of the second node throttles because of heat and its peers wait. After two minutes
a rank stops in its DataLoader while all others spin in a collective; the hang monitor looks at the stacks twice. `--demo` begins
a few seconds before that.
"""

import math
import random
from datetime import UTC, datetime
from typing import Any

from nccl_doctor.watch.sources import demo_hang

NODES = ("gpu-a", "gpu-b")
HOT_NODE, HOT_GPU = "gpu-b", 3
STUCK_RANK = 13
NOTEBOOK, NOTEBOOK_AT = 7312, ("gpu-a", 2)  # a process of another user on a GPU of the job
FAR_RANK = 6  # bound to the cores of the other socket
HEATS, STOPS = 60, 120  # seconds after the start
AHEAD = STOPS - 5  # where `--demo` begins
STEP, SLOW_STEP = 0.412, 0.533  # seconds, healthy and beside a GPU that is too hot
LOOKS = {2: 1, 4: 2}  # looks at the stacks by the seconds after the stop
START = 1_780_000_000.0
LAUNCHER, AGE = 3990, 15_120.0  # the process that started the ranks, and how long they run at the start
_MIB_GPU = 81_559


class Demo:
    """Makes records second by second; equal seeds make equal jobs."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._bytes: dict[tuple[str, str, str], int] = {}
        self.second = 0
        self._step = 0.0

    def step(self) -> list[dict[str, Any]]:
        """Returns the records of the next second."""
        self.second += 1
        records = []
        for node in NODES:
            head = {
                "hostname": node, "took": 0.004,
                "query_time": datetime.fromtimestamp(START + self.second, UTC).isoformat(timespec="milliseconds"),
            }  # fmt: skip
            records += [
                {"kind": "gpu", **head, "gpus": [self._gpu(node, gpu) for gpu in range(8)]},
                {"kind": "port", **head, "ports": self._ports(node)},
                {"kind": "host", **head, "host": self._host()},
                {"kind": "process", **head, "processes": self._processes(node), "steps": self._steps(node)},
            ]
            if (number := LOOKS.get(self.second - STOPS)) is not None:
                ranks = {4000 + local: _rank_of(node, local) for local in range(8)}
                stamp = str(head["query_time"])
                records.append(demo_hang.look(node, stamp, number, START + STOPS, ranks, STUCK_RANK))
        return records

    def _gpu(self, node: str, gpu: int) -> dict[str, Any]:
        hot = node == HOT_NODE and gpu == HOT_GPU and self.second > HEATS
        stopped = self.second > STOPS
        stuck = stopped and _rank_of(node, gpu) == STUCK_RANK
        noise = self._random.random()
        temperature = 58 + gpu % 4 + 2 * math.sin(self.second / 20 + gpu)
        if hot:
            temperature = min(temperature + (self.second - HEATS) * 0.6, 89.0)
        if stopped:
            util, power, clock = (0, 75 + noise * 4, 345) if stuck else (100, 118 + noise * 6, 1980)
        elif hot:
            util, power, clock = 100, 380 + 15 * noise, 1095
        else:
            slow = self.second > HEATS
            util, power, clock = int(91 + 8 * noise), (505 if slow else 620) + 40 * noise, 1980
        link = 0.0 if stopped else (1.4e11 if self.second > HEATS else 2.2e11) * (0.9 + 0.2 * noise)
        return {
            "index": gpu, "uuid": f"GPU-{node}-{gpu:012}", "name": "NVIDIA H100 80GB HBM3", "utilization.gpu": util,
            "utilization.memory": util // 2, "memory.used": 61_440.0 + gpu, "memory.total": float(_MIB_GPU),
            "power.draw": round(power, 1), "enforced.power.limit": 700.0, "temperature.gpu": round(temperature),
            "clocks.sm": clock, "clocks.mem": 2619, "clock_reasons": 0x20 | 0x40 if hot else 0,
            "pcie_tx": 2e6 if stopped else 4e9 * noise, "pcie_rx": 2e6 if stopped else 6e9 * noise, "nvlink_tx": link,
            "nvlink_rx": link, "error": None, "cpus": "0-55" if gpu < 4 else "56-111",
            "processes": [
                {"pid": 4000 + gpu, "gpu_memory_usage": 60_900.0, "sm": util},
                *([{"pid": NOTEBOOK, "gpu_memory_usage": 420.0, "sm": 0}] if (node, gpu) == NOTEBOOK_AT else []),
            ],
        }  # fmt: skip

    def _ports(self, node: str) -> list[dict[str, Any]]:
        busy = 0.0 if self.second > STOPS else (0.55 if self.second > HEATS else 0.8)
        ports = []
        for number in range(8):
            ports.append(self._port(node, f"mlx5_{number}/1", "ib", 400.0, busy * (0.95 + 0.1 * self._random.random())))
        return [*ports, self._port(node, "eth0", "ethernet", 25.0, 0.0003)]

    def _port(self, node: str, name: str, kind: str, speed: float, share: float) -> dict[str, Any]:
        counters = {}
        for way in ("rx", "tx"):
            key = (node, name, way)
            self._bytes[key] = self._bytes.get(key, 10**12) + int(speed * 1e9 / 8 * share)
            counters[way] = self._bytes[key]
        errors = {"symbol_error": 0, "link_downed": 0} if kind == "ib" else {"rx_errors": 0, "rx_dropped": 0}
        return {
            "name": name,
            "kind": kind,
            "state": "ACTIVE" if kind == "ib" else "UP",
            **counters,
            "speed": speed,
            "errors": errors,
        }

    def _host(self) -> dict[str, Any]:
        stopped = self.second > STOPS
        return {
            "cpu": (8 if stopped else 34) + 4 * self._random.random(), "cpus": 112, "load": 9.1 if stopped else 38.0,
            "memory_used": 412_000.0, "memory_total": 2_063_000.0, "swap_used": 0.0,
            "disk_read": 10**9 + (0 if stopped else self.second * 400_000_000), "disk_write": 10**9,
            "shm_total": 1_031_000.0, "shm_used": 18_200.0,
        }  # fmt: skip

    def _processes(self, node: str) -> list[dict[str, Any]]:
        """Returns the ranks of a node, the launcher that started them, and a notebook on one of its GPUs."""
        launcher = {
            "pid": LAUNCHER, "ppid": 1, "role": "other", "user": "trainer", "state": "sleeping", "cpu": 0.1, "memory": 310.0,
            "job": "81234", "age": AGE + self.second, "command": "torchrun --nnodes 2 --nproc-per-node 8 train.py",
        }  # fmt: skip
        notebook = {
            "pid": NOTEBOOK, "ppid": 1, "role": "gpu", "user": "guest", "state": "sleeping", "cpu": 0.0, "memory": 1900.0,
            "age": 86_400.0 + self.second, "cpus": "0-111", "container": "3f9ac1d20b77", "command": "python -m ipykernel_launcher",
        }  # fmt: skip
        ranks = [self._rank(node, local) for local in range(8)]
        return [launcher, *ranks, *([notebook] if node == NOTEBOOK_AT[0] else [])]

    def _steps(self, node: str) -> list[dict[str, Any]]:
        """Returns the newest step of the job, which rank 0 writes to a file."""
        running = min(self.second, STOPS)
        seconds = SLOW_STEP if running > HEATS else STEP
        self._step += (1 / seconds) if node == NODES[0] and self.second <= STOPS else 0.0
        took = seconds * (0.98 + 0.04 * self._random.random())
        steps = {"name": "81234", "step": 48_000 + int(self._step), "seconds": took, "at": START + running}
        return [steps] if node == NODES[0] else []

    def _rank(self, node: str, local: int) -> dict[str, Any]:
        rank = _rank_of(node, local)
        stuck = self.second > STOPS and rank == STUCK_RANK
        near = 0 if rank == FAR_RANK else local
        return {
            "pid": 4000 + local, "ppid": LAUNCHER, "role": "rank", "age": AGE + self.second, "rank": rank,
            "local_rank": local, "world": 16, "job": "81234", "user": "trainer",
            "state": "sleeping" if stuck else "running", "cpu": 0.3 if stuck else 100.0, "memory": 24_000.0, "threads": 96,
            "cpus": f"{near * 14}-{near * 14 + 13}", "quiet": max(self.second - STOPS, 1),
            "container": None, "command": demo_hang.PROGRAM,
        }  # fmt: skip

    def answer(self, question: str) -> str:
        """Returns what the programs behind the keys for stacks and RAS would say now."""
        stopped = self.second > STOPS
        if question == "RAS":
            return demo_hang.RAS if stopped else demo_hang.NO_RAS_ERROR
        return demo_hang.stacks_text(stopped, STUCK_RANK)


def _rank_of(node: str, local: int) -> int:
    return NODES.index(node) * 8 + local
