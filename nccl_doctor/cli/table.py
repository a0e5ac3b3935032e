"""Rows of a query as a plain table, CSV or JSON."""

import csv
import io
import json
import shutil
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from nccl_doctor.reporters.words import clean

FORMATS = ("table", "csv", "json")
_WRAPPED = 24  # cells that a last column needs to be wrapped and not cut
_NARROW = 8  # cells below which a column is left out


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str = "table", width: int | None = None) -> str:
    """All rows in one of FORMATS; None is empty in the first two and null in JSON.

    A table has the width of the terminal, else of $COLUMNS, else 80; its last line names what was cut.
    """
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
    cells = [["" if cell is None else str(cell) for cell in row] for row in safe]
    return _table(columns, cells, safe, width or shutil.get_terminal_size((80, 24)).columns)


def _table(columns: Sequence[str], cells: list[list[str]], values: list[list[Any]], width: int) -> str:
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [
        bool(values) and all(row[i] is None or isinstance(row[i], int | float) for row in values)
        for i in range(len(columns))
    ]
    fitted = _fitted(widths, width, wrapped=bool(columns) and not numeric[-1])
    kept = len(fitted)
    wrapped = kept == len(columns) and _WRAPPED <= fitted[-1] < widths[-1]

    def lines(row: Sequence[str]) -> list[str]:
        last = wrap(row[-1], fitted[-1]) if wrapped else []
        first = [*row[:-1], last[0] if last else ""] if wrapped else row[:kept]
        shown = [
            _cut(cell, has).rjust(has) if right else _cut(cell, has).ljust(has)
            for cell, has, right in zip(first, fitted, numeric, strict=False)
        ]
        indent = " " * (sum(fitted[:-1]) + 2 * (kept - 1))
        return ["  ".join(shown).rstrip(), *(indent + more for more in last[1:])]

    text = "\n".join(line for row in (columns, ["-" * has for has in fitted], *cells) for line in lines(row)) + "\n"
    cut = [
        name for at, name in enumerate(columns[:kept]) if fitted[at] < widths[at] and not (wrapped and at == kept - 1)
    ]
    told = [f"{what}: {', '.join(names)}" for what, names in (("cut", cut), ("left out", columns[kept:])) if names]
    if told:
        text += "\n".join(wrap(f"({'; '.join(told)}; --format csv shows all)", width)) + "\n"
    return text


def _fitted(widths: list[int], width: int, wrapped: bool) -> list[int]:
    """Widths that fit: the last column wraps, else the widest are cut, else columns are left out from the right."""
    room = width - 2 * (len(widths) - 1)
    if sum(widths) <= room:
        return widths
    if wrapped and room - sum(widths[:-1]) >= _WRAPPED:
        return [*widths[:-1], room - sum(widths[:-1])]
    fitted = [min(one, width) for one in widths]
    while sum(fitted) > room and max(fitted) > _NARROW:
        fitted[fitted.index(max(fitted))] -= 1
    if sum(fitted) > room and len(widths) > 1:
        return _fitted(widths[:-1], width, wrapped=False)
    return fitted


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
