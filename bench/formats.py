"""Throughput and memory of `analyze` on files of each format that is read as a stream; their text is that of `format_texts.py`.

    python bench/formats.py [--size MIB] [--only NAME] [--times N] [--behind PREFIX]

Each format is measured on a file of a quarter of the size and on one of the whole size. The rate is that of what the larger one has more,
so that neither the start of the program nor what it does once for a file counts. Of several runs the fastest counts. Memory is the peak
on both: a reader in constant memory has the same on both. With `--behind` all lines are as a launcher, a cluster or Windows gives them.
"""

import argparse
import gzip
import sys
import tempfile
from collections.abc import Callable
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


BEHIND: dict[str, Callable[[int, str], str]] = {  # number of the line, its text
    "srun": lambda _, line: f"0: {line}",
    "pdsh": lambda _, line: f"node01: {line}",
    "kubectl": lambda n, line: (
        f"[pod/train-worker-0/main] 2026-05-07T{_clock(n)}.{n * 1000 % 1_000_000:06d}000Z {line}"
    ),
    "stamps": lambda n, line: f"2026-05-07T{_clock(n)}.{n * 1000 % 1_000_000:06d}Z {line}",
    "crlf": lambda _, line: f"{line}\r",
    "gz": lambda _, line: line,
}


def _clock(number: int) -> str:
    return f"{number // 3_600_000 % 24:02d}:{number // 60_000 % 60:02d}:{number // 1000 % 60:02d}"


def write(path: Path, name: str, size: int, behind: str | None = None) -> int:
    """Write at least so many bytes of a format; returns how many. A compressed file has so many bytes of text."""
    written = lines = 0
    with gzip.open(path, "wb", 1) if behind == "gz" else path.open("wb") as file:
        for text in ({**FORMATS, **TRACES})[name]():
            if behind is not None and isinstance(text, str):
                wrapped = [BEHIND[behind](number, line) for number, line in enumerate(text.split("\n"), lines)]
                lines, text = lines + len(wrapped), "\n".join(wrapped)
            written += file.write(text if isinstance(text, bytes) else text.encode() + b"\n")
            if written >= size:
                break
    return written


def measured(path: Path, name: str, size: int, times: int, behind: str | None) -> Measured:
    """Write a file of a format, and read it so many times."""
    written = write(path, name, size, behind)
    runs = [run([*ANALYZE, str(path)]) for _ in range(times)]
    return Measured(written, min(one[0] for one in runs), min(one[1] for one in runs), max(one[2] for one in runs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, metavar="MIB")
    parser.add_argument("--only", choices=[*FORMATS, *TRACES], action="append")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--behind", choices=BEHIND, help="what stands around each line")
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
            part = measured(path, name, (options.size << 20) // PART, options.times, options.behind)
            whole = measured(path, name, options.size << 20, options.times, options.behind)
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
