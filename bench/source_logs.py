"""CPU seconds of `analyze` on logs that are made of the messages in the sources of a program, not of lines that somebody chose.

    python bench/source_logs.py KIND TREE [--flags NCCL_NET] [--around torchrun] [--size MIB] [--keep FILE]

Every message of the tree comes, a few of them most of the time, each with values of its own in its gaps: numbers of any width,
addresses, names of devices, hosts, files. `--flags` takes the messages of some subsystems alone, as NCCL_DEBUG_SUBSYS does.
`--around` puts what launchers and collectors print in front of each line. Printed are the messages, MB, CPU seconds of one process,
MB a CPU second of the last three quarters of the log, so without the start, and the peak memory in MB.
"""

import argparse
import itertools
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import logs
from cpp_formats import cpp_texts
from message_coverage import SOURCES, SPEC, formats
from python_formats import python_texts

RANKS = 64
MESSAGES = 4_096  # lines made at once
# What a program puts in front of a message. {n}: number of the line, {r}: rank, {file}, {line}: where the message is
_HOST = "node{host:05d}"
_NCCL = _HOST + ":{pid}:{tid} [{local}] "


class Kind(NamedTuple):
    """How a program says something."""

    macros: tuple[str, ...]
    heads: tuple[str, ...]
    read: Callable[..., Iterator[tuple[str, str]]]  # flags and texts of a file


def _printf(file: Path, root: Path, macros: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for found in formats(file, root, macros):
        yield found.flags, found.template


def _streams(file: Path, _root: Path, macros: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for _, _, text in cpp_texts(file.read_text("utf-8", "replace"), macros, levels=("INFO", "DEBUG", "TRACE")):
        yield "", text


def _python(file: Path, _root: Path, macros: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if file.suffix == ".py":
        for _, kind, text in python_texts(file.read_text("utf-8-sig", "replace"), macros):
            if kind == "log":
                yield "", text


KINDS = {
    "nccl": Kind(("INFO",), (_NCCL + "NCCL INFO ",), _printf),
    "nccl-warn": Kind(("WARN",), (_NCCL + "{file}:{line} NCCL WARN ",), _printf),
    "nccl-trace": Kind(("TRACE",), (_NCCL + "{f}{us} {file}:{line} NCCL TRACE ",), _printf),
    "ucx": Kind(
        ("ucs_debug", "ucs_info", "ucs_trace", "ucs_trace_data"),
        ("[{epoch}.{us}] [" + _HOST + ":{pid}:{local}] {file:>16}:{line:<4} UCX  DEBUG ",),
        _printf,
    ),
    "libfabric": Kind(
        ("EFA_INFO", "EFA_DBG", "FI_INFO", "FI_DBG"),
        ("libfabric:{pid}:{epoch}::efa:ep_ctrl:efa_rdm_ep_ctrl():{line}<info> ",),
        _printf,
    ),
    "slurm": Kind(
        ("debug", "debug2", "debug3", "info", "verbose"),
        ("[{day}.{ms}] ", "[{day}.{ms}] debug:  ", "[{day}.{ms}] debug2: "),
        _printf,
    ),
    "slurm-errors": Kind(("error", "fatal"), ("[{day}.{ms}] error: ",), _printf),
    "ompi": Kind(("opal_output_verbose", "OPAL_OUTPUT_VERBOSE"), ("[" + _HOST + ":{pid}] ",), _printf),
    "c10d": Kind(("LOG",), ("[rank{r}]:[I507 {clock}.{us}000 {file}:{line}] ",), _streams),
    "horovod": Kind(("LOG",), ("[{day}.{us}: D {file}:{line}] [{r}]: ",), _streams),
    "python": Kind(
        ("info", "debug", "info_rank_0", "print_rank_0"),
        ("{date} {clock},{ms} - {module} - INFO - ", "INFO {date} {clock} [{module}.py:{line}] "),
        _python,
    ),
}
# What is around each line.
AROUND = {
    "none": "{said}\n",
    "torchrun": "[rank{r}]: {said}\n",
    "srun": "{r:2d}: {said}\n",
    "mpirun": "[1,{r}]<stdout>:{said}\n",
    "pdsh": _HOST + ": {said}\n",
    "kubectl": "[pod/train-worker-{r}/pytorch] {day}.{us}Z {said}\n",
    "cri": "{day}.{us}123Z stdout F {said}\n",
}
_NAMES = (
    "mlx5_0",
    "eth0",
    "bond0",
    "Ring",
    "Tree",
    "IB",
    "Socket",
    "P2P/CUMEM",
    "SYS",
    "PHB",
    "none",
    "yes",
    "INT8",
    "main",
)


def value(chance: random.Random, kind: str, gap: int) -> str:
    """A value for a gap of a format; `gap` decides what is said there: how large a number is, and which kind of name."""
    if kind == "p":
        return f"0x7f{chance.getrandbits(40):010x}"
    if kind in "xX":
        return f"{chance.getrandbits(4 << gap % 5):x}"
    if kind in "feEgG":
        return f"{chance.random() * 10 ** (gap % 5):.{2 + 4 * (kind == 'f')}f}"
    if kind == "c":
        return chance.choice("abcxyz")
    if kind in "dui":
        return str(chance.randrange(10 ** (1 + gap % 8)))
    match gap % 8:
        case 0:
            return f"10.{chance.randrange(4)}.{chance.randrange(250)}.{chance.randrange(250)}<{chance.randrange(1024, 65_536)}>"
        case 1:
            return f"node{chance.randrange(2_000):05d}"
        case 2:
            return f"/scratch/run-{''.join(chance.choices('abcdefghijkXYZ0123456789', k=6))}"
        case 3:
            return f"{chance.getrandbits(64):016x}"
    return chance.choice(_NAMES)


def filled(chance: random.Random, template: str) -> str:
    """A text with values in its gaps."""
    gaps = itertools.count(len(template))
    text = SPEC.sub(lambda spec: "%" if spec["type"] == "%" else value(chance, spec["type"], next(gaps) * 7), template)
    return re.sub("\0", lambda _: value(chance, "dds"[next(gaps) % 3], next(gaps) * 7), text)


def messages(kind: Kind, tree: Path, flags: str) -> list[tuple[str, str]]:
    """Where the messages of a tree are, and their texts."""
    found: dict[str, str] = {}
    for file in sorted(path for path in tree.rglob("*") if path.suffix in SOURCES and path.is_file()):
        for flag, text in kind.read(file, tree, kind.macros):
            if flags in flag and len(re.findall("[A-Za-z]{3,}", text)) > 0:
                found.setdefault(text.strip("\n"), file.name)
    return [(file, text) for text, file in found.items()]


def texts(kind: Kind, said: list[tuple[str, str]], around: str) -> Iterator[str]:
    """Lines of 64 ranks without end."""
    chance = random.Random(1)
    said = chance.sample(said, len(said))
    weights = [1 / place for place in range(1, len(said) + 1)]
    n = 0
    while True:
        lines = []
        for file, template in chance.choices(said, weights, k=MESSAGES):
            n += 1
            rank = chance.randrange(RANKS)
            clock = f"{n // 3_600_000 % 24:02d}:{n // 60_000 % 60:02d}:{n // 1_000 % 60:02d}"
            fields = {
                "n": n, "r": rank, "host": rank // 8, "local": rank % 8, "pid": 40_000 + rank % 8, "tid": 40_900 + rank % 8,
                "clock": clock, "date": "2026-05-07", "day": f"2026-05-07T{clock}", "us": f"{n * 7 % 1_000_000:06d}",
                "ms": f"{n % 1_000:03d}", "epoch": 1_778_155_200 + n // 1_000, "f": f"{n * 0.37:.3f}", "file": file,
                "module": file.split(".")[0], "line": len(template) * 37 % 2_000,
            }  # fmt: skip
            head = chance.choice(kind.heads).format(**fields)
            for line in filled(chance, template).split("\n"):
                lines.append(around.format(said=head + line, **fields))
        yield "".join(lines)


def measured(path: Path) -> tuple[float, float]:
    """CPU seconds and the peak memory of `analyze` in one process."""
    command = [sys.executable, "-m", "nccl_doctor", "analyze", str(path), "--fail-on", "never"]
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[:1])
    try:
        _, processor, peak = logs.run(command)
    finally:
        os.sched_setaffinity(0, mine)
    return processor, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--flags", default="", help="the messages of which the flags hold this")
    parser.add_argument("--around", choices=AROUND, default="none")
    parser.add_argument("--size", type=int, default=16, help="MiB")
    parser.add_argument("--keep", type=Path, help="write the log to this file and do not read it")
    args = parser.parse_args()
    kind = KINDS[args.kind]
    said = messages(kind, args.tree, args.flags)
    if not said:
        parser.error("the tree has no such message")

    def lines() -> Iterator[str]:
        return texts(kind, said, AROUND[args.around])

    if args.keep:
        logs.write(args.keep, lines, args.size << 20)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        logs.write(path, lines, args.size << 18)
        quarter, least = path.stat().st_size / 1e6, measured(path)
        logs.write(path, lines, args.size << 20)
        whole, most = path.stat().st_size / 1e6, measured(path)
    name = " ".join(filter(None, (args.kind, args.flags, args.around)))
    rate = (whole - quarter) / (most[0] - least[0])
    print(f"{name:28} {len(said):5} {whole:6.1f} {most[0]:7.2f} {rate:9.1f} {most[1]:8.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
