"""Which processes a sample holds: ranks, what started them, and others on GPUs."""

import os
import subprocess
import sys
from types import SimpleNamespace

from helpers.waiting import until

from nccl_doctor.app.hang.processes import Processes
from nccl_doctor.app.hang.signs import Signs
from nccl_doctor.node.gpu.nvml import Nvml

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def start(**more: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP, "--token=secret"], env={**os.environ, **more}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "up\n" == process.stdout.readline()
    return process


def test_ranks_their_launcher_and_other_processes_on_gpus() -> None:
    rank, other = start(RANK="3", WORLD_SIZE="4", LOCAL_RANK="1"), start()
    try:
        processes = Processes(lambda: (other.pid, 2**22 + 1))
        found = {one["pid"]: one for one in processes.read()["processes"]}
        assert ("rank", 3, 4, os.getpid()) == tuple(found[rank.pid][key] for key in ("role", "rank", "world", "ppid"))
        assert "other" == found[os.getpid()]["role"]
        assert "gpu" == found[other.pid]["role"]
        assert f"{sys.executable} -c" == found[other.pid]["command"]  # arguments may hold secrets
        assert 2**22 + 1 not in found
        signs = Signs()
        signs.add({"kind": "process", "processes": list(found.values())}, 0.0)
        assert rank.pid in {pid for job in signs.jobs.values() for pid in job.ranks}
        assert other.pid not in {pid for job in signs.jobs.values() for pid in job.ranks}
        other.kill()
        other.wait()
        until(lambda: other.pid not in {one["pid"] for one in processes.read()["processes"]}, lambda: "still there")
    finally:
        for process in (rank, other):
            process.kill()
            process.wait()


def test_the_newest_share_of_each_process_counts() -> None:
    nvml = object.__new__(Nvml)
    nvml._shares_at = {}
    asked = []

    def get(call: str, handle: object, since: int) -> list[SimpleNamespace]:
        asked.append(since)
        rows = [(7, 100, 30), (7, 200, 50), (8, 150, 0), (9, 300, 4_294_967_295)]
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in rows]

    nvml.get = get  # type: ignore[method-assign]
    assert {7: 50, 8: 0} == nvml.shares(0, None)
    nvml.shares(0, None)
    assert [0, 200] == asked
