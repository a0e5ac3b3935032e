"""Throughput and memory of `analyze` on files of each format that is read as a stream; their text is that of `format_texts.py`.

    python bench/formats.py [--size MIB] [--only NAME] [--times N]

Each format is measured on a file of a quarter of the size and on one of the whole size. The rate is that of what the larger one has more,
so that neither the start of the program nor what it does once for a file counts. Of several runs the fastest counts. Memory is the peak
on both: a reader in constant memory has the same on both.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from format_texts import FORMATS, TRACES
from logs import run

ANALYZE = (sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never")
LEAST = 40  # MB a CPU second that each format has to reach
LEAST_OF_TRACES = 60
PART = 4  # of the size: the smaller file
GROWN = 1.5  # times the peak on the smaller file, from which on a format is named: allocators and tables of facts vary


class Measured(NamedTuple):
    """The fastest of the runs on one file, and the highest peak of memory."""

    size: int  # bytes
    wall: float  # seconds
    processor: float  # CPU seconds
    peak: float  # MB


def write(path: Path, name: str, size: int) -> int:
    """Write at least so many bytes of a format; returns how many."""
    written = 0
    with path.open("wb") as file:
        for line in ({**FORMATS, **TRACES})[name]():
            written += file.write(line if isinstance(line, bytes) else line.encode() + b"\n")
            if written >= size:
                break
    return written


def measured(path: Path, name: str, size: int, times: int) -> Measured:
    """Write a file of a format, and read it so many times."""
    written = write(path, name, size)
    runs = [run([*ANALYZE, str(path)]) for _ in range(times)]
    return Measured(written, min(one[0] for one in runs), min(one[1] for one in runs), max(one[2] for one in runs))


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
        print(
            "| format | MB | wanted MB/s | MB/s | MB a CPU second | CPU seconds of a quarter | peak MB of a quarter | peak MB |\n"
            "|---|---|---|---|---|---|---|---|"
        )
        for name in options.only or [*FORMATS, *TRACES]:
            part = measured(path, name, (options.size << 20) // PART, options.times)
            whole = measured(path, name, options.size << 20, options.times)
            more = (whole.size - part.size) / 1e6
            speeds = [more / max(after - before, 0.01) for before, after in zip(part[1:3], whole[1:3], strict=True)]
            wanted = LEAST_OF_TRACES if name in TRACES else LEAST
            slow += [name] if speeds[1] < wanted else []
            grown += [name] if whole.peak > GROWN * part.peak else []
            cells = (f"{whole.size / 1e6:.0f}", wanted, *(f"{speed:.0f}" for speed in speeds), f"{part.processor:.1f}")
            print(f"| {name} | {' | '.join(map(str, cells))} | {part.peak:.0f} | {whole.peak:.0f} |", flush=True)
    if slow:
        print(f"slower than wanted: {', '.join(slow)}")
    if grown:
        print(f"more memory for a larger file: {', '.join(grown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
