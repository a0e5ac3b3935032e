"""Tables with a row a step that a loop prints below titles: columns apart by blanks, tabs or bars.

step     loss  time (ms)   tok/s
   1   2.9800      319.2   51328

| step | rank | step_time |
|---:|---:|---:|
| 1 | 0 | 0.512 s |
"""

import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.trackers.metric_tables import MetricTable
from nccl_doctor.formats.training.metrics import meaning_of
from nccl_doctor.formats.training.run_settings import Settings

LEAST = 4  # rows from which on it is a table of steps
_LOOK = 256  # rows by which the meaning of columns is judged
_COLUMNS = 40
_LONGEST = 600  # bytes of a line
_TABLES = 8  # of one file
_STEP_WORD = compiled(rb"(?i)(?<![a-z])(?:step|iter|iteration)s?(?![a-z])")
_STEP = re.compile(r"(?i)(?:global[_ ]?|train[_ ]?)?(?:step|iter|iteration)s?")
_ERROR = re.compile(r"(?i)loss|(?<![a-z])(?:rmse|mae)(?![a-z])")
_WORKER = re.compile(r"(?i)(?:global_)?rank|host(?:name)?|node")
_CELL = re.compile(r"[^\s|]\S{0,60}(?: \([^()\s]{1,20}\))?")
_NAME = re.compile(r"#?[A-Za-z_%][\w./%()# -]{0,60}")
_ROW = compiled(rb"[\s|]{0,40}[-+]?[\d.]|[\s|]{0,20}[\w.-]{1,80}[\s|]{1,40}[-+]?[\d.]")
_NUMBER = re.compile(
    r"([-+]?\d[\d,]{0,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf) ?(ms|us|s|secs?|k|K|M|%|[A-Za-z][A-Za-z/]{0,12})?"
)
_TIMES = ("ms", "us", "s", "sec", "secs")
_THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6}


class StepTables:
    """The tables of one file."""

    def __init__(self) -> None:
        self._done: list[_Printed] = []
        self._open: _Printed | None = None

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a title or a row."""
        if len(line) > _LONGEST:
            return False
        if self._open is not None and _ROW.match(line) is not None and self._open.take(line, number):
            return True
        titles = titles_of(line) if len(self._done) < _TABLES else None
        if titles is None:
            return False
        if self._open is None or titles != self._open.titles:  # some loops print them again and again
            self._open = _Printed(titles, has_bars=b"|" in line)
            self._done.append(self._open)
        return True

    @property
    def found(self) -> bool:
        """Whether there is a table of steps."""
        return any(table.count >= LEAST for table in self._done)

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """The steps of all tables."""
        run = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
        for table in self._done:
            if table.count >= LEAST:
                for _, series in table.whole().runs():
                    yield from series.rows(facts, file, run, Settings())
                    run += series.runs


class _Printed:
    """One table: its cells go into a table of metrics."""

    def __init__(self, titles: list[str], *, has_bars: bool) -> None:
        self.titles = titles
        self.count = 0
        self._has_bars = has_bars
        self._worker = next((at for at, title in enumerate(titles) if _WORKER.fullmatch(title)), None)
        self._waiting: list[tuple[str, bytes, int]] = []
        self._units: list[str] = []
        self._table: MetricTable | None = None

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is a row."""
        text = line.decode("utf-8", "replace")
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")] if self._has_bars else text.split()
        if len(cells) != len(self.titles):
            return False
        found = [None if at == self._worker else _NUMBER.fullmatch(cell) for at, cell in enumerate(cells)]
        if any(
            one is None and at != self._worker and cell not in ("-", "n/a", "N/A", "")
            for at, (one, cell) in enumerate(zip(found, cells, strict=True))
        ):
            return False
        if not self._units:
            self._units = ["" if one is None or one[2] not in _TIMES else one[2] for one in found]
        values = [
            cell if at == self._worker else "" if one is None else _plain(one)
            for at, (one, cell) in enumerate(zip(found, cells, strict=True))
        ]
        self.count += 1
        row = ",".join(value.replace(",", "").replace('"', "") for value in values)
        if self._table is not None:
            self._table.row(row, number, line)
            return True
        self._waiting.append((row, line, number))
        if len(self._waiting) >= _LOOK:
            self.whole()
        return True

    def whole(self) -> MetricTable:
        """The table with all rows so far."""
        if self._table is None:
            titles = ",".join(
                f"{title} ({unit})" if unit else title for title, unit in zip(self.titles, self._units, strict=True)
            )
            self._table = MetricTable()
            self._table.look([titles, *(row for row, _, _ in self._waiting)])
            self._table.row(titles, 0, b"")
            for row, line, number in self._waiting:
                self._table.row(row, number, line)
            self._waiting = []
        return self._table


def titles_of(line: bytes) -> list[str] | None:
    """The titles of a table of steps with a time, a rate or a loss; None for another line."""
    has_part = b"tep" in line or b"ter" in line or b"TEP" in line or b"TER" in line
    if not has_part or _STEP_WORD.search(line) is None:
        return None
    text = line.decode("utf-8", "replace").strip().removeprefix("#").strip()
    if "|" in text:
        cells = [cell.strip() for cell in text.strip("|").split("|")]
    else:
        cells = [cell.strip() for cell in (text.split("\t") if "\t" in text else _CELL.findall(text))]
    if (
        not 3 <= len(cells) <= _COLUMNS
        or not all(_NAME.fullmatch(cell) for cell in cells)
        or len(set(cells)) < len(cells)
    ):
        return None
    cells = [cell.lstrip("#") for cell in cells]
    if sum(_STEP.fullmatch(cell) is not None for cell in cells) != 1:
        return None
    says = any(meaning_of(cell) is not None or _ERROR.search(cell) is not None for cell in cells)
    return cells if says else None


def _plain(found: re.Match[str]) -> str:
    """The number of a cell without its unit."""
    text = found[1].replace(",", "")
    factor = _THOUSANDS.get(found[2] or "")
    return text if factor is None else repr(float(text) * factor)
