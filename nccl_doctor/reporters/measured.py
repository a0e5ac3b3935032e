"""The measures of hosts, pairs of hosts, GPUs and ranks as tables: a row for each, a column for each measure."""

from typing import NamedTuple

from nccl_doctor.diagnosis.report import MeasureRow, Report
from nccl_doctor.reporters.words import clean

SCOPES = (
    "host",
    "pair",
    "gpu",
    "rank",
    "step",
    "batch-job",
    "link",
    "collective",
)  # in this order; measures of the job and of a run are in its lines
COMPARED = "busbw_of_usual"  # by which rows are sorted, the lowest first
SHOWN = 8  # rows of a table in a report that is not verbose


class MeasureTable(NamedTuple):
    """The measures of one scope."""

    scope: str
    columns: list[str]  # the scope, then each measure with its unit
    rows: list[list[str]]


def measure_tables(report: Report) -> list[MeasureTable]:
    """Returns a table for each scope that was measured."""
    return [_table(scope, rows) for scope in SCOPES if (rows := [m for m in report.measures if m.scope == scope])]


def aligned(table: MeasureTable, most: int | None = None) -> list[str]:
    """Returns the head and the rows of a table in columns; with more than `most` rows, the last line counts the others."""
    shown = table.rows if most is None else table.rows[:most]
    widths = [max(len(row[at]) for row in [table.columns, *shown]) for at in range(len(table.columns))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [table.columns, *shown]
    ]
    left = len(table.rows) - len(shown)
    return [*lines, f"{left} more: -v"] if left else lines


def _table(scope: str, measures: list[MeasureRow]) -> MeasureTable:
    units = {measure.name: measure.unit for measure in measures}
    values = {(measure.of, measure.name): measure.value for measure in measures}
    named = list(dict.fromkeys(measure.of for measure in measures))
    if COMPARED in units:
        named.sort(key=lambda of: values.get((of, COMPARED), 0.0))
    rows = [[clean(of), *(_cell(values.get((of, name))) for name in units)] for of in named]
    return MeasureTable(
        scope,
        [scope, *(name if name.split("_")[-1] == unit else f"{name} ({unit})" for name, unit in units.items())],
        rows,
    )


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
