"""Measures speed and memory of the reader of GPU samples on a long CSV.

    python bench/gpu_csv.py [LINES]

Writes LINES (default 5,000,000) rows as `nvidia-smi --query-gpu --format=csv` prints them into a temporary file and prints
lines a second and the highest resident size. Wanted: 1,000,000 lines/s or more.
"""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import samples

HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], clocks.current.sm [MHz], temperature.gpu\n"


def write(path: Path, lines: int) -> None:
    """Eight GPUs, one sample a second, mostly busy."""
    rng = random.Random(1)
    rows = [
        f" {gpu}, {rng.choice((97, 99, 100, 45))} %, {rng.randrange(70_000, 71_000)} MiB, {rng.uniform(400, 690):.2f} W,"
        f" {rng.choice((1980, 1965, 1755))} MHz, {rng.randrange(45, 60)}\n"
        for _ in range(1000)
        for gpu in range(8)
    ]
    with path.open("w") as file:
        file.write(HEADER)
        for number in range(lines):
            second = number // 8
            file.write(
                f"2024/09/{1 + second // 86400:02d} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000,"
                + rows[number % 8000]
            )


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.csv"
        write(path, lines)
        facts = Facts()
        start, busy = time.perf_counter(), time.process_time()
        with path.open("rb") as stream:
            reading = samples.read_format(stream, path.name, facts)
        took, busy = time.perf_counter() - start, time.process_time() - busy
        size = path.stat().st_size
    assert reading.understood == lines + 1, reading
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{lines:,} lines, {size / 1e6:.0f} MB in {took:.2f} s: {lines / took / 1e6:.2f} million lines/s"
        f" ({lines / busy / 1e6:.2f} per second of CPU), {memory:.0f} MB resident"
    )


if __name__ == "__main__":
    main()
