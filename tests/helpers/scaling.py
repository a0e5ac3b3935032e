"""Facts of a job that is several times as large, and the steps that SQLite takes for a query.

Steps of SQLite's virtual machine are the same on every machine, so that two sizes show whether a query is linear.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple

from nccl_doctor.facts.schema import by_name, table_name
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Evidence, Job

TICK = 100  # steps between two looks at the counter
_NAMES = ("host", "src_host", "dst_host", "node", "label", "file", "other_file", "series", "key", "interface", "tensor")
_NUMBERS = {
    "rank": 64,
    "pid": 100_000,
    "src": 64,
    "dst": 64,
    "comm_rank": 64,
    "run": 1000,
    "synthetic_run": 1000,
}  # column -> what a copy adds
_IP = re.compile(r"\b(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\b")
_LINES = 1_000_000  # of a copy
_PROCESS = re.compile(r"(?<=\w:)(\d+):(\d+)(?=[ :]\[)")  # as NCCL names it, behind its host
_UPTIME = re.compile(r"\[(\d{3,6})\.(\d{6})\]")  # of the kernel


class Cost(NamedTuple):
    """What a query costs."""

    steps: int  # of SQLite, rounded to `TICK`
    parts: int  # of what it returns: values, and what stands between commas in them, such as numbers of evidence


def cost(facts: Facts, query: str, params: dict[str, Any] | None = None) -> Cost:
    """What a query costs."""
    parts = 0
    with counted(facts) as ticks:
        for row in facts._db.execute(query, params or {}):
            parts += len(row) + sum(value.count(",") for value in row if isinstance(value, str))
    return Cost(len(ticks) * TICK, parts)


@contextmanager
def counted(facts: Facts) -> Iterator[list[None]]:
    """A list that grows by one entry for each `TICK` steps of all queries."""
    facts.query("SELECT 1")
    ticks: list[None] = []
    facts._db.set_progress_handler(lambda: ticks.append(None), TICK)
    try:
        yield ticks
    finally:
        facts._db.set_progress_handler(None, 0)


@contextmanager
def traced_lines(part_of_path: str) -> Iterator[Counter[str]]:
    """How many lines Python runs in files with this in their path, under the key `lines`."""
    lines: Counter[str] = Counter()

    def in_function(frame: FrameType, event: str, _argument: Any) -> Any:
        lines[event] += 1
        return in_function

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        return in_function if part_of_path in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield lines
    finally:
        sys.settrace(before)


def called(run: Callable[[], object]) -> int:
    """How many calls of functions Python and its C code make."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def restarted(log: str, times: int) -> str:
    """A log in which as many processes of the same hosts print the same, one after the other, and the kernel does so later."""

    def copy(number: int) -> str:
        text = _PROCESS.sub(lambda found: f"{int(found[1]) + 1000 * number}:{int(found[2]) + 1000 * number}", log)
        return _UPTIME.sub(lambda found: f"[{int(found[1]) + number}.{found[2]}]", text)

    return "\n".join(map(copy, range(times)))


def add_copies(
    facts: Facts, given: Facts, first: int, last: int, *, whole: bool = False, one_file: bool = False
) -> None:
    """Add the rows of `given` so many times, each time of other hosts, ranks, processes and addresses, and of other files or lines.

    `whole` leaves out derived tables, which are then to be derived from the copies.
    """
    from nccl_doctor.derive.registry import is_derived

    unnamed = Evidence(0, "example", 1, "")
    evidence = {row.id: row for row in given.rows(Evidence)}
    tables = [table for table in by_name().values() if table is not Evidence and not (whole and is_derived(table))]
    rows = {table: [(row, _parts(row)) for row in given.rows(table)] for table in tables}
    facts.mark_covered(
        *(given.covered() - ({table_name(t) for t in by_name().values() if is_derived(t)} if whole else set()))
    )
    rows = {table: of_table for table, of_table in rows.items() if of_table}
    if facts.query("SELECT EXISTS (SELECT 1 FROM job)")[0][0]:
        rows.pop(Job, None)
    for number in range(first, last):
        refs: dict[int, int] = {}

        def ref(old: int, refs: dict[int, int] = refs, number: int = number) -> int:
            if old not in refs:
                row = evidence.get(old, unnamed)
                refs[old] = facts.evidence(
                    row.file if one_file else _renamed("file", row.file, number), row.line + number * _LINES, row.text
                )
            return refs[old]

        facts.add(chain.from_iterable(_copies(of_table, number, ref) for of_table in rows.values()))
        rows.pop(Job, None)


def _parts(row: Any) -> list[tuple[str, Any]]:
    """The names and values of a row that may be others in a copy."""
    return [(name, value) for name, value in row._asdict().items() if value is not None and _changes(name, value)]


def _changes(name: str, value: Any) -> bool:
    if name in _NAMES or name == "refs" or f"_{name}".endswith("_ref"):
        return True
    if isinstance(value, str):
        return name not in ("text", "message") and _IP.search(value) is not None
    return name in _NUMBERS and isinstance(value, int)


def _copies(rows: list[tuple[Any, list[tuple[str, Any]]]], number: int, ref: Any) -> Iterator[Any]:
    for row, parts in rows:
        yield row._replace(**{name: _renamed(name, value, number, ref) for name, value in parts})


def _renamed(name: str, value: Any, number: int, ref: Any = None) -> Any:
    """A value that may change, as the copy with this number has it."""
    if name == "refs":
        return ",".join(str(ref(int(one))) for one in str(value).split(",") if one)
    if f"_{name}".endswith("_ref"):
        return ref(value) if value else value
    if number == 0:
        return value
    if name in _NAMES:
        return f"{value}-{number}"
    if name in _NUMBERS and isinstance(value, int):
        return value + number * _NUMBERS[name]
    return _IP.sub(lambda ip: f"{ip[1]}.{(int(ip[2]) + number // 250) % 250}.{number % 250}.{ip[4]}", value)
