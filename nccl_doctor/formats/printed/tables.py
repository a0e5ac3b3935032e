"""Tables whose columns have titles: with commas, or with a column that names the units."""

from collections.abc import Sequence
from itertools import pairwise

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import kind_of
from nccl_doctor.formats.training.metrics import number
from nccl_doctor.inputs.text_lines import cells_of

_LINES = 200  # within which a table of units begins
_ROWS = 3  # that a table with commas has at least, in what is looked at
_COLUMNS = 40
_SURE = 2  # of the columns of a table with fewer rows, that are rates and times
_TITLE = compiled(r"\s{0,9}[A-Za-z][\w ./()%\[\]-]{0,60}")
_LONGEST = 4_000  # bytes of a row between bars
_VALUES = ("median", "mean", "avg", "average", "value", "result")  # the best first
_METRICS = ("metric", "metric_name", "measure", "measurement")  # columns of tables with a number a row
_UNIT = compiled(rb"(\d[\d,]{0,18}(?:\.\d{1,20})?) ?(%|[KMG]iB|W|MHz|C)")
_COUNTS = compiled(
    r"(?i)(?:^|(?<!per)[_ .#])(?:id|index|idx|step|iter|iteration|epoch|rank|pid|port|seed|time_?stamp|date)s?\Z|\A\W*\Z"
    r"|(?:^|(?:wall|clock|start|end|stop|relative|unix|date|submit|local|utc|event)[_ .]?)times?\Z"
)


class Table:
    """A table while it is read."""

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        """Take a line; whether it is a row."""
        raise NotImplementedError


class _Units(Table):
    """A title and rows of as many cells, one of them the unit."""

    def __init__(self, titles: Sequence[str], bars: bool) -> None:
        self._set(titles)
        self._bars = bars

    def _set(self, titles: Sequence[str]) -> None:
        self._width = len(titles)
        self._unit = next(index for index, title in enumerate(titles) if title in ("unit", "units"))
        self._value = min(
            (index for index, title in enumerate(titles) if title in _VALUES),
            key=lambda index: _VALUES.index(titles[index]),
        )
        self._label = 1 if self._unit != 1 and self._value != 1 and titles[1] not in ("min", "max") else None

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        cells = _cells(line, bars=self._bars)
        if _is_title(titles := [cell.lower() for cell in cells]):
            self._set(titles)
            return False
        value = number(cells[self._value]) if len(cells) == self._width else None
        if value is None or not cells[0] or number(cells[0]) is not None:
            return False
        label = cells[self._label] if self._label is not None else None
        return series.add(cells[0][:60], cells[self._unit][:20], value, Place(at, line, label))


class _Commas(Table):
    """Rows of cells between commas. The column that names them is the first whose cells are no numbers."""

    def __init__(self, titles: Sequence[str], columns: Sequence[int], label: int | None) -> None:
        self._names = {index: titles[index].strip()[:60] for index in columns}
        self._width, self._label = len(titles), label

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        cells = _between_commas(line)
        if len(cells) != self._width:
            return False
        label = cells[self._label].strip()[:80] if self._label is not None else None
        took = False
        for index, name in self._names.items():
            value = number(cells[index].strip())
            if value is not None:
                took |= series.add(name, "", value, Place(at, line, label))
        return took


class _Long(Table):
    """Rows of one number each, which a cell names: `nodes,metric,value`. The first cell that is not the same in all rows is its label."""

    def __init__(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._width = len(titles)
        self._name = next((titles.index(title) for title in _METRICS if title in titles), None)
        self._value = next((titles.index(title) for title in ("value", "metric_value") if title in titles), None)
        self._unit = next((titles.index(title) for title in ("unit", "units", "metric_unit") if title in titles), None)
        others = set(range(len(titles))) - {self._name, self._value, self._unit}
        self._label = next(
            (
                at
                for at in sorted(others)
                if titles[at] and not _COUNTS.search(titles[at]) and len({row[at] for row in rows}) > 1
            ),
            None,
        )
        self._title = titles[self._label] if self._label is not None else ""

    @property
    def is_one(self) -> bool:
        """Whether the titles have a name and a value."""
        return self._name is not None and self._value is not None

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        cells = [cell.strip() for cell in _between_commas(line)]
        if len(cells) != self._width or self._name is None or self._value is None:
            return False
        value = number(cells[self._value])
        if value is None or not cells[self._name]:
            return False
        label = f"{self._title} {cells[self._label]}"[:80] if self._label is not None else None
        unit = cells[self._unit][:20] if self._unit is not None else ""
        return series.add(cells[self._name][:60], unit, value, Place(at, line, label))


class _Measured(Table):
    """Rows between bars, of which pairs of columns tell a value and its unit: `flops_value|flops_unit`, as ReFrame logs them."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._width = len(titles)
        self._pairs = {
            title.removesuffix("_value")[:60]: (at, titles.index(unit))
            for at, title in enumerate(titles)
            if title.endswith("_value") and (unit := f"{title.removesuffix('_value')}_unit") in titles
        }
        self._label = next(
            (
                at
                for name in ("display_name", "name", "info", "test")
                for at, title in enumerate(titles)
                if title == name
            ),
            None,
        )

    @property
    def is_one(self) -> bool:
        """Whether the titles have such pairs."""
        return bool(self._pairs)

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        cells = [cell.strip() for cell in line[:_LONGEST].decode("utf-8", "replace").split("|")]
        if len(cells) != self._width:
            return False
        label = cells[self._label][:80] if self._label is not None else None
        took = False
        for name, (value, unit) in self._pairs.items():
            known = number(cells[value])
            if known is not None:
                took |= series.add(name, cells[unit][:20], known, Place(at, line, label))
        return took


class _Readings(Table):
    """Rows of numbers with units and without titles, as `nvidia-smi --format=csv,noheader` prints them."""

    def take(self, line: bytes, at: int, series: NumberSeries) -> bool:
        took = False
        for index, cell in enumerate(line.split(b",")[:_COLUMNS], 1):
            found = _UNIT.fullmatch(cell.strip())
            if found is not None:
                value = float(found[1].replace(b",", b""))
                took |= series.add(f"column {index}", found[2].decode(), value, Place(at, line))
        return took


def recognise(head: bytes, *, whole: bool = False) -> Table | None:
    """The table with which a file begins, of which `head` is all if `whole`; None for other text."""
    lines = head.split(b"\n")
    measured = _Measured([title.strip() for title in lines[0][:_LONGEST].decode("utf-8", "replace").split("|")])
    if measured.is_one:
        return measured
    for line in lines[:_LINES]:
        for bars in (True, False):
            titles = [cell.lower() for cell in _cells(line, bars=bars)]
            if _is_title(titles):
                return _Units(titles, bars)
    rows = [_between_commas(line) for line in lines[: _LINES if len(lines) > _LINES or whole else -1]]
    rows = [row for row in rows if row != [""]]
    if not 2 <= len(rows[0] if rows else ()) <= _COLUMNS or len({len(row) for row in rows}) > 1:
        return None
    if len(rows) <= _ROWS and not (whole and len(rows) > 1 and _measured(rows[0])):
        return None
    if all(_readings(row) for row in rows):
        return _Readings()
    titles, *cells = rows
    if all(number(cell.strip()) is not None for row in rows for cell in row):
        return _counted(rows)
    if any(number(title) is not None for title in titles):
        return None
    long = _Long([title.strip().lower() for title in titles], cells)
    if long.is_one:
        return long
    numeric = [all(number(row[index].strip() or "0") is not None for row in cells) for index in range(len(titles))]
    columns = [
        index for index, is_number in enumerate(numeric) if is_number and not _COUNTS.search(titles[index].strip())
    ]
    label = next((index for index, is_number in enumerate(numeric) if not is_number), None)
    return _Commas(titles, columns, label) if columns else None


def _counted(rows: Sequence[Sequence[str]]) -> Table | None:
    """A table without titles whose first column counts: steps or sizes, and what was measured for each."""
    counts = [number(row[0].strip()) for row in rows]
    if len(rows) < _ROWS or not all(a is not None and b is not None and a < b for a, b in pairwise(counts)):
        return None
    titles = [f"column {at}" for at in range(1, len(rows[0]) + 1)]
    return _Commas(titles, range(1, len(titles)), 0)


def _measured(titles: Sequence[str]) -> bool:
    """Whether titles name rates or times, so that a row below them needs no others to be one of a table."""
    return sum(_TITLE.fullmatch(title) is not None and kind_of(title, "") is not None for title in titles) >= _SURE


def _between_commas(line: bytes) -> list[str]:
    """The cells of a row between commas or tabs; one in quotes may hold commas."""
    text = line.decode("utf-8", "replace").rstrip("\r")
    if "," not in text and "\t" in text:
        return text.rstrip("\t").split("\t")
    if '"' not in text or len(text) > _LONGEST:
        return text.split(",")
    return cells_of(text) or text.split(",")


def _readings(row: Sequence[str]) -> bool:
    found = [_UNIT.fullmatch(cell.strip().encode()) is not None for cell in row]
    return sum(found) >= 2 and all(
        has or number(cell.strip()) is not None for has, cell in zip(found, row, strict=True)
    )


def _cells(line: bytes, *, bars: bool) -> list[str]:
    text = line[:1000].decode("utf-8", "replace")
    return [cell.strip() for cell in text.strip().strip("|").split("|")] if bars else text.split()


def _is_title(titles: Sequence[str]) -> bool:
    return (
        4 <= len(titles) <= _COLUMNS and bool({"unit", "units"} & set(titles)) and bool(set(_VALUES) & set(titles[1:]))
    )
