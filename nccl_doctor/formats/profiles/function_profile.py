"""The table that Python's `pstats` prints of a profile of cProfile, in a file or inside the log of a job.

A process that waits in a collective on the CPU (Gloo, MPI, `barrier`, `synchronize`) spends its own time there. Kernels of NCCL run
beside Python: their time shows where Python waits for the GPU (`synchronize`, `item`, a copy to the CPU).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

TOOL = "cProfile"
REPORT = "functions"
_HEAD = re.compile(
    r"\s{0,40}\d{1,15} function calls(?: \(\d{1,15} primitive calls\))? in (\d{1,12}(?:\.\d{1,6})?) (?:CPU )?seconds"
)
_TITLES = re.compile(r"\s{0,20}ncalls {2}tottime {2}percall {2}cumtime {2}percall ")
_ROW = re.compile(
    r"\s{0,20}(?P<calls>\d{1,15})(?:/\d{1,15})?\s{1,20}(?P<own>\d{1,12}\.\d{1,6})\s{1,20}\d[\d.]{0,18}\s{1,20}"
    r"\d[\d.]{0,18}\s{1,20}\d[\d.]{0,18}\s(?P<name>\S.{0,600})$"
)
_KINDS = (
    (
        "communication",
        re.compile(
            r"(?i)all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|_distributed_c10d|distributed_c10d\.py|nccl"
            r"|\b(?:barrier|monitored_barrier)\b|horovod|mpi4py|\bMPI\b|process_?group|(?:^|['.(])(?:send|recv|isend|irecv)\b"
        ),
    ),
    (
        "waiting for the GPU",
        re.compile(r"(?i)synchronize|'(?:item|cpu|tolist|nonzero|numpy)' of 'torch|block_until_ready|_local_scalar"),
    ),
    (
        "waiting for others",  # loader workers, threads, files
        re.compile(
            r"'acquire' of '_thread|select\.(?:poll|epoll|select)|'poll' of 'select|'(?:recv|read\w{0,10})' of '_?(?:socket|io)\b"
            r"|time\.sleep|posix\.(?:read|waitpid)"
        ),
    ),
)
_SHARED = re.compile(r"(?i)(?:numpy|np)\b.{0,80}broadcast|broadcast_(?:to|arrays|shapes|tensors)|stride_tricks")
_MOST = 1_000  # rows of a table
_KEPT = 20  # of them


class _Row(NamedTuple):
    name: str
    kind: str
    calls: int
    seconds: float  # without the functions that it calls
    number: int
    line: str


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all tables of a file.

    Source: `Lib/pstats.py`, `print_stats` (Python 2.7 to 3.14); the times of listed functions without those that they call::

             1523045 function calls (1498732 primitive calls) in 62.418 seconds
       ncalls  tottime  percall  cumtime  percall filename:lineno(function)
          480   31.204    0.065   31.204    0.065 {built-in method torch._C._distributed_c10d.all_reduce}
    """
    facts.mark_covered("profile_sum", "profile_share")
    total: tuple[float, int, str] | None = None
    rows: list[_Row] | None = None  # of the open table
    understood = number = 0
    for number, _, line in plain_lines(stream):
        if (head := _HEAD.match(line)) is not None:
            facts.add(_facts(facts, name, rows or [], total))
            total, rows = (float(head[1]), number, line.strip()), None
        elif _TITLES.match(line) is not None:
            rows = []
        elif rows is not None and (found := _ROW.match(line)) is not None:
            if len(rows) < _MOST:
                rows.append(
                    _Row(
                        found["name"].strip(),
                        kind_of(found["name"]),
                        int(found["calls"]),
                        float(found["own"]),
                        number,
                        line.strip(),
                    )
                )
        elif line.strip() and rows:
            facts.add(_facts(facts, name, rows, total))
            total = rows = None
            continue
        else:
            continue
        understood += 1
    facts.add(_facts(facts, name, rows or [], total))
    return Reading(number, understood)


def kind_of(function: str) -> str:
    """What a function does with its time, by its name and file."""
    found = next((kind for kind, pattern in _KINDS if pattern.search(function)), "other")
    return "other" if found == "communication" and _SHARED.search(function) else found


def _facts(
    facts: Facts, file: str, rows: list[_Row], total: tuple[float, int, str] | None
) -> Iterator[ProfileShare | ProfileSum]:
    """Sums by kind. A table may show some functions only: the rest of the time is of others."""
    if not rows:
        return
    listed = sum(row.seconds for row in rows)
    seconds = max(total[0] if total is not None else listed, listed)
    kinds: dict[str, list[_Row]] = {"other": []}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    for kind, of in kinds.items():
        rest = seconds - listed if kind == "other" else 0.0
        spent = sum(row.seconds for row in of) + rest
        longest = max(of or rows, key=lambda row: row.seconds)
        ref = facts.evidence(file, longest.number, longest.line)
        yield ProfileShare(file, TOOL, REPORT, kind, len(of), sum(row.calls for row in of), spent * 1000, ref)
    for row in sorted(rows, key=lambda row: -row.seconds)[:_KEPT]:
        share = 100 * row.seconds / seconds if seconds else None
        ref = facts.evidence(file, row.number, row.line)
        yield ProfileSum(file, TOOL, REPORT, row.kind, row.name, row.calls, row.seconds * 1000, share, None, ref)
