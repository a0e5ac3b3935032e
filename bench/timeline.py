"""Measures speed and memory of the reader of Horovod timelines on a large file.

    python bench/timeline.py [--size MIB] [--keep FILE]

The file is a job with ticks in every step, as with HOROVOD_CACHE_CAPACITY=0, and with marks of cycles.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures" / "make"))

import timeline

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.horovod import timeline as horovod_timeline


def write(path: Path, size: int) -> None:
    """Writes some steps of a job repeatedly until the file has `size` bytes; the time keeps increasing."""
    body = list(timeline.events(timeline.Job(steps=400, ranks=16, tensors=64, together=16, cache=False, cycle=1.0)))
    written = 0
    with path.open("w") as out:
        out.write("[\n")
        while written < size:
            written += sum(out.write(event + ",") for event in body)
        out.write('{"ph": "i", "name": "CYCLE_START", "ts": 1, "s": "g"}]\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=500, help="MiB")
    parser.add_argument("--keep", type=Path, help="write the file here and keep it")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "timeline.json"
        if not path.exists():
            write(path, options.size << 20)
        # In a process of its own, for its peak of memory to be the reader's.
        subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)


def measure(path: Path) -> None:
    before = peak()
    facts = Facts()
    start, busy = time.perf_counter(), time.process_time()
    with path.open("rb") as stream:
        reading = horovod_timeline.read_format(stream, path.name, facts)
    took, busy = time.perf_counter() - start, time.process_time() - busy
    size = path.stat().st_size / 1e6
    print(f"{size:.0f} MB, {reading.understood:,} events: {took:.1f} s, {size / took:.0f} MB/s", end="")
    print(f" ({size / busy:.0f} MB per second of CPU), memory +{peak() - before:.0f} MiB")


def peak() -> float:
    """Returns peak memory in MiB; ru_maxrss would be the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
