"""Pieces of inputs grown to megabytes with other numbers: `python bench/pumped.py [--seed N] [--cases N] [--size MB] FOLDER…`.

Of each case a part of one file of the folders (without any, those of fixtures/) is repeated until the file is so large: some lines,
a part of a line, words, or the elements of a list or an object in JSON. Printed are the cases that take more CPU time or memory than
their size justifies, or that fail; their files are kept. What is slow with 2 MB and five times as slow with 4 is not linear.
"""

import argparse
import json
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from nccl_doctor import UsageProblem, analyze

FIXTURES = Path(__file__).parent.parent / "fixtures"
LARGEST = 3_000_000  # bytes of a file of which a part is taken
SLOWEST = 1.2  # MB a CPU second
START = 0.6  # CPU seconds that any input may take
MEMORY = 330_000  # kB
CPU_LIMIT = 60  # seconds, after which a case is ended
PACKED = {".gz", ".xz", ".bz2", ".zst", ".zip", ".tar", ".db", ".sqlite"}
_DIGITS = re.compile(r"\d+")


def other_numbers(text: str, chance: Random) -> str:
    """The text in which half of the numbers are others, of as many digits."""
    return _DIGITS.sub(lambda found: found[0] if chance.random() < 0.5 else _like(found[0], chance), text)


def _like(digits: str, chance: Random) -> str:
    return str(chance.randrange(10 ** min(len(digits), 12))).zfill(len(digits))


def piece_of(text: str, chance: Random) -> str:
    """A part of a text."""
    lines, words = text.splitlines(keepends=True), text.split()
    kind = chance.choice(("lines", "lines", "block", "characters", "words", "glued"))
    at = chance.randrange(len(lines))
    if kind == "lines":
        return "".join(lines[at : at + chance.choice((1, 1, 2, 3, 5, 10, 30))]).rstrip("\n") + "\n"
    if kind == "block":
        return "".join(lines[at : at + 200])
    if kind == "glued":
        return lines[at].rstrip("\r\n") or "\n"
    if kind == "words" and words:
        at = chance.randrange(len(words))
        return " ".join(words[at : at + chance.choice((1, 2, 4, 8))]) + chance.choice((" ", "\n", ",", ""))
    at = chance.randrange(len(text))
    return text[at : at + chance.choice((1, 5, 20, 100))]


def pumped_text(text: str, size: int, chance: Random) -> str:
    """A text of which a part is repeated behind its first lines."""
    piece, varies = piece_of(text, chance), chance.random() < 0.6
    parts = ["".join(text.splitlines(keepends=True)[: chance.choice((0, 0, 3, 20))])]
    left = size
    while left > 0:
        parts.append(other_numbers(piece, chance) if varies else piece * max(1, left // len(piece)))
        left -= len(parts[-1])
    return "".join(parts)


def containers(data: Any) -> Iterator[Any]:
    """All lists and objects in JSON that hold something."""
    if isinstance(data, dict | list) and data:
        yield data
        for value in list(data.values() if isinstance(data, dict) else data[:50]):
            yield from containers(value)


def pumped_json(data: Any, size: int, chance: Random) -> str:
    """JSON of which one list or object got many more elements."""
    grown = chance.choice(list(containers(data)))
    items = list(grown.items()) if isinstance(grown, dict) else list(enumerate(grown))
    for number in range(size // (len(json.dumps(grown)) // len(items) + 1)):
        key, value = chance.choice(items)
        other = json.loads(json.dumps(value), parse_int=_near(chance))
        if isinstance(grown, dict):
            grown[f"{key}.{number}" if chance.random() < 0.5 else _DIGITS.sub(str(number), key) + str(number)] = other
        else:
            grown.append(other)
    return json.dumps(data, indent=chance.choice((None, None, 1)))


def _near(chance: Random) -> Callable[[str], int]:
    return lambda digits: int(digits[:4_000]) + chance.randrange(1_000)


def cost(path: Path) -> tuple[float, int, int]:
    """CPU seconds, kB of memory and status of reading a file."""
    child = os.fork()
    if not child:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
            analyze(path)
            status = 0
        except UsageProblem:
            status = 0
        finally:
            os._exit(status)
    _, status, used = os.wait4(child, 0)
    return used.ru_utime + used.ru_stime, used.ru_maxrss, status


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure pieces of inputs that are grown to megabytes.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--size", type=float, default=2.0, help="MB of a case")
    parser.add_argument("folders", nargs="*", type=Path, default=[FIXTURES])
    args = parser.parse_args()
    every = (path for folder in args.folders for path in sorted(folder.rglob("*")))
    files = [
        path for path in every if path.is_file() and 0 < path.stat().st_size < LARGEST and path.suffix not in PACKED
    ]
    kept, found = Path(tempfile.mkdtemp(prefix="pumped-")), 0
    analyze(FIXTURES / "demo.log")  # imports what any input needs
    for number in range(args.cases):
        chance = Random(f"{args.seed} {number}")
        source = chance.choice(files)
        text, size = source.read_text("utf-8", "replace"), int(args.size * 1e6)
        try:
            data = json.loads(text) if chance.random() < 0.7 else None
        except ValueError:
            data = None
        grown = (
            pumped_json(data, size, chance)
            if isinstance(data, dict | list) and data
            else pumped_text(text, size, chance)
        )
        path = kept / f"{number}{source.suffix}"
        path.write_text(grown, "utf-8")
        seconds, memory, status = cost(path)
        if status or seconds > START + len(grown) / 1e6 / SLOWEST or memory > MEMORY:
            found += 1
            print(f"{path} of {source}: {seconds:.1f} CPU s, {memory // 1000} MB, status {status}", flush=True)
        else:
            path.unlink()
    print(f"{args.cases} cases, {found} slow, large or failed")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
