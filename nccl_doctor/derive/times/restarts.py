"""Where a job begins again within its log: a rank that had printed prints as another process, after a process was reported dead."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Process, ProcessEnd, PythonError, Restart


@derivation(fills=[Restart], needs=[Process], reads=[ProcessEnd, PythonError])
def restarts(facts: Facts) -> Iterator[Restart]:
    """The first line of each attempt but the first, file by file."""
    ends = _ends(facts)
    begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
    last: dict[tuple[str, int], int] = {}
    rows = facts.query(
        "SELECT e.file, p.rank, p.first_line, p.last_line, p.ref FROM process p JOIN evidence e ON e.id = p.ref"
        " WHERE p.rank IS NOT NULL AND p.pid IS NOT NULL ORDER BY p.first_line"
    )
    for file, rank, first, stop, ref in rows:
        before = last.get((file, rank))
        if before is not None and before < first and _between(ends.get(file, []), before, first):
            begun[file].append((first, ref))
        last[file, rank] = max(stop, before or 0)
    for file, places in begun.items():
        known = 0
        for line, ref in places:  # the ranks of one attempt begin without an end between them
            if not known or _between(ends[file], known, line):
                yield Restart(file, line, ref)
            known = line


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
    index = bisect_right(lines, low)
    return index < len(lines) and lines[index] < high
