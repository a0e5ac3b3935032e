"""Injects faults into real jobs under `record`, and measures what names the rank, after how many seconds.

`python bench/faults/run.py --torch VENV` needs a virtual environment with torch (CPU), `--mpi VENV` one with mpi4py and an mpirun
(`pip install mpi4py mpich`). Jobs on two hosts need root: each host has namespaces of its own (network, processes, name), and
`wire.py` passes their packets on. `--json FILE` appends a line for each run; `--table FILE...` makes the table of such files.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults import FAULTS, HEALTHY, Fault
from jobs import DOCTOR, Job, Machine

from nccl_doctor.app.hang.evidence import job_of

LIMIT = 40.0  # seconds from the fault to the headline, or to the end of the job
SLOW = 40.0  # seconds for which a slow job is recorded
STEPS = 150  # of a healthy job
HEADER = ("fault", "ranks", "runs", "seen", "s: median", "s: worst", "headline", "`watch --once`", "`stacks`",
          "`analyze`: rank", "`analyze`: class", "named as")  # fmt: skip


@dataclass
class Result:
    """What one run gave; None where it was not asked or does not apply."""

    fault: str
    ranks: int
    load: float
    seconds: float | None = None
    said: str | None = None  # the headline
    headline: bool | None = None  # names the rank
    once: bool | None = None
    stacks: bool | None = None
    rank: bool | None = None
    right: bool | None = None
    found: list[str] = field(default_factory=list)  # errors and warnings of `analyze`, the first first


def asked(inside: Sequence[str], *words: str) -> dict[str, Any]:
    """Returns the JSON that a command of nccl-doctor prints; empty if there is none."""
    command = [*inside, *DOCTOR, *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return found


def names(text: str, rank: int | None) -> bool:
    return f"rank {rank} " in text if rank is not None else "acknowledge" in text or "connect" in text


def serious(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in report.get("findings", ()) if one["severity"] in ("error", "warning")]


def right_rank(report: dict[str, Any], fault: Fault) -> bool:
    first = next(iter(serious(report)), None)
    return first is not None and (fault.rank is None or str(fault.rank) == str(first["ranks"]))


def run_fault(fault: Fault, machine: Machine, port: int, *, ask: bool, keep: bool) -> Result:
    """Runs one job with a fault."""
    folder = Path(tempfile.mkdtemp(prefix=f"fault-{fault.name}-"))
    result = Result(title(fault), machine.ranks, os.getloadavg()[0])
    job = Job(machine, fault, folder, port)
    try:
        result.seconds, result.said = job.wait(
            headline=fault.kind == "stall", limit=SLOW if fault.kind == "slow" else LIMIT
        )
        if fault.kind == "stall":
            result.headline = result.said is not None and names(result.said, fault.rank)
            if ask and job.runs:
                inside = job.inside(1) if fault.place == "hosts" else []
                live = asked(inside, "watch", "--once")
                result.once = any(names(one["headline"], fault.rank) for one in live.get("jobs", ()))
                if fault.rank is not None and result.said is not None:
                    result.stacks = right_rank(asked(inside, "stacks", "--job", job_of(result.said)), fault)
    finally:
        job.stop()
    report = asked([], "analyze", str(folder / "run"))
    result.found = [one["name"] for one in serious(report)]
    result.rank = None if fault.rank is None else right_rank(report, fault)
    result.right = bool(result.found) and result.found[0] in fault.rules
    if fault.kind == "slow":
        result.seconds = None
        result.right = any(name in fault.rules for name in result.found)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def run_healthy(fault: Fault, machine: Machine, port: int, *, keep: bool) -> Result:
    """Runs a job without a fault to its end."""
    folder = Path(tempfile.mkdtemp(prefix=f"healthy-{fault.name}-"))
    result = Result(title(fault), machine.ranks, os.getloadavg()[0])
    job = Job(machine, fault, folder, port, STEPS)
    beside = folder.with_name(f"{folder.name}-beside")
    other = None
    if "two jobs" in fault.words:
        beside.mkdir()
        other = Job(machine, fault, beside, port + 1000, STEPS)
    try:
        while job.runs:
            if found := job.headline():
                result.said = found[0]
            time.sleep(0.2)
    finally:
        job.stop()
        if other is not None:
            other.stop()
            shutil.rmtree(beside, ignore_errors=True)
    report = asked([], "analyze", str(folder / "run"))
    result.found = [one["name"] for one in serious(report)]
    result.right = result.said is None and not result.found and bool(report)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def title(fault: Fault) -> str:
    return fault.words


def share(values: Iterable[bool | None]) -> str:
    """Returns `3/3`; empty where nobody asked."""
    known = [value for value in values if value is not None]
    return f"{sum(known)}/{len(known)}" if known else ""


def table(results: Sequence[Result]) -> str:
    """Returns the table of all results, and the shares that count."""
    rows = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    groups: dict[tuple[str, int], list[Result]] = {}
    for one in results:
        groups.setdefault((one.fault, one.ranks), []).append(one)
    for (words, ranks), ones in groups.items():
        times = [one.seconds for one in ones if one.seconds is not None and one.said is not None]
        seen = [one.said is not None if one.headline is not None else one.right for one in ones]
        cells = (
            words, str(ranks), str(len(ones)), share(seen), f"{statistics.median(times):.0f}" if times else "",
            f"{max(times):.0f}" if times else "", share(one.headline for one in ones), share(one.once for one in ones),
            share(one.stacks for one in ones), share(one.rank for one in ones), share(one.right for one in ones),
            ", ".join(dict.fromkeys(one.found[0] if one.found else "nothing" for one in ones)),
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    stalls = [one for one in results if one.headline is not None]
    faults = [one for one in results if not one.fault.startswith("healthy")]
    loads = [one.load for one in results]
    rows += [
        "",
        f"{len(results)} runs at a load of {min(loads):.0f} to {max(loads):.0f}. Stalls seen within 20 s: "
        f"{share(one.said is not None and (one.seconds or 0) <= 20 for one in stalls)}, headline right: "
        f"{share(one.headline for one in stalls)}, rank by `analyze`: {share(one.rank for one in faults)}, class: "
        f"{share(one.right for one in faults)}, healthy runs without a word: "
        f"{share(one.right for one in results if one.fault.startswith('healthy'))}.",
    ]
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", type=Path, help="virtual environment with torch")
    parser.add_argument("--mpi", type=Path, help="virtual environment with mpi4py and mpirun")
    parser.add_argument("--only", nargs="*", help="names of faults")
    parser.add_argument("--place", choices=["node", "hosts", "mpi"], help="faults of this place only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--healthy", type=int, default=0, help="runs without a fault")
    parser.add_argument("--all", action="store_true", help="ask `watch --once` and `stacks` too")
    parser.add_argument("--port", type=int, default=29700)
    parser.add_argument("--keep", action="store_true", help="keep the recordings")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append a line for each run")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="print the table of these runs")
    arguments = parser.parse_args()
    if arguments.table:
        lines = [line for file in arguments.table for line in file.read_text().splitlines()]
        print(table([Result(**json.loads(line)) for line in lines]))
        return 0
    if arguments.torch is None:
        parser.error("--torch is needed")
    machine = Machine(arguments.torch, arguments.mpi, arguments.ranks)

    def wanted(fault: Fault) -> bool:
        return (
            (arguments.only is None or fault.name in arguments.only)
            and arguments.place in (None, fault.place)
            and (fault.place != "hosts" or os.geteuid() == 0)
            and (fault.place != "mpi" or arguments.mpi is not None)
        )

    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        print(
            f"{result.fault}: {result.seconds and round(result.seconds)} s, {result.said}, {result.found}",
            file=sys.stderr,
            flush=True,
        )
        if arguments.json is not None:
            with arguments.json.open("a") as lines:
                lines.write(json.dumps(asdict(result)) + "\n")

    for _ in range(arguments.rounds):
        for fault in filter(wanted, FAULTS):
            port = arguments.port + len(results)
            add(run_fault(fault, machine, port, ask=arguments.all, keep=arguments.keep))
    healthy = [fault for fault in HEALTHY if wanted(fault)]
    for count in range(arguments.healthy if healthy else 0):
        add(run_healthy(healthy[count % len(healthy)], machine, arguments.port + len(results), keep=arguments.keep))
    if results:
        print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
