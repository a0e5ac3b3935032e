"""Tables with commas behind other text, of which a title is a rate: what a benchmark prints while it runs.

ISO Date,Label,Phase,RuntimeMS,MiB/s,IOPS,Lat IO us,
2026-11-17T11:58:08.821,,READ,1001,47127,94254,10549,
"""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import is_rate, kind_of, unit_in
from nccl_doctor.formats.training.metrics import number

_FEWEST, _COLUMNS = 4, 40
_LONGEST = 1_000  # bytes of a line
_TITLE = compiled(r"[A-Za-z%#][\w ./()%\[\]#-]{0,60}")
_PHASES = ("phase", "operation", "op", "test", "name", "device", "access", "rank")  # titles of what a row is about


class CommaTables:
    """The tables of one file, one at a time."""

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._columns: dict[int, tuple[str, str]] = {}  # of rates and times: name, unit
        self._width = 0
        self._label: int | None = None

    def take(self, line: bytes, at: int) -> bool:
        """Take a line; whether it is a title or a row."""
        if line.count(b",") < _FEWEST - 1 or len(line) > _LONGEST:
            return False
        if (titles := titles_of(line)) is not None:
            self._columns, self._width, self._label = titles
            return True
        cells = [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]
        if not self._columns or len(cells) != self._width:
            return False
        label = cells[self._label][:80] if self._label is not None else None
        took = False
        for column, (name, unit) in self._columns.items():
            value = number(cells[column])
            if value is not None:
                took |= self._series.add(name, unit, value, Place(at, line, label))
        return took


def titles_of(line: bytes) -> tuple[dict[int, tuple[str, str]], int, int | None] | None:
    """(place of a column -> name and unit, how many columns, the one that says what a row is about) of titles; None for another line."""
    if line.count(b",") < _FEWEST - 1 or len(line) > _LONGEST:
        return None
    cells = [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]
    if len(cells) > _COLUMNS or not all(_TITLE.fullmatch(cell) for cell in cells if cell):
        return None
    told = {
        at: (cell, cell if is_rate(cell) else unit_in(cell))
        for at, cell in enumerate(cells)
        if is_rate(cell) or unit_in(cell) or kind_of(cell, "") is not None
    }
    if not any(is_rate(unit) for _, unit in told.values()):
        return None
    return told, len(cells), next((at for at, cell in enumerate(cells) if cell.lower() in _PHASES), None)
