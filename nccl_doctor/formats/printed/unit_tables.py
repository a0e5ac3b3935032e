"""Tables whose titles name the units of their columns: a sweep over sizes, as micro-benchmarks print it.

size        time(us)     bw(MB/s)
1           2.36         0.42
1024        2.76         370.6
"""

import re
from math import isfinite

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import is_rate, is_time

_LEAST = 3  # rows from which on it is a table
_COLUMNS = 40
_LONGEST = 400  # bytes of a line
_ROW = compiled(rb"[\s|]{0,40}[-+]?[\d.]")
_CELL = re.compile(r"[^\s|]\S{0,60}(?: [^\s|]\S{0,60}){0,5}")
_TITLE = re.compile(r"#?\s{0,9}([A-Za-z][\w .%/#-]{0,40})[(\[]([A-Za-z][A-Za-z/]{0,14})[)\]]")
_NUMBER = re.compile(r"[-+]?\d[\d,]{0,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf")
_LABEL = re.compile(r"\d[\d.,]{0,20} ?[KMG]?i?B?")


class UnitTables:
    """The tables of one file, one at a time."""

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._columns: dict[int, tuple[str, str]] = {}  # of rates and times: name, unit
        self._width = 0
        self._is_table = False
        self._rows: list[tuple[list[str], Place]] = []  # until they are enough

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a title or a row."""
        if len(line) > _LONGEST:
            return False
        if self._columns and _ROW.match(line) is not None:
            return self._row(line, number)
        titles = titles_of(line)
        if titles is None:
            return False
        self._columns, self._width = titles
        self._rows, self._is_table = [], False
        return True

    def _row(self, line: bytes, number: int) -> bool:
        cells = line.decode("utf-8", "replace").replace("|", " ").split()
        if (
            len(cells) != self._width
            or _LABEL.fullmatch(cells[0]) is None
            or any(_NUMBER.fullmatch(cells[at]) is None for at in self._columns)
        ):
            return False
        self._rows.append((cells, Place(number, line, None if 0 in self._columns else cells[0])))
        if self._is_table or len(self._rows) >= _LEAST:
            self._is_table = True
            for row, place in self._rows:
                for at, (name, unit) in self._columns.items():
                    value = float(row[at].replace(",", ""))
                    if isfinite(value):
                        self._series.add(name, unit, value, place)
            self._rows = []
        return True


def titles_of(line: bytes) -> tuple[dict[int, tuple[str, str]], int] | None:
    """(place of a column -> its name and unit, how many columns) of titles of which one names the unit of a rate; None for another line."""
    if line[:1].isdigit() or not (b"(" in line or b"[" in line):
        return None
    text = line.decode("utf-8", "replace").strip().strip("|")
    cells = re.split(r"\||\t+|  +", text) if "|" in text or "\t" in text or "  " in text else text.split()
    cells = [cell.strip() for cell in cells if cell.strip() not in ("", "#")]
    found = {at: title for at, cell in enumerate(cells) if (title := _TITLE.fullmatch(cell)) is not None}
    told = {at: (title[1].strip(), title[2]) for at, title in found.items() if is_rate(title[2]) or is_time(title[2])}
    if not 2 <= len(cells) <= _COLUMNS or not any(is_rate(unit) for _, unit in told.values()):
        return None
    return told, len(cells)
