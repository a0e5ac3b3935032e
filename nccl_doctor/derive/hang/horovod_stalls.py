"""Horovod's stall reports in all their wordings, rank by rank.

Up to 0.13 the list names the ranks that are READY, from 0.14 to 0.17 those that are missing, since 0.18 a line for each missing
rank with up to six tensors. Equal lines of later reports are folded, so a row says in which report it stood first and where last.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HorovodStall, Job, Message

_KINDS = ("horovod-stall-ready", "horovod-stall-missing", "horovod-stall-rank")
_MOST = 200_000  # rows; a list of all tensors for ten thousand ranks says nothing more


class _Line(NamedTuple):
    kind: str
    tensors: tuple[str, ...]
    ranks: tuple[int, ...]
    doomed: int
    report: int
    last_line: int
    ref: int


@derivation(fills=[HorovodStall], needs=[Message], reads=[Job])
def horovod_stalls(facts: Facts) -> Iterable[HorovodStall]:
    """Ranks that were ready and ranks that were missing in each stall report, by tensor."""
    lines = list(_lines(facts))
    if not lines:
        return ()
    named = max((rank for line in lines for rank in line.ranks), default=0) + 1
    world = max(facts.query("SELECT ranks FROM job")[0][0] or 0, named)
    rows: dict[tuple[str, int, str], HorovodStall] = {}
    for row in _rows(lines, min(world, 100_000)):
        key = row.tensor, row.rank, row.state
        old = rows.get(key)
        if old is not None:
            row = old._replace(doomed=old.doomed or row.doomed, last_line=max(old.last_line, row.last_line))
        rows[key] = row
        if len(rows) >= _MOST:
            break
    return rows.values()


def _lines(facts: Facts) -> Iterator[_Line]:
    """What the lists say, in the order of the log."""
    heads = [
        line
        for (line,) in facts.query(
            "SELECT e.line FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind = 'horovod-stall' ORDER BY e.line"
        )
    ]
    for kind, fields, ref, line, last in facts.query(
        "SELECT m.kind, m.fields, m.ref, e.line, m.last_line FROM message m JOIN evidence e ON e.id = m.ref"
        f" WHERE m.kind IN {_KINDS} ORDER BY e.line"
    ):
        given = json.loads(fields)
        listed = (given["ready"] if kind == "horovod-stall-ready" else given["missing"]).replace(" ", "")
        more = [name.strip() for name in (given.get("more") or "").split(",")]
        names = [name.removesuffix("...").strip() for name in (given["tensor"], *more)]
        yield _Line(
            kind,
            tuple(dict.fromkeys(name for name in names if name)),
            tuple(int(rank) for rank in listed.split(",") if rank),
            int(given.get("mark") == "!"),
            bisect_right(heads, line),
            last,
            ref,
        )


def _rows(lines: list[_Line], world: int) -> Iterator[HorovodStall]:
    everyone = range(world)
    missing: dict[tuple[str, int], tuple[set[int], _Line]] = {}  # tensor and report -> who is missing
    for line in lines:
        said, other = ("ready", "missing") if line.kind == "horovod-stall-ready" else ("missing", "ready")
        for tensor in line.tensors:
            for rank in line.ranks:
                yield HorovodStall(tensor, rank, said, 1, line.doomed, line.report, line.last_line, line.ref)
            if said == "missing":
                missing.setdefault((tensor, line.report), (set(), line))[0].update(line.ranks)
                continue
            for rank in everyone:
                if rank not in line.ranks:
                    yield HorovodStall(tensor, rank, other, 0, 0, line.report, line.last_line, line.ref)
    for (tensor, report), (absent, line) in missing.items():
        for rank in everyone:
            if rank not in absent:
                yield HorovodStall(tensor, rank, "ready", 0, 0, report, line.last_line, line.ref)
