"""Measures short commands from start to end, best of several: wall-clock and CPU time in milliseconds.

    python bench/start.py [--times N]

The first run, which may write bytecode and what the package keeps of its rules and patterns, is not counted.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PASTED = "node01:101:140 [0] NCCL INFO Using network IB"
COMMANDS = (
    ("python -c pass", ["-c", "pass"]),
    ("--help", ["-m", "nccl_doctor", "--help"]),
    ("explain RULE", ["-m", "nccl_doctor", "explain", "libibverbs-missing"]),
    ("explain ID", ["-m", "nccl_doctor", "explain", "NET003"]),
    ("explain VARIABLE", ["-m", "nccl_doctor", "explain", "NCCL_IB_HCA"]),
    ("explain XID", ["-m", "nccl_doctor", "explain", "Xid 79"]),
    ("explain TRANSPORT", ["-m", "nccl_doctor", "explain", "via NET/IB/0/GDRDMA"]),
    ("explain LINE", ["-m", "nccl_doctor", "explain", PASTED]),
    ("analyze demo.log", ["-m", "nccl_doctor", "analyze", "--fail-on", "never", "fixtures/demo.log"]),
)


def measure(arguments: list[str]) -> tuple[float, float]:
    before, clock = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    took, after = time.perf_counter() - clock, os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return took * 1000, busy * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="runs of each command")
    times = parser.parse_args().times
    print(f"{'command':20} {'wall ms':>8} {'CPU ms':>8}")
    for label, arguments in COMMANDS:
        runs = [measure(arguments) for _ in range(times + 1)][1:]
        print(f"{label:20} {min(wall for wall, _ in runs):8.0f} {min(busy for _, busy in runs):8.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
