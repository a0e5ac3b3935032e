"""Throughput and memory of `analyze` on two large logs, beside `grep -c NCCL` on the same file in the same run.

    python bench/logs.py [--size MIB] [--keep FOLDER]

`channels` is the start of a job of some thousand ranks with four communicators each: two thirds or more of its lines are
Channel lines. `training` is rank-labelled training output with the start of a small job at its head.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CHANNELS = 24
COMMUNICATORS = 4


def channels() -> Iterator[str]:
    """The lines of one rank after another, without end."""
    rank = 0
    while True:
        host, local = f"node{rank // 8:05d}", rank % 8
        pid = 40_000 + local
        lines = [
            f"Bootstrap : Using eth0:10.{rank // 2048 % 250}.{rank // 8 % 256}.4<0>",
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB eth0:10.1.0.4<0>",
            "Using network IB",
        ]
        for number in range(COMMUNICATORS):
            life = (
                f"ncclCommInitRank comm 0x55{rank:06x}{number} rank {rank} nranks 65536 cudaDev {local} nvmlDev {local}"
                f" busId {local + 1}b000 commId 0x1f2e3d4c5b6a798{number} - Init"
            )
            trees = " ".join(f"[{c}] {rank + 1}/-1/-1->{rank}->{rank - 1}" for c in range(CHANNELS))
            lines += [f"{life} START", f"Setting affinity for GPU {local} to ffffffff,ffffffff", f"Trees {trees}"]
            for channel in range(CHANNELS):
                lines.append(
                    f"Channel {channel:02d}/0 : {rank}[{local}] -> {rank + 1}[{(local + 1) % 8}] via P2P/CUMEM/read"
                )
                if local == 0:
                    net = f"via NET/IB/{channel % 4}/GDRDMA"
                    lines.append(f"Channel {channel:02d}/0 : {rank - 1}[7] -> {rank}[0] [receive] {net}")
                    lines.append(f"Channel {channel:02d}/0 : {rank}[0] -> {rank + 8}[0] [send] {net}")
                lines.append(
                    f"Channel {channel:02d}/0 : {rank}[{local}] -> {rank - 1}[{(local - 1) % 8}] via P2P/CUMEM/read"
                )
            lines += ["Connected all rings", "Connected all trees", "threadThresholds 8/8/64 | 524288/8/64 | 512 | 512"]
            lines.append(f"{life} COMPLETE")
        head = f"{host}:{pid}:{pid + 900} [{local}] NCCL INFO "
        yield "".join(f"{head}{line}\n" for line in lines)
        rank += 1


def training() -> Iterator[str]:
    """Steps of 64 ranks, without end."""
    step = 0
    while True:
        stamp = f"2026-05-07 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},123"
        yield "".join(
            f"[rank{rank}]: {stamp} INFO step {step} loss {2.3 + rank / 100:.4f} lr 0.0001 tokens/s {12345 + step % 97 + rank}"
            f" grad_norm 1.23 mem 40.1GB\n"
            for rank in range(64)
        )
        step += 1


def write(path: Path, lines: Callable[[], Iterator[str]], size: int) -> None:
    written = 0
    with path.open("w") as file:
        for text in lines():
            file.write(text)
            written += len(text)
            if written >= size:
                return


def run(command: list[str]) -> tuple[float, float]:
    """Seconds of a command, and the peak memory in MB of the largest of its processes."""
    before = time.perf_counter()
    watch = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", watch, *command], capture_output=True, text=True, check=True)
    return time.perf_counter() - before, int(done.stdout) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB a log")
    parser.add_argument("--keep", type=Path, help="folder for the logs; they are written once and kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        print(f"{'log':10} {'command':12} {'seconds':>8} {'MB/s':>8} {'peak MB':>8}")
        for name, lines in (("channels", channels), ("training", training)):
            path = folder / f"{name}.log"
            if not path.exists() or path.stat().st_size < args.size << 20:
                write(path, lines, args.size << 20)
            subprocess.run(["cat", str(path)], stdout=subprocess.DEVNULL, check=True)  # into the page cache
            megabytes = path.stat().st_size / 1e6
            commands = {
                "grep -c NCCL": ["grep", "-c", "NCCL", str(path)],
                "analyze": [sys.executable, "-m", "nccl_doctor", "analyze", str(path), "--fail-on", "never"],
            }
            for label, command in commands.items():
                seconds, memory = run(command)
                print(f"{name:10} {label:12} {seconds:8.2f} {megabytes / seconds:8.0f} {memory:8.0f}", flush=True)
            if not args.keep:
                path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
