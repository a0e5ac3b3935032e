"""Rows of a query as a plain table, CSV or JSON."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from nccl_doctor.reporters.words import clean

FORMATS = ("table", "csv", "json")


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str = "table") -> str:
    """All rows in one of FORMATS; None is empty in the first two and null in JSON."""
    safe = [[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if form == "json":
        records = [dict(zip(columns, row, strict=True)) for row in safe]
        return json.dumps(records, indent=1, ensure_ascii=False, default=str) + "\n"
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(safe)
        return out.getvalue()
    return _table(columns, [["" if cell is None else str(cell) for cell in row] for row in safe], safe)


def _table(columns: Sequence[str], cells: list[list[str]], values: list[list[Any]]) -> str:
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [
        bool(values) and all(row[i] is None or isinstance(row[i], int | float) for row in values)
        for i in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)]) + "\n"
