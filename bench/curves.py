"""What `analyze` costs as a job or a log grows: a table and a chart in Markdown for each of the two.

    python bench/curves.py [--ranks N] [--size MIB]

Ranks double twice a step up to N (starts of healthy jobs of `simulate`, 8 ranks a node), sizes of the logs of `logs.py` up to
MIB. A flat curve is a cost that grows in proportion.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from logs import LOGS, run, write

ANALYZE = (sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never")
SIMULATE = (sys.executable, "-m", "nccl_doctor", "simulate")
LINES = ("channels", "calls", "flood", "training")


def powers(first: int, last: int) -> Iterator[int]:
    """Each number is four times the one before."""
    while first <= last:
        yield first
        first *= 4


def chart(title: str, unit: str, names: list[str], values: list[float]) -> str:
    """A line chart that GitHub draws."""
    points, axis = ", ".join(f"{value:.3g}" for value in values), ", ".join(f'"{name}"' for name in names)
    lines = (
        f'title "{title}"',
        f"x-axis [{axis}]",
        f'y-axis "{unit}" 0 --> {max(values) * 1.1:.3g}',
        f"line [{points}]",
    )
    return "\n".join(["```mermaid", "xychart-beta", *(f"  {line}" for line in lines), "```"])


def ranks(folder: Path, most: int) -> None:
    names, values = [], []
    print("| ranks | MB | seconds | CPU s | CPU ms a rank | peak MB |\n|---|---|---|---|---|---|")
    path = folder / "job.log"
    for count in powers(16, most):
        run([*SIMULATE, "--nodes", str(count // 8), "-o", str(path)])
        seconds, processor, peak = run([*ANALYZE, str(path)])
        size = path.stat().st_size / 1e6
        each = 1000 * processor / count
        print(f"| {count:,} | {size:.1f} | {seconds:.2f} | {processor:.2f} | {each:.2f} | {peak:.0f} |", flush=True)
        if count >= 1_000:  # below, the start of the program is most of it
            names.append(f"{count:,}")
            values.append(each)
        path.unlink()
    if values:
        print(f"\n{chart('CPU milliseconds a rank', 'ms', names, values)}\n")


def sizes(folder: Path, most: int) -> None:
    print("| log | MB | seconds | CPU s | MB per CPU second |\n|---|---|---|---|---|")
    path = folder / "job.log"
    for name in LINES:
        for size in powers(1, most):
            write(path, LOGS[name], size << 20)
            seconds, processor, _ = run([*ANALYZE, str(path)])
            megabytes = path.stat().st_size / 1e6
            print(
                f"| {name} | {megabytes:.0f} | {seconds:.2f} | {processor:.2f} | {megabytes / processor:.0f} |",
                flush=True,
            )
            path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16_384, help="the most ranks")
    parser.add_argument("--size", type=int, default=256, help="the most MiB a log")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        ranks(Path(scratch), args.ranks)
        sizes(Path(scratch), args.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
