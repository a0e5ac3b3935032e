"""Facts on their way from one node to another, as lines of JSON."""

import json
from collections.abc import Iterable
from typing import Any

from nccl_doctor.facts.schema import by_name, column_types, table_name
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Evidence


def dump(facts: Facts) -> str:
    """All facts as JSON lines `[table, values]`, evidence first, for another node to take in."""
    tables: list[Any] = [Evidence, *(table for table in by_name().values() if table is not Evidence)]
    rows = [[table_name(table), list(row)] for table in tables for row in facts.rows(table)]
    return "".join(json.dumps(row) + "\n" for row in [*rows, ["covered", sorted(facts.covered())]])


def take(facts: Facts, lines: Iterable[str], node: str | None = None) -> bool:
    """Add what `dump` wrote; returns whether it was whole. Other lines are ignored.

    `node` is prepended to file names, which are the same on all nodes.
    """
    numbers: dict[int, int] = {}
    rows: list[Any] = []
    for line in lines:
        try:
            name, values = json.loads(line)
        except (ValueError, TypeError):
            continue
        if name == "covered":
            facts.add(rows)
            facts.mark_covered(*(one for one in values if one in by_name()))
            return True
        table = by_name().get(name) if isinstance(name, str) and isinstance(values, list) else None
        if table is None or len(values) != len(column_types(table)):
            continue
        if table is Evidence:
            numbers[values[0]] = facts.evidence(
                f"{node}:{values[1]}" if node else str(values[1]), int(values[2]), str(values[3])
            )
            continue
        row = dict(zip(column_types(table), values, strict=True))
        if "ref" in row:
            row["ref"] = numbers.get(row["ref"])
        rows.append(table(**row))
    return False
