"""Rows as CSV that a spreadsheet shows and does not evaluate."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20", "\t", "\r")  # East Asian spreadsheets take the wide ones too
_NUMBER = re.compile(r"[+-]?[0-9.]{1,40}")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a head and all rows; None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_unevaluated, columns))
    writer.writerows([map(_unevaluated, row) for row in rows])
    return out.getvalue()


def _unevaluated(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula, behind an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell
