"""What `analyze` costs as a job or a log grows: a table and a chart in Markdown for each of the two.

    python bench/curves.py [--ranks N] [--pairs N] [--size MIB]

Ranks double twice a step up to N (starts of healthy jobs, `logs.start`, 8 ranks a node), those of an all-to-all double once a
step, sizes of the logs of `logs.py` double twice. A flat curve is a cost that grows in proportion.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from logs import LOGS, all_to_all, run, start, write

ANALYZE = (sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never")
LINES = ("channels", "calls", "flood", "training")


def powers(first: int, last: int, step: int = 4) -> Iterator[int]:
    """Each number is `step` times the one before, but for the last."""
    while first < last:
        yield first
        first *= step
    yield last


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
        write_all(path, start(count))
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


def pairs(folder: Path, most: int) -> None:
    print(
        "| ranks, all to all | channels | MB | seconds | CPU s | CPU µs a channel | peak MB |\n|---|---|---|---|---|---|---|"
    )
    path = folder / "job.log"
    for count in powers(64, most, 2):
        write_all(path, all_to_all(count))
        seconds, processor, peak = run([*ANALYZE, str(path)])
        size, edges = path.stat().st_size / 1e6, count * (2 * count - 9)
        each = 1e6 * processor / edges
        print(
            f"| {count:,} | {edges:,} | {size:.1f} | {seconds:.2f} | {processor:.2f} | {each:.1f} | {peak:.0f} |",
            flush=True,
        )
        path.unlink()
    print()


def write_all(path: Path, texts: Iterator[str]) -> None:
    with path.open("w") as file:
        file.writelines(texts)


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
    parser.add_argument("--pairs", type=int, default=256, help="the most ranks of an all-to-all")
    parser.add_argument("--size", type=int, default=256, help="the most MiB a log")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        ranks(Path(scratch), args.ranks)
        pairs(Path(scratch), args.pairs)
        sizes(Path(scratch), args.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
