"""Rows of a query as a plain table, CSV or JSON."""

import json
import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from nccl_doctor.cli import terminal_size
from nccl_doctor.reporters.csv_text import csv_text
from nccl_doctor.reporters.words import clean

FORMATS = ("table", "csv", "json")
_MIN_WRAPPED = 24  # columns of the terminal below which the last column is cut and not wrapped
_MIN_WIDTH = 8  # columns of the terminal below which a column is left out


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str = "table", width: int | None = None) -> str:
    """Returns all rows in one of FORMATS; None is an empty cell in a table and in CSV, null in JSON.

    A table is as wide as $COLUMNS, else the terminal, else 80; its last line names the columns that were cut or left out.
    """
    columns = [clean(name) for name in columns]
    safe = [[_shown(cell) for cell in row] for row in rows]
    if form == "json":
        records = [dict(zip(columns, row, strict=True)) for row in safe]
        return json.dumps(records, indent=1, ensure_ascii=False, default=str) + "\n"
    if form == "csv":
        return csv_text(columns, safe)
    cells = [["" if cell is None else str(cell) for cell in row] for row in safe]
    return _render_table(columns, cells, safe, width or terminal_size.columns())


def _shown(cell: Any) -> Any:
    """A cell that every format can hold; infinite numbers are unknown."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return clean(cell) if isinstance(cell, str) else cell


def _render_table(columns: Sequence[str], cells: list[list[str]], values: list[list[Any]], width: int) -> str:
    needed = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [
        bool(values) and all(row[i] is None or isinstance(row[i], int | float) for row in values)
        for i in range(len(columns))
    ]
    widths = _fit_widths(needed, width, wraps=bool(columns) and not numeric[-1])
    wraps = len(widths) == len(columns) and _MIN_WRAPPED <= widths[-1] < needed[-1]
    rows = [columns, ["-" * column_width for column_width in widths], *cells]
    lines = [line for row in rows for line in _row_lines(row, widths, numeric, wraps)]
    return "\n".join(lines + _omissions(columns, needed, widths, wraps, width)) + "\n"


def _row_lines(row: Sequence[str], widths: list[int], numeric: list[bool], wraps: bool) -> list[str]:
    """The lines of one row: one, or more where the last column wraps."""
    last = wrap(row[-1], widths[-1]) if wraps else []
    cells = [*row[:-1], last[0] if last else ""] if wraps else row[: len(widths)]
    padded = [
        _cut(cell, column_width).rjust(column_width) if right else _cut(cell, column_width).ljust(column_width)
        for cell, column_width, right in zip(cells, widths, numeric, strict=False)
    ]
    indent = " " * (sum(widths[:-1]) + 2 * (len(widths) - 1))
    return ["  ".join(padded).rstrip(), *(indent + line for line in last[1:])]


def _omissions(columns: Sequence[str], needed: list[int], widths: list[int], wraps: bool, width: int) -> list[str]:
    """The lines that name columns that were cut or left out; none when all are shown in full."""
    shown = len(widths)
    cut = [columns[i] for i in range(shown) if widths[i] < needed[i] and not (wraps and i == shown - 1)]
    parts = [f"{what}: {', '.join(names)}" for what, names in (("cut", cut), ("left out", columns[shown:])) if names]
    return wrap(f"({'; '.join(parts)}; --format csv shows all)", width) if parts else []


def _fit_widths(needed: list[int], width: int, wraps: bool) -> list[int]:
    """Widths that fit: wrap the last column, else cut the widest, else leave out columns from the right."""
    available = width - 2 * (len(needed) - 1)
    if sum(needed) <= available:
        return needed
    if wraps and available - sum(needed[:-1]) >= _MIN_WRAPPED:
        return [*needed[:-1], available - sum(needed[:-1])]
    widths = [min(column_width, width) for column_width in needed]
    while sum(widths) > available and max(widths) > _MIN_WIDTH:
        widths[widths.index(max(widths))] -= 1
    if sum(widths) > available and len(needed) > 1:
        return _fit_widths(needed[:-1], width, wraps=False)
    return widths


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
