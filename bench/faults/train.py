"""A training program of gloo ranks in which rank BAD meets a fault at step AT: `torchrun train.py FAULT --bad 2 --at 30`."""

import argparse
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from stalls import FOREVER, STALLS
from torch.utils.data import DataLoader, Dataset

WIRE = {"drop": "loss 1", "loss": "loss 0.1", "delay": "delay 0.1"}  # of a job on two hosts


class Samples(Dataset):  # type: ignore[misc]
    """Random vectors; `stuck_at` is the index at which reading one does not end."""

    def __init__(self, fault: str, stuck_at: int | None) -> None:
        self.fault, self.stuck_at = fault, stuck_at

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.stuck_at:
            self.read_sample()
        return torch.full((64,), float(index % 7))

    def read_sample(self) -> None:
        if self.fault == "slow-loader":
            end = time.monotonic() + FOREVER
            while time.monotonic() < end:
                sum(range(100_000))
        time.sleep(FOREVER)


def compute(model: torch.nn.Module, batch: torch.Tensor, *, busy: bool) -> torch.Tensor:
    """Returns the loss; the time stands for the work of a GPU, or with `busy` is that of a processor."""
    end = time.thread_time() + 0.03
    while busy and time.thread_time() < end:
        pass
    time.sleep(0.0 if busy else 0.03)
    return model(batch).pow(2).mean()  # type: ignore[no-any-return]


def spin() -> None:
    while True:
        pass


def hold_lock() -> None:
    """Sleep in C without giving the interpreter's lock back."""
    ctypes.PyDLL(None).sleep(int(FOREVER))


def save_checkpoint(model: torch.nn.Module, folder: Path) -> None:
    torch.save(model.state_dict(), folder)


def fill_cgroup() -> None:
    """Take more memory than a cgroup of its own has (cgroups(7), version 1 or 2); needs root."""
    two = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup" if two else "/sys/fs/cgroup/memory") / f"fault-{os.getpid()}"
    group.mkdir()
    (group / ("memory.max" if two else "memory.limit_in_bytes")).write_text(str(256 << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    kept = []
    while True:
        kept.append(bytearray(b"x") * (16 << 20))


def share_processor(folder: Path) -> None:
    """Run on one processor from now on, beside three programs that compute there until the job is over."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loop = f"import os\nwhile os.path.exists({str(folder)!r}) and os.getppid() > 1:\n sum(range(100_000))"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", loop, f"--folder={folder}"])


def meet_fault(fault: str, folder: Path, gradient: torch.Tensor) -> torch.Tensor:
    """What happens to rank BAD at step AT, before the gradients are summed."""
    if fault in STALLS:
        STALLS[fault](folder)
    elif fault in ("sleep", "monitored"):
        time.sleep(FOREVER)
    elif fault == "spin":
        spin()
    elif fault == "gil":
        threading.Thread(target=hold_lock, name="uploader").start()
        time.sleep(0.1)
    elif fault == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault in ("exit", "finished"):
        os._exit(3 if fault == "exit" else 0)
    elif fault == "exception":
        raise ValueError("loss is not finite")
    elif fault == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        bytearray(16 << 30)
    elif fault == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        print(len([os.open("/dev/null", os.O_RDONLY) for _ in range(100)]))
    elif fault == "cgroup":
        fill_cgroup()
    elif fault == "shm":
        Path("/dev/shm/full").write_bytes(bytes(os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize))
    elif fault == "hog":
        share_processor(folder)
    elif fault == "order":
        dist.broadcast(torch.zeros(1), src=0)
    elif fault == "shape":
        return torch.zeros(gradient.numel() * 2)
    elif fault == "checkpoint":
        os.mkfifo(folder / f"pipe{os.getpid()}")  # nobody reads it: writing does not end
        save_checkpoint(torch.nn.Linear(2048, 2048), folder / f"pipe{os.getpid()}")
    return gradient


def pause_healthily(kind: str, rank: int, step: int, at: int) -> None:
    """The pauses of jobs that are well."""
    if kind == "slow-start" and step == 0:
        time.sleep(8.0 + rank)  # every rank reads its own part of a checkpoint
    elif kind == "evaluation" and step % 50 == 49:
        time.sleep(4.0 if rank == 0 else 0.5)
    elif kind == "uneven":
        time.sleep(0.1 * ((step * 7 + rank * 3) % 5))
    elif kind == "accumulation":
        time.sleep(0.3)  # the steps in between have no collective
    elif kind == "compile" and step == at:
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            sum(range(10_000))


def note_fault(folder: Path) -> None:
    (folder / "fault").write_text(str(time.time()))


def train(arguments: argparse.Namespace) -> None:
    rank, fault = dist.get_rank(), arguments.fault
    bad = rank == arguments.bad
    stuck = "loader" in fault and bad
    world = dist.get_world_size()
    loader = DataLoader(
        Samples(fault, arguments.at * 8 if stuck else None),
        batch_size=8,
        num_workers=int(fault == "loader-worker" or (fault == "shm" and bad)),
    )
    model = torch.nn.Linear(64, 64)
    groups = [None, dist.new_group()] if fault == "groups" else [None]
    began = time.monotonic()
    for step, batch in enumerate(loader):
        if step == arguments.steps:
            break
        loss = compute(model, batch, busy=fault == "hog" and bad)
        gradient = torch.ones(10_000) * float(loss.detach())
        pause_healthily(fault, rank, step, arguments.at)
        if step == arguments.at:
            if rank == 0:
                note_fault(arguments.folder)
                if fault in WIRE:
                    (arguments.folder / "wire").write_text(WIRE[fault])
            if bad:
                gradient = meet_fault(fault, arguments.folder, gradient)
        if fault == "monitored" and step == arguments.at:
            dist.monitored_barrier(timeout=timedelta(seconds=FOREVER))
        for group in reversed(groups) if fault == "groups" and step >= arguments.at and bad else groups:
            dist.all_reduce(gradient, group=group)
        if not (fault == "skip" and bad and step == arguments.at):
            dist.all_gather([torch.zeros(1) for _ in range(world)], loss.detach().reshape(1))
        if fault == "pause" and step == arguments.at:
            if rank == 0:
                time.sleep(8)  # a slow checkpoint that ends
            dist.barrier()
        if rank == 0 and step % 2 == 0:
            took = (time.monotonic() - began) / min(step or 1, 2) * 1000
            print(f"iter {step}: loss {float(loss):.4f}, time {took:.2f}ms, mfu 0.00%", flush=True)  # as nanoGPT
            began = time.monotonic()
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--bad", type=int, default=2)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.fault in ("port", "never-joined") and os.environ["RANK"] == "0":
        note_fault(arguments.folder)
    if arguments.fault == "never-joined" and os.environ["RANK"] == str(arguments.bad):
        time.sleep(FOREVER)
    dist.init_process_group("gloo")
    train(arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
