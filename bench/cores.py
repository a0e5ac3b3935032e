"""How `analyze` grows with cores: seconds on 1, 2, 4 … of them, and the share that one process does alone.

    python bench/cores.py [--size MIB] [--times N] [--only NAME]

The logs are `channels`, `calls` and `training` of `logs.py`, `files` (one a host), and `packed`, the log `channels` in 64 parts
that gzip compressed. The serial share is that of Amdahl's law from the seconds on one core and on the most that there are; what it
gives for eight is what more cores can reach, because `analyze` starts no more than eight processes.
"""

import argparse
import gzip
import os
import sys
import tempfile
from pathlib import Path

from logs import LOGS, run, write, write_folder

from nccl_doctor.log.workers import PROCESSES

ANALYZE = [sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never"]
PLAIN = ("channels", "calls", "training")
PARTS = 64


def write_packed(folder: Path, size: int) -> None:
    """Write the log `channels` of so many bytes in compressed parts."""
    whole = folder / "whole.log"
    write(whole, LOGS["channels"], size)
    with whole.open("rb") as log:
        for number in range(PARTS):
            part = log.read(size // PARTS) + log.readline()
            (folder / f"job.{number:02}.log.gz").write_bytes(gzip.compress(part, 1))
    whole.unlink()


def seconds_on(cores: int, path: Path, times: int) -> float:
    """The wall-clock time of the fastest of some runs on so many cores."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[:cores])
    try:
        return min(run([*ANALYZE, str(path)])[0] for _ in range(times))
    finally:
        os.sched_setaffinity(0, mine)


def serial_share(one: float, many: float, cores: int) -> float:
    """The share of the time on one core that no other core can take over, from the times on one and on many."""
    return min(max((many / one - 1 / cores) / (1 - 1 / cores), 0.0), 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=512, help="MiB a log")
    parser.add_argument("--times", type=int, default=2, help="runs of each, of which the fastest counts")
    parser.add_argument(
        "--only", choices=(*PLAIN, "files", "packed"), action="append", help="may be given several times"
    )
    args = parser.parse_args()
    most = len(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most]
    print(f"| log | {' | '.join(f'seconds on {count}' for count in counts)} | serial share | at most, on {PROCESSES} |")
    print("|---" * (len(counts) + 3) + "|")
    for name in args.only or (*PLAIN, "files", "packed"):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / name
            if name in PLAIN:
                write(path, LOGS[name], args.size << 20)
            elif name == "files":
                write_folder(path, args.size << 20)
            else:
                path.mkdir()
                write_packed(path, args.size << 20)
            taken = [seconds_on(count, path, args.times) for count in counts]
        cells = " | ".join(f"{seconds:.2f}" for seconds in taken)
        share = serial_share(taken[0], taken[-1], counts[-1]) if most > 1 else 1.0
        bound = 1 / (share + (1 - share) / PROCESSES)
        print(f"| {name} | {cells} | {share:.0%} | {bound:.1f} times one |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
