"""An MPI program in which rank BAD meets a fault at step AT: `mpirun -n 4 python train_mpi.py FAULT --bad 2 --at 30`."""

import argparse
import os
import signal
import time
from pathlib import Path

from mpi4py import MPI

FOREVER = 10_000.0  # seconds


def spin() -> None:
    while True:
        pass


def meet_fault(fault: str, world: MPI.Comm) -> None:
    """What happens to rank BAD at step AT, before the gradients are summed."""
    if fault == "mpi-sleep":
        time.sleep(FOREVER)
    elif fault == "mpi-spin":
        spin()
    elif fault == "mpi-sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "mpi-exit":
        os._exit(3)
    elif fault == "mpi-order":
        world.Bcast(bytearray(8), root=0)


def train(arguments: argparse.Namespace, world: MPI.Comm) -> None:
    rank, fault = world.Get_rank(), arguments.fault
    gradient, total = bytearray(80_000), bytearray(80_000)
    began = time.monotonic()
    for step in range(arguments.steps):
        time.sleep(0.03)  # stands for the work of a GPU
        bad = rank == arguments.bad and step == arguments.at
        if step == arguments.at and rank == 0:
            (arguments.folder / "fault").write_text(str(time.time()))
        if bad:
            meet_fault(fault, world)
        if not (bad and fault == "mpi-skip"):
            world.Allreduce([gradient, MPI.DOUBLE], [total, MPI.DOUBLE])
        world.Barrier()
        if rank == 0 and step % 10 == 0:
            took = (time.monotonic() - began) / (step + 1) * 1000
            print(f"iter {step}: loss 0.0000, time {took:.2f}ms, mfu 0.00%", flush=True)  # as nanoGPT


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--bad", type=int, default=2)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--folder", type=Path, default=Path())
    train(parser.parse_args(), MPI.COMM_WORLD)


if __name__ == "__main__":
    main()
