"""What pandas prints of `describe()`: of a Series with its name below, of a DataFrame with titles above.

         latency_ms  throughput_tok_s      count    128.000000
count     64.000000         64.000000      mean       0.251342
mean      81.223400        512.330000      …
max       99.300000        530.000000      Name: step_time_s, dtype: float64
"""

import re

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import rate_in, unit_in

_COLUMNS = 40
_LONGEST = 1_000  # bytes of a line
_COUNT = compiled(rb"count(?: {2,60}\d{1,15}(?:\.0{1,9})?){1,40}\s{0,9}\Z")
_ROW = compiled(rb"(mean|std|min|\d\d%|max)(?: {2,60}-?\d[\d.e+-]{0,30}){1,40}\s{0,9}\Z")
_TITLES = compiled(rb" {2,60}[A-Za-z_]\w{0,60}(?: {1,60}[A-Za-z_]\w{0,60}){0,39}\s{0,9}\Z")
_NAME = re.compile(r"Name: (.{1,60}), dtype: \w{1,20}")
_TOLD = ("mean", "50%", "max")


class Described:
    """The tables of one file, one at a time."""

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._above: list[str] = []  # words of the line before
        self._titles: list[str] | None = None  # of an open table; empty of a Series
        self._rows: list[tuple[str, list[float], Place]] = []

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a row, or the name of a Series."""
        above, self._above = self._above, []
        if len(line) > _LONGEST:
            return False
        if _COUNT.match(line) is not None:
            count = len(line.split()) - 1
            self._titles, self._rows = above if len(above) == count else [], []
            return count == 1 or bool(self._titles)
        if self._titles is None:
            self._above = line.decode("utf-8", "replace").split()[: _COLUMNS + 1]
            return False
        if (row := _ROW.match(line)) is not None:
            return self._row(row[1].decode(), line, number)
        name = _NAME.match(line.decode("utf-8", "replace"))
        titles, self._titles = self._titles, None
        if name is not None and not titles:
            return sum(self._add(name[1], of, values[0], place) for of, values, place in self._rows) > 0
        return False

    def _row(self, of: str, line: bytes, number: int) -> bool:
        try:
            values = [float(cell) for cell in line.split()[1:]]
        except ValueError:
            return False
        place = Place(number, line)
        if of not in _TOLD:
            return True
        if not self._titles:
            self._rows.append((of, values, place))
        elif len(values) == len(self._titles):
            for title, value in zip(self._titles, values, strict=True):
                self._add(title, of, value, place)
        return True

    def _add(self, name: str, of: str, value: float, place: Place) -> bool:
        unit = rate_in(name) or unit_in(name)
        return self._series.add(name[:60] if of == "mean" else f"{name[:50]} {of}", unit, value, place)


def may_begin(line: bytes) -> bool:
    """Whether a line is the first row of such a table, or may hold the titles of one."""
    return (line[:6] == b"count " and _COUNT.match(line) is not None) or (
        line[:2] == b"  " and _TITLES.match(line) is not None
    )
