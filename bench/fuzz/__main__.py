"""Fuzzes every reader with inputs that were changed as their format asks for.

`python bench/fuzz --seed 1 --minutes 10` stops by itself. Seeds are the fixtures and what `simulate` writes; a case that did
something new (other findings, problems or statuses) is kept in `.fuzz/kept` and changed further. A find is written to
`.fuzz/finds/NAME`: its files, the command and what was wrong. `--replay NAME` runs it again.
"""

import argparse
import json
import multiprocessing
import os
import pickle
import shutil
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from judge import Judge
from targets import TARGETS, Case, make

PLACE = Path(".fuzz")
KEPT = 2_000  # cases
STALLED = 120.0  # seconds of processor time after which the kernel ends a worker


def work(seed: str, until: float, only: str, folder: Path, kept_at: Path) -> None:
    """Make and judge cases until the time is up."""
    rng = Random(seed)
    judge = Judge(folder)
    kept = [pickle.loads(path.read_bytes()) for path in sorted(kept_at.glob("*.case"))[:KEPT]]
    seen: set[str] = set()
    count = 0
    while time.time() < until:
        case = make(rng, only, kept)
        (folder / "current").write_bytes(pickle.dumps(case))
        count += 1
        (folder / "count").write_text(str(count))
        problem, signature = judge.run(case)
        if problem:
            write_find(case, problem)
        elif signature not in seen and len(kept) < KEPT:
            seen.add(signature)
            kept.append(case)
            (kept_at / f"{seed.replace(' ', '-')}-{count}.case").write_bytes(pickle.dumps(case))


def write_find(case: Case, problem: str) -> None:
    """Keep a find once for each kind of problem."""
    first = problem.splitlines()[0]
    name = f"{case.target}-" + "".join(sign if sign.isalnum() else "-" for sign in first)[:90].strip("-")
    place = PLACE / "finds" / name
    if place.exists():
        return
    for path, data in case.files.items():
        file = place / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    place.mkdir(parents=True, exist_ok=True)
    (place / "case").write_bytes(pickle.dumps(case))
    (place / "problem.txt").write_text(f"{json.dumps(case.command)}\n{problem}\n", "utf-8", "replace")
    print(f"find: {name}: {first[:200]}", flush=True)


def replay(name: str) -> int:
    """Run a find again, smaller ones of it too, and print what is wrong with the smallest."""
    place = PLACE / "finds" / name
    judge = Judge(PLACE / "replay")
    case = pickle.loads((place / "case").read_bytes())
    problem, _ = judge.run(case)
    if not problem:
        print("nothing is wrong with it now")
        return 0
    case = smaller(case, problem.splitlines()[0], judge)
    write = PLACE / "finds" / name / "smallest"
    for path, data in case.files.items():
        (write / path).parent.mkdir(parents=True, exist_ok=True)
        (write / path).write_bytes(data)
    print(case.command, {path: data[:1500] for path, data in case.files.items()}, problem, sep="\n")
    return 1


def smaller(case: Case, first: str, judge: Judge) -> Case:
    """The case without lines that the problem does not need."""
    for name in sorted(case.files):
        lines = case.files[name].split(b"\n")
        size = max(len(lines) // 2, 1)
        while size:
            at = 0
            while at < len(lines):
                fewer = lines[:at] + lines[at + size :]
                tried = Case(case.target, {**case.files, name: b"\n".join(fewer)}, case.command, case.flags)
                problem, _ = judge.run(tried)
                if problem and problem.splitlines()[0] == first:
                    lines, case = fewer, tried
                else:
                    at += size
            size //= 2
    return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=sorted(TARGETS), default="")
    parser.add_argument("--replay", metavar="NAME")
    asked = parser.parse_args()
    if asked.replay:
        return replay(asked.replay)
    before = set((PLACE / "finds").glob("*"))
    (PLACE / "finds").mkdir(parents=True, exist_ok=True)
    (PLACE / "kept").mkdir(exist_ok=True)
    until = time.time() + 60 * asked.minutes
    total = run_workers(asked.seed, until, asked.jobs, asked.only)
    finds = sorted(path.name for path in set((PLACE / "finds").glob("*")) - before)
    print(f"seed {asked.seed}: {total:,} cases in {asked.minutes:g} minutes, {len(finds)} finds")
    return int(bool(finds))


def run_workers(seed: str, until: float, jobs: int, only: str) -> int:
    """Keep workers running until the time is up; what a worker dies of is a find. Returns how many cases they judged."""
    context = multiprocessing.get_context("fork")
    total, born = 0, 0
    workers: dict[multiprocessing.process.BaseProcess, Path] = {}
    while workers or time.time() < until:
        while len(workers) < jobs and time.time() < until:
            folder = PLACE / f"worker-{os.getpid()}-{born}"
            folder.mkdir()
            one = context.Process(target=work, args=(f"{seed} {born}", until, only, folder, PLACE / "kept"))
            one.start()
            workers[one], born = folder, born + 1
        time.sleep(0.5)
        for one, folder in list(workers.items()):
            if one.is_alive():
                continue
            one.join()
            total += int((folder / "count").read_text() if (folder / "count").exists() else 0)
            if one.exitcode and (folder / "current").exists():
                case = pickle.loads((folder / "current").read_bytes())
                write_find(case, f"the process ended with {one.exitcode} (-24: {STALLED:g} s of processor time)")
            shutil.rmtree(folder, ignore_errors=True)
            del workers[one]
    return total


if __name__ == "__main__":
    sys.exit(main())
