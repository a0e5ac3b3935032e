"""Throughput and memory of `analyze` on large logs, beside `grep -c NCCL` on the same file in the same run.

    python bench/logs.py [--size MIB] [--keep FOLDER] [--only NAME]

`channels` is the start of a job of 1,024 ranks that writes to one stream: nine of ten lines are Channel lines, lines of
128 ranks stand between each other as they do in real logs, and the number of communicators is what fills the size.
`many-ranks` is the same of 8,192 ranks: eight times as many processes and edges, an eighth of the communicators for each.
`calls` are the collectives of 512 ranks, `chatter` are allocations of 64 ranks, `flood` is one warning of 64 ranks.
`training` is rank-labelled training output without an NCCL line.
`mixed` is training output with a warning of NCCL among 2,000 lines,
`stamped` is `many-ranks` behind the time stamps of `kubectl logs --timestamps`,
`folder` is `many-ranks` with a file for each of the 1,024 hosts, as NCCL_DEBUG_FILE writes them.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

RANKS = 1_024
MANY_RANKS = 8_192
LOCAL = 8  # ranks a node
CHANNELS = 24
PAIRS = 32  # channels between two GPUs of a node for point-to-point transfers
TOGETHER = 128  # ranks whose lines stand between each other


def _start(rank: int) -> list[str]:
    address = f"10.{rank // 2048}.{rank // LOCAL % 256}.4"
    return [
        "cudaDriverVersion 12040",
        f"Bootstrap : Using eth0:{address}<0>",
        "NCCL_IB_HCA set by environment to mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB eth0:{address}<0>",
        "Using network IB",
    ]


def _communicator(rank: int, number: int, ranks: int) -> list[str]:
    """The lines of a rank for one communicator: the world, its data-parallel group and its node take turns.

    Inside the node tokens go from each expert to each other one, so there all pairs of GPUs connect.
    """
    step, size = ((1, ranks), (LOCAL, ranks // LOCAL), (1, LOCAL))[number % 3]
    own = rank // step % size
    after, before = (own + 1) % size, (own - 1) % size
    local = rank % LOCAL
    group = rank % LOCAL if step == LOCAL else rank // LOCAL if size == LOCAL else 0
    life = (
        f"ncclCommInitRank comm 0x55{rank:06x}{number:02d}0 rank {own} nranks {size} cudaDev {local} nvmlDev {local}"
        f" busId {local + 1}b000 commId 0x1f2e3d4c{group:06x}{number:02d}"
    )
    trees = " ".join(f"[{c}] {after}/-1/-1->{own}->{before}" for c in range(CHANNELS))
    lines = [f"{life} - Init START", f"Setting affinity for GPU {local} to ffffffff,ffffffff", f"Trees {trees}"]
    lines.append("P2P Chunksize set to 131072")
    for channel in range(CHANNELS):
        onward = f"{own}[{local}] -> {after}[{(local + (step == 1)) % LOCAL}]"
        back = f"{own}[{local}] -> {before}[{(local - 1) % LOCAL}]"
        net = f"via NET/IB/{channel % 4}/GDRDMA"
        if (local == LOCAL - 1 and size != LOCAL) or step == LOCAL:
            lines.append(f"Channel {channel:02d}/0 : {onward} [send] {net}")
        else:
            lines.append(f"Channel {channel:02d}/0 : {onward} via P2P/CUMEM/read")
        if (local == 0 and size != LOCAL) or step == LOCAL:
            lines.append(
                f"Channel {channel:02d}/0 : {before}[{(local - (step == 1)) % LOCAL}] -> {own}[{local}] [receive] {net}"
            )
        else:
            lines.append(f"Channel {channel:02d}/0 : {back} via P2P/CUMEM/read")
    lines += ["Connected all rings", "Connected all trees", "threadThresholds 8/8/64 | 524288/8/64 | 512 | 512"]
    lines.append(f"{life} - Init COMPLETE")
    if size == LOCAL:
        for peer in range(1, LOCAL):
            other = (own + peer) % LOCAL
            edge = f"{own}[{local}] -> {other}[{other}] via P2P/CUMEM/read"
            lines += [f"Channel {channel:02d}/1 : {edge}" for channel in range(PAIRS)]
    return lines


def channels(ranks: int = RANKS) -> Iterator[str]:
    """Yields the lines of all ranks endlessly, communicator after communicator."""
    chance = random.Random(1)
    number = 0
    while True:
        for first in range(0, ranks, TOGETHER):
            waiting = []
            for rank in range(first, first + TOGETHER):
                host, local = f"node{rank // LOCAL:05d}", rank % LOCAL
                head = f"{host}:{40_000 + local}:{40_900 + local} [{local}] NCCL INFO "
                lines = [*(_start(rank) if not number else ()), *_communicator(rank, number, ranks)]
                waiting.append([f"{head}{line}\n" for line in reversed(lines)])
            mixed = []
            while waiting:
                place = int(chance.random() * len(waiting))
                lines = waiting[place]
                mixed.append(lines.pop())
                if not lines:
                    waiting[place] = waiting[-1]
                    waiting.pop()
            yield "".join(mixed)
        number += 1


def many_ranks() -> Iterator[str]:
    return channels(MANY_RANKS)


def start(ranks: int) -> Iterator[str]:
    """Yields the start of one job, sentence by sentence for 1,024 ranks at a time: two rings with the ranks beside each."""
    for first in range(0, ranks, 1024):
        some = range(first, min(first + 1024, ranks))
        heads = [
            f"node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{40_900 + rank % LOCAL} [{rank % LOCAL}] NCCL INFO "
            for rank in some
        ]
        said = [
            [
                *_start(rank),
                f"ncclCommInitRank comm 0x55{rank:06x}0 {_life(rank, ranks)} - Init START",
                f"comm 0x55{rank:06x}0 rank {rank} nRanks {ranks} nNodes {ranks // LOCAL} localRanks {LOCAL}"
                f" localRank {rank % LOCAL} MNNVL 0",
                *(
                    f"Channel {channel:02d}/0 : {_edge(rank, (rank + step) % ranks)}"
                    for step in (1, LOCAL)
                    for channel in range(8)
                ),
                "Connected all rings",
                "Connected all trees",
                f"ncclCommInitRank comm 0x55{rank:06x}0 {_life(rank, ranks)} - Init COMPLETE",
            ]
            for rank in some
        ]
        for sentence in zip(*said, strict=True):
            yield "".join(f"{head}{text}\n" for head, text in zip(heads, sentence, strict=True))


def _life(rank: int, ranks: int) -> str:
    local = rank % LOCAL
    return f"rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local + 1}b000 commId 0x1f2e3d4c5b6a7988"


def _edge(rank: int, other: int) -> str:
    ends = f"{rank}[{rank % LOCAL}] -> {other}[{other % LOCAL}]"
    if rank // LOCAL == other // LOCAL:
        return f"{ends} via P2P/CUMEM/read"
    return f"{ends} [send] via NET/IB/{rank % 4}/GDRDMA"


def all_to_all(ranks: int) -> Iterator[str]:
    """Yields the start of a job in which each rank connects to each other one."""
    for rank in range(ranks):
        head = f"node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{40_900 + rank % LOCAL} [{rank % LOCAL}] NCCL INFO "
        said = [
            *_start(rank),
            *(f"Channel 00/1 : {_edge(rank, other)}" for other in range(ranks) if other != rank),
            *(
                f"Channel 00/1 : {other}[{other % LOCAL}] -> {rank}[{rank % LOCAL}] [receive] via NET/IB/{rank % 4}/GDRDMA"
                for other in range(ranks)
                if other // LOCAL != rank // LOCAL
            ),
            f"ncclCommInitRank comm 0x55{rank:06x}0 {_life(rank, ranks)} - Init COMPLETE",
        ]
        yield "".join(f"{head}{text}\n" for text in said)


def stamped() -> Iterator[str]:
    """Yields `many_ranks` with a time stamp before each line, no two equal."""
    nanoseconds = 0
    for text in many_ranks():
        lines = []
        for line in text.splitlines(keepends=True):
            nanoseconds += 1_734_567
            second = nanoseconds // 1_000_000_000
            lines.append(
                f"2026-05-07T12:{second // 60 % 60:02d}:{second % 60:02d}.{nanoseconds % 1_000_000_000:09d}Z {line}"
            )
        yield "".join(lines)


def training() -> Iterator[str]:
    """Yields steps of 64 ranks endlessly."""
    step = 0
    while True:
        stamp = f"2026-05-07 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},123"
        yield "".join(
            f"[rank{rank}]: {stamp} INFO step {step} loss {2.3 + rank / 100:.4f} lr 0.0001 tokens/s {12345 + step % 97 + rank}"
            f" grad_norm 1.23 mem 40.1GB\n"
            for rank in range(64)
        )
        step += 1


def mixed() -> Iterator[str]:
    """Yields `training` with an NCCL warning in every 32nd step."""
    for number, text in enumerate(training()):
        yield text
        if number % 32 == 0:
            rank = number // 32 % 64
            yield (
                f"[rank{rank}]: node{rank // LOCAL:02d}:{40_000 + rank}:{40_900 + rank} [{rank % LOCAL}] misc/socket.cc:484"
                f" NCCL WARN socketStartConnect: Connect to 10.1.0.{rank}<{50_000 + number}> failed : Connection refused\n"
            )


def calls() -> Iterator[str]:
    """Yields collectives of 512 ranks endlessly (NCCL_DEBUG_SUBSYS=COLL), each with its own opCount and buffers."""
    chance, op = random.Random(1), 0
    kinds = (
        ("AllReduce", 1048576),
        ("AllGather", 4096),
        ("ReduceScatter", 25557032),
        ("Broadcast", 8),
        ("Send", 65536),
    )
    while True:
        function, count = kinds[op % len(kinds)]
        yield "".join(
            f"node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{40_900 + rank % LOCAL} [{rank % LOCAL}] NCCL INFO {function}: opCount {op:x}"
            f" sendbuff 0x7f{chance.getrandbits(40):010x} recvbuff 0x7f{chance.getrandbits(40):010x} count {count} datatype 7 op 0 root 0"
            f" comm 0x55{rank:06x}0 [nranks=512] stream 0x55aa{rank:06x}\n"
            for rank in range(512)
        )
        op += 1


def chatter() -> Iterator[str]:
    """Yields allocations of 64 ranks endlessly (NCCL_DEBUG_SUBSYS=ALL): no two lines have the same numbers."""
    chance, step = random.Random(1), 0
    heads = [
        f"node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{40_900 + rank % LOCAL} [{rank % LOCAL}]"
        for rank in range(64)
    ]
    while True:
        step += 1
        said = f"NCCL INFO include/alloc.h:{200 + step % 9} Cuda Alloc Size {1 << step % 20} pointer"
        yield "".join(f"{head} {said} 0x7f{chance.getrandbits(40):010x}\n" for head in heads)


def flood() -> Iterator[str]:
    """Yields one warning of 64 ranks endlessly."""
    step = "".join(
        f"node{rank // LOCAL:02d}:{40_000 + rank}:{40_900 + rank} [{rank % LOCAL}] transport/net_ib.cc:1295 NCCL WARN"
        f" NET/IB : Got completion from peer 10.1.0.{rank}<{50_000 + rank}> with status=12 opcode=129 len=0 vendor err 129 (Recv)\n"
        for rank in range(64)
    )
    while True:
        yield step


def write_folder(path: Path, size: int) -> None:
    """Writes the lines of `many_ranks`, one file per host."""
    path.mkdir()
    written = 0
    for text in many_ranks():
        hosts: dict[str, list[str]] = {}
        for line in text.splitlines(keepends=True):
            hosts.setdefault(line.partition(":")[0], []).append(line)
        for host, lines in hosts.items():
            with (path / f"nccl.{host}.log").open("a") as file:
                file.writelines(lines)
        written += len(text)
        if written >= size:
            return


LOGS = {
    "channels": channels,
    "many-ranks": many_ranks,
    "training": training,
    "mixed": mixed,
    "stamped": stamped,
    "calls": calls,
    "chatter": chatter,
    "flood": flood,
    "folder": many_ranks,
}


def write(path: Path, lines: Callable[[], Iterator[str]], size: int) -> None:
    written = 0
    with path.open("w") as file:
        for text in lines():
            file.write(text)
            written += len(text)
            if written >= size:
                return


def memory(process: int) -> int:
    """Returns the memory of a process and its children in bytes, shared pages counted once."""
    total = 0
    try:
        smaps = Path(f"/proc/{process}/smaps_rollup").read_text()
        total = next(int(line.split()[1]) * 1024 for line in smaps.splitlines() if line.startswith("Pss:"))
        started = " ".join(path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children"))
    except (OSError, StopIteration):
        return total
    return total + sum(memory(int(child)) for child in started.split())


def run(command: list[str]) -> tuple[float, float, float]:
    """Returns wall-clock seconds, CPU seconds and the peak memory in MB of a command with all its processes.

    The output goes to a file, because grep stops at the first match where nobody reads it. Python keeps its bytecode, as an
    installation does, whatever the caller sets: without it each start takes half a second longer.
    """
    installed = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, clock = os.times(), time.perf_counter()
    peak = 0
    with tempfile.TemporaryFile() as out, subprocess.Popen(command, stdout=out, stderr=out, env=installed) as process:
        while process.returncode is None:
            peak = max(peak, memory(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)  # not more often: to count the pages of a large process holds it up
        if process.returncode not in (0, 1):  # grep says 1 where it found nothing
            out.seek(0)
            sys.exit(f"{' '.join(command)} failed: {out.read().decode()}")
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - clock, processor, peak / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB a log")
    parser.add_argument("--keep", type=Path, help="folder for the logs; they are written once and kept")
    parser.add_argument("--only", choices=LOGS, action="append", help="this log; may be given several times")
    parser.add_argument("--times", type=int, default=3, help="runs of each command, of which the fastest counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        print(f"{'log':10} {'command':12} {'seconds':>8} {'MB/s':>8} {'CPU s':>8} {'peak MB':>8}")
        for name in args.only or ("channels", "many-ranks", "training"):
            path = folder / f"{name}-{args.size}.log"
            if not path.exists() and name == "folder":
                write_folder(path, args.size << 20)
            elif not path.exists():
                write(path, LOGS[name], args.size << 20)
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)  # into the page cache
            megabytes = sum(file.stat().st_size for file in files) / 1e6
            commands = {
                "grep -c NCCL": ["grep", "-rc", "NCCL", str(path)],
                "analyze": [sys.executable, "-m", "nccl_doctor", "analyze", str(path), "--fail-on", "never"],
            }
            for label, command in commands.items():
                seconds, processor, peak = min(run(command) for _ in range(args.times))
                figures = f"{seconds:8.2f} {megabytes / seconds:8.0f} {processor:8.2f} {peak:8.0f}"
                print(f"{name:10} {label:12} {figures}", flush=True)
            if not args.keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
