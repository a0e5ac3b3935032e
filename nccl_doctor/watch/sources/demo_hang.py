"""What the stacks and NCCL's RAS say of the invented job after a rank stopped in its data loader."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from nccl_doctor.app.hang.frames import read_stack

PROGRAM = "python train.py --config pretrain.yaml"
WAITING = """\
Process {pid}: {program}
Python v3.11.9 (/usr/bin/python3.11)

Thread {pid} (active): "MainThread"
    all_reduce (/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2810)
    wrapper (/opt/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:81)
    reduce_gradients (/home/trainer/train.py:61)
    train (/home/trainer/train.py:88)
    <module> (/home/trainer/train.py:140)
"""
LOADING = """\
Process {pid}: {program}
Python v3.11.9 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    wait (/usr/lib/python3.11/threading.py:331)
    get (/usr/lib/python3.11/queue.py:180)
    _try_get_data (/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py:1243)
    __next__ (/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py:708)
    next (/home/trainer/loader.py:8)
    train (/home/trainer/train.py:84)
    <module> (/home/trainer/train.py:140)
"""
RAS = """\
NCCL version 2.27.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  MISMATCH

Errors
======

#0-0 (5a1c3e7f2b90d4e6) MISMATCH
  Communicator ranks have different collective operation counts
  15 ranks have launched up to operation 48211
  1 rank has launched up to operation 48210
  Rank 13 -- GPU 5 managed by process 4005 on node gpu-b
"""
NO_RAS_ERROR = RAS.partition("\nErrors\n")[0].replace("MISMATCH", "OK") + "\n"


def stack(pid: int, stuck: bool) -> str:
    """Returns what py-spy would print of a rank after the stop."""
    return (LOADING if stuck else WAITING).format(pid=pid, program=PROGRAM)


@lru_cache(64)
def _reading(pid: int, stuck: bool) -> dict[str, Any]:
    return read_stack(stack(pid, stuck), pid, Path("/nonexistent"))._asdict()


def look(node: str, stamp: str, number: int, since: float, ranks: dict[int, int], stuck_rank: int) -> dict[str, Any]:
    """Returns a record of the hang monitor; `ranks` are the ranks of the node by process id."""
    return {
        "kind": "hang", "hostname": node, "query_time": stamp, "job": "81234", "look": number, "world": 16, "sockets": [],
        "ranks": [
            {"rank": rank, "pid": pid, "gpu": rank % 8, "state": "sleeping" if rank == stuck_rank else "running",
             "since": since, "switches": 9120, "cpu": 31.2, "quiet": 30.0, **_reading(pid, rank == stuck_rank)}
            for pid, rank in ranks.items()
        ],
    }  # fmt: skip


def stacks_text(stopped: bool, stuck_rank: int) -> str:
    """Returns what `nccl-doctor stacks` would show of the invented job."""
    if not stopped:
        return "16 ranks: all are in train (train.py:88) or below it and move; nobody waits for another rank."
    return (
        f"rank {stuck_rank} (gpu-b GPU 5, pid 4005) is outside the collective in which the other 15 ranks wait\n\n"
        f"rank {stuck_rank}\n{_frames(4005, True)}\n\nranks 0-12,14-15\n{_frames(4000, False)}\n"
    )


def _frames(pid: int, stuck: bool) -> str:
    return "\n".join(line for line in _reading(pid, stuck)["text"].splitlines() if line.startswith("    "))
