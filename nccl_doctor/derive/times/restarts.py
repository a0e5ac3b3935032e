"""Where a job begins again within its log, after a process was reported dead.

Either a rank that had printed NCCL lines prints them as another process, or an agent of torchrun reports the end of a worker
of which it had reported another process before:

    E1121 01:51:44.670000 29838 torch/…/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 29843) of binary: python3
    E1121 01:51:47.404000 29838 torch/…/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 29966) of binary: python3
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Process, ProcessEnd, PythonError, Restart

# c10d and torchrun write as glog does
_AGENT = compiled(
    r"\b[EWI]\d{4} (?P<hours>\d\d):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d{1,9})?) {1,3}(?P<pid>\d{1,9}) torch/"
)
_DAY = 86_400
_START = 1.0  # seconds that a Python process with PyTorch needs at least until it can fail


class _Report(NamedTuple):
    """What an agent of torchrun says of the end of a worker."""

    agent: tuple[str | None, str]  # host, number of the process
    clock: float  # seconds of the day
    local_rank: int
    pid: int
    line: int
    ref: int


@derivation(fills=[Restart], needs=[Process, ProcessEnd], reads=[PythonError])
def restarts(facts: Facts) -> Iterator[Restart]:
    """The first line of each attempt but the first, file by file."""
    ends = _ends(facts)
    begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for file, line, ref in (*_new_processes(facts, ends), *_new_workers(facts)):
        begun[file].append((line, ref))
    for file, places in begun.items():
        known = 0
        for line, ref in sorted(places):  # the ranks of one attempt begin without an end between them
            if not known or _between(ends[file], known, line):
                yield Restart(file, line, ref)
            known = line


def _new_processes(facts: Facts, ends: dict[str, list[int]]) -> Iterator[tuple[str, int, int]]:
    """(file, line, ref) where a rank begins as another process, with an end of some process since it last printed."""
    last: dict[tuple[str, int], int] = {}
    rows = facts.query(
        "SELECT e.file, p.rank, p.first_line, p.last_line, p.ref FROM process p JOIN evidence e ON e.id = p.ref"
        " WHERE p.rank IS NOT NULL AND p.pid IS NOT NULL ORDER BY p.first_line"
    )
    for file, rank, first, stop, ref in rows:
        before = last.get((file, rank))
        if before is not None and before < first and _between(ends.get(file, []), before, first):
            yield file, first, ref
        last[file, rank] = max(stop, before or 0)


def _new_workers(facts: Facts) -> Iterator[tuple[str, int, int]]:
    """(file, line, ref) behind the last report on the workers that an agent of torchrun started again later."""
    reports: dict[str, list[_Report]] = defaultdict(list)
    hosts: dict[str, set[str]] = defaultdict(set)
    for file, host, local_rank, pid, text, line, ref in facts.query(
        "SELECT e.file, t.host, t.local_rank, t.pid, e.text, e.line, t.ref FROM process_end t JOIN evidence e ON e.id = t.ref"
        " WHERE t.reporter = 'torchelastic' AND t.pid IS NOT NULL AND t.local_rank IS NOT NULL ORDER BY e.line"
    ):
        if host is not None:
            hosts[file].add(host)
        if (found := _AGENT.search(text)) is not None:
            clock = 60 * (60 * int(found["hours"]) + int(found["minutes"])) + float(found["seconds"])
            reports[file].append(_Report((host, found["pid"]), clock, local_rank, pid, line, ref))
    for file, said in reports.items():
        # Agents in containers, and those of many nodes, have equal numbers.
        if len(hosts[file]) <= len({report.agent for report in said}):
            yield from ((file, line, ref) for line, ref in _again(said))


def _again(reports: Sequence[_Report]) -> Iterator[tuple[int, int]]:
    """(line, ref) behind the last report of one attempt of an agent, where a later one names another process of the same local rank."""
    agents: dict[tuple[str | None, str], tuple[dict[int, int], _Report]] = {}  # pids of workers, last report
    for report in reports:
        workers, before = agents.get(report.agent, ({}, report))
        if workers.get(report.local_rank, report.pid) != report.pid and (report.clock - before.clock) % _DAY >= _START:
            yield before.line + 1, before.ref
            workers = {}
        agents[report.agent] = {**workers, report.local_rank: report.pid}, report


def _ends(facts: Facts) -> dict[str, list[int]]:
    """Lines of each file that report the end of a process or an exception."""
    found: dict[str, list[int]] = defaultdict(list)
    for file, line in facts.query(
        "SELECT e.file, e.line FROM (SELECT ref FROM process_end UNION SELECT ref FROM python_error) x"
        " JOIN evidence e ON e.id = x.ref ORDER BY e.line"
    ):
        found[file].append(line)
    return found


def _between(lines: list[int], low: int, high: int) -> bool:
    index = bisect_left(lines, low)
    return index < len(lines) and lines[index] < high
