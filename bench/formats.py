"""Throughput and memory of `analyze` on files of each format that is read as a stream; their text is that of `format_texts.py`.

    python bench/formats.py [--size MIB] [--only NAME] [--times N]

The time of an empty run is taken off; the fastest of the runs counts. Memory is measured on a file of an eighth of the size too: a reader
in constant memory has the same peak on both.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from format_texts import FORMATS, TRACES
from logs import run

ANALYZE = (sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never")
LEAST = 40  # MB a CPU second that each format has to reach
LEAST_OF_TRACES = 60
GROWN = (
    1.5  # times the peak on an eighth of the file, from which on a format is named: allocators and tables of facts vary
)


def write(path: Path, name: str, size: int) -> int:
    """Write at least so many bytes of a format; returns how many."""
    written = 0
    with path.open("wb") as file:
        for line in ({**FORMATS, **TRACES})[name]():
            written += file.write(line if isinstance(line, bytes) else line.encode() + b"\n")
            if written >= size:
                break
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, metavar="MIB")
    parser.add_argument("--only", choices=[*FORMATS, *TRACES], action="append")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    slow, grown = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        path.write_text("nothing\n")
        run([*ANALYZE, str(path)])  # once, to fill the caches
        empty = best(path, max(options.times, 2))
        print(
            "| format | MB | wanted MB/s | MB/s | MB a CPU second | peak MB of an eighth | peak MB |\n|---|---|---|---|---|---|---|"
        )
        for name in options.only or [*FORMATS, *TRACES]:
            write(path, name, (options.size << 20) // 8)
            eighth = best(path, 1)[2]
            size = write(path, name, options.size << 20)
            wall, processor, peak = best(path, options.times)
            speeds = [size / 1e6 / max(took - base, 0.01) for took, base in ((wall, empty[0]), (processor, empty[1]))]
            wanted = LEAST_OF_TRACES if name in TRACES else LEAST
            slow += [name] if speeds[1] < wanted else []
            grown += [name] if peak > GROWN * eighth else []
            cells = (name, f"{size / 1e6:.0f}", wanted, *(f"{value:.0f}" for value in (*speeds, eighth, peak)))
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if slow:
        print(f"slower than wanted: {', '.join(slow)}")
    if grown:
        print(f"more memory for a larger file: {', '.join(grown)}")
    return 0


def best(path: Path, times: int) -> tuple[float, float, float]:
    """Wall-clock and CPU seconds of the fastest run, and the highest peak of memory in MB."""
    runs = [run([*ANALYZE, str(path)]) for _ in range(times)]
    return min(run[0] for run in runs), min(run[1] for run in runs), max(run[2] for run in runs)


if __name__ == "__main__":
    sys.exit(main())
