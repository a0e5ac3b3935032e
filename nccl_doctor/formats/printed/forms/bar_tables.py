"""Tables between bars whose titles stand above a ruled line: Markdown, and what rich, tabulate and PrettyTable draw.

| payload |   busbw    |      ┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┓
| ------: | ---------: |      ┃ Metric                 ┃ Value ┃
|  64KiB  |   1.61GBps |      ┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━┩
                             │ Req throughput (req/s) │ 10.44 │

A number counts where its unit, its title or the first cell of its row says that it is a rate or a time.
"""

import re
from math import isfinite

from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import is_rate, is_time, kind_of, rate_in, unit_in

_COLUMNS = 40
_LONGEST = 1_000  # bytes of a line
_BARS = re.compile("[|│┃║]")
_RULE = re.compile("[-=:+|─━═│┃║├┤┼┝┥┿╞╡╪┡┩╇╋┠┨╂╟╢╫╬╠╣┏┓┗┛ \t]{3,1000}")
_TITLE = re.compile(r"[*`]{0,2}[^\W\d_%][^|]{0,79}|\d{1,2}(?:\.\d{1,2})?%|[pP]\d\d?|#")
_CELL = re.compile(
    r"[*`~]{0,2}(\d[\d,]{0,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?) ?([A-Za-zµ][A-Za-z/]{0,14})?"
    r"(?: ?(?:±|\+/-) ?\d[\d.]{0,20})?(?: ?\([^()]{0,40}\))?[*`]{0,2}"
)
_SHARE = re.compile(r"(\d{1,2}(?:\.\d{1,2})?)%|[pP](\d\d?)")  # a title: of so many values one is below
_SHARES = (50.0, 99.0)  # that are told
_GBPS = {"GBps": "GB/s", "MBps": "MB/s", "KBps": "KB/s"}


class BarTables:
    """The tables of one file, one at a time."""

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._titles: list[str] = []
        self._is_ruled = False

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a row that told a number."""
        if len(line) > _LONGEST:
            self._titles = []
            return False
        text = line.decode("utf-8", "replace").strip()
        if self._titles and _RULE.fullmatch(text) is not None:
            self._is_ruled = True
            return False
        cells = _cells(text)
        if self._titles and self._is_ruled and len(cells) == len(self._titles):
            return self._row(cells, line, number)
        self._titles, self._is_ruled = _titles(cells), False
        return False

    def _row(self, cells: list[str], line: bytes, number: int) -> bool:
        took = False
        for title, cell in zip(self._titles, cells, strict=True):
            found = _CELL.fullmatch(cell)
            value = float(found[1].replace(",", "")) if found is not None else None
            if found is None or value is None or not isfinite(value):
                continue
            unit = _GBPS.get(found[2] or "", found[2] or "")
            unit = unit if is_rate(unit) or is_time(unit) else ""
            if unit or found[2] is None:
                took |= self._add(title, cells[0], unit, value, Place(number, line))
        return took

    def _add(self, title: str, first: str, unit: str, value: float, place: Place) -> bool:
        first = first.strip("*` ")
        share = _SHARE.fullmatch(title)
        if share is not None:
            if float(share[1] or share[2]) not in _SHARES or kind_of(first, unit) is None:
                return False
            return self._series.add(f"{first[:50]} {title}", unit or rate_in(first), value, place)
        plain = title.strip("*` ")
        label = first if first and first != plain else None
        own = unit or _told_unit(plain)
        if kind_of(plain, own) is not None:
            return self._series.add(plain[:60], own, value, place._replace(label=label))
        own = unit or _told_unit(first)
        if _CELL.fullmatch(first) is None and kind_of(first, own) is not None:
            of = plain if len(self._titles) > 2 else None
            return self._series.add(first[:60], own, value, place._replace(label=of))
        return False


def _told_unit(title: str) -> str:
    """The unit in brackets at the end of a title: `CUDA (s)`, `BW [GB/s]`."""
    return rate_in(title) or (unit_in(title) if title.endswith((")", "]")) else "")


def titles_of(line: bytes) -> list[str] | None:
    """The titles of a table; None for another line."""
    if len(line) > _LONGEST or not (b"|" in line or b"\xe2\x94" in line or b"\xe2\x95" in line):
        return None
    return _titles(_cells(line.decode("utf-8", "replace").strip())) or None


def _cells(text: str) -> list[str]:
    cells = [cell.strip() for cell in _BARS.split(text)]
    if len(cells) > 2 and not cells[0] and not cells[-1]:
        cells = cells[1:-1]
    return cells if 2 <= len(cells) <= _COLUMNS else []


def _titles(cells: list[str]) -> list[str]:
    """The cells where each may be a title, of which the first may be empty."""
    return cells if cells and all(map(_TITLE.fullmatch, cells[1:])) and not cells[0][:1].isdigit() else []
