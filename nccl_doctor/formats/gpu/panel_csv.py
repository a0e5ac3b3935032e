"""What people download of a panel of Grafana: a column of times, and a column for each series (`Inspect > Data > Download CSV`).

Series of GPUs whose title or panel says what they measure are samples of GPUs; of others the mean and the limits are kept.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import PanelSeries
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.prometheus import COLUMNS, HOSTS, LABEL, gpu_of
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Floats, Gpu
from nccl_doctor.formats.number_grid import cell_numbers
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import cells_of, line_lists

_MOST = 4_096  # columns
_ROWS = 2_000  # that are looked at together
_TITLE_METRIC = re.compile(r"(?:^|[^\w])(?:__name__=\"([A-Za-z_:]\w{0,120})\"|([A-Za-z_:]\w{0,120})\{)")
_QUANTITIES = (
    (re.compile(r"(?i)util"), "util"),
    (re.compile(r"(?i)power"), "power"),
    (re.compile(r"(?i)temp"), "temperature"),
    (re.compile(r"(?i)sm[ _]?clock|clock.{0,12}sm"), "clock"),
)
_PANEL = re.compile(
    r"(?:^|/)([^/]{1,200}?)-data(?:-as-\w{1,40})?-20\d\d-\d\d-\d\d"
)  # the name of a download begins with that of the panel
_GPU = re.compile(r"(?i)(?<![a-z0-9])gpu[ _:#-]{0,2}(\d{1,3})(?![\w.])")
_HOST = re.compile(
    r"(?<![\w.-])(?!(?i:gpu)\b|(?i:gpu)[ _-]?\d{1,3}(?![\w-]))([A-Za-z][\w.-]{0,200}\d[\w.-]{0,50}?)(?::\d{2,5})?(?![\w.-])"
)
_VALUE = re.compile(r"([-+]?\d{1,20}(?:[.,]\d{1,15})?(?:[eE][-+]?\d{1,3})?)(?: ?[%°A-Za-z/]{1,8})?")
_MILLISECONDS = re.compile(r"1\d{12}")


class _Series(NamedTuple):
    """One column."""

    title: str
    host: str | None
    gpu: Gpu | None
    column: str | None  # of samples; None where the title leaves it open
    factor: float


class _Sums:
    """Sums of the columns that are no samples of GPUs."""

    def __init__(self, columns: int) -> None:
        self.n = np.zeros(columns, np.int64)
        self.sum = np.zeros(columns)
        self.least = np.full(columns, np.inf)
        self.most = np.full(columns, -np.inf)

    def add(self, values: Floats) -> None:
        """Take rows, a missing value is NaN."""
        known = np.isfinite(values)
        self.n += known.sum(axis=0)
        self.sum += np.where(known, values, 0.0).sum(axis=0)
        self.least = np.minimum(self.least, np.where(known, values, np.inf).min(axis=0, initial=np.inf))
        self.most = np.maximum(self.most, np.where(known, values, -np.inf).max(axis=0, initial=-np.inf))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the rows of a table.

    Source: Grafana 8 and newer, public/app/features/inspector; a title is the legend of its series, or its labels::

        "Time","{Hostname=""node01"", __name__=""DCGM_FI_DEV_GPU_UTIL"", gpu=""0""}","node01 GPU 1"
        2026-11-24 10:11:00,98,3
    """
    panel: _Panel | None = None
    first = 1
    note = None
    texts: list[str] = []
    for first, texts in line_lists(stream):
        begin = 0
        if panel is None:
            begin = 1 + texts[0].lstrip("\ufeff").startswith("sep=")
            titles = cells_of(texts[begin - 1].lstrip("\ufeff"))
            if len(titles) > _MOST:
                return Reading(1, 0, f"holds more than {_MOST:,} columns and was left out")
            panel = _Panel(titles, name, (begin, texts[begin - 1]))
        for at in range(begin, len(texts), _ROWS):
            panel.add(texts[at : at + _ROWS], first + at)
    if panel is None:
        return Reading(0, 0)
    panel.write(facts)
    if panel.torn and panel.torn == first + len(texts) - 1:
        note = f"ends in the middle of line {panel.torn:,}"
    elif panel.torn:
        note = f"line {panel.torn:,} has another number of cells than the titles; such lines were left out"
    return Reading(first + len(texts) - 1, panel.used, note)


class _Panel:
    """A table while it is being read."""

    def __init__(self, titles: list[str], name: str, place: tuple[int, str]) -> None:
        found = _PANEL.search(name)
        panel = found[1] if found is not None else ""
        self._series = [_series(title, panel) for title in titles[1:]]
        self._name = name
        self._place = place
        self._samples = Samples()
        gpus: dict[tuple[str | None, int | str | None], int] = {}
        self._columns: dict[str, list[tuple[int, int, float]]] = {}  # column -> where it is, which GPU, and the factor
        for at, series in enumerate(self._series):
            if series.gpu is not None and series.column is not None:
                key = series.gpu.host, series.gpu.number if series.gpu.number is not None else series.gpu.uuid
                slot = gpus.setdefault(key, len(gpus))
                self._columns.setdefault(series.column, []).append((at, slot, series.factor))
                self._samples.slot(key, lambda series=series: series.gpu)  # type: ignore[misc]
        self._others = [at for at, series in enumerate(self._series) if series.gpu is None or series.column is None]
        self._gpus = min(len(gpus), Samples.MAX_GPUS)
        self._sums = _Sums(len(self._others))
        self.used = 0
        self.torn = 0  # the last line with another number of cells

    def add(self, lines: list[str], first: int) -> None:
        """Take some rows."""
        plain = _plain(lines, len(self._series))
        times, values, places = (*plain, list(range(first, first + len(lines)))) if plain else self._cells(lines, first)
        if not places or not self._series:
            return
        self.used += len(places)
        self._sums.add(values[:, self._others])
        if self._columns:
            self._add_samples(_times(times), values, lines, places, first)

    def _cells(self, lines: list[str], first: int) -> tuple[Sequence[str], Floats, list[int]]:
        """Times and numbers of rows of any form, and which lines they are."""
        rows, places = [], []
        for number, cells in enumerate(map(cells_of, lines), first):
            if len(cells) == len(self._series) + 1:
                rows.append(cells)
                places.append(number)
            elif cells:
                self.torn = number
        times, *columns = zip(*rows, strict=True) if rows and self._series else ((),)
        return times, np.array([_floats(column) for column in columns]).T, places

    def _add_samples(self, times: Floats, values: Floats, lines: list[str], places: list[int], first: int) -> None:
        shape = len(times), self._gpus
        columns = {}
        for column, listed in self._columns.items():
            one = np.full(shape, np.nan)
            for at, slot, factor in listed:
                if slot < self._gpus:
                    one[:, slot] = values[:, at] * factor
            columns[column] = one.ravel()
        gpus = self._gpus
        self._samples.add(
            Batch(
                np.tile(np.arange(gpus, dtype=np.int64), len(times)),
                columns,
                np.repeat(times, gpus) if np.isfinite(times).all() else None,
                lambda row: (places[row // gpus], lines[places[row // gpus] - first][:600]),
            )
        )

    def write(self, facts: Facts) -> None:
        """Turn what was read into rows."""
        if self._columns:
            self._samples.write(facts, self._name, "grafana")
        ref = facts.evidence(self._name, self._place[0], self._place[1][:600]) if self._others else 0
        facts.add(
            PanelSeries(
                self._name, self._series[at].title[:400], self._series[at].host, int(n), float(total / n), float(least), float(most), ref,
            )
            for at, n, total, least, most in zip(
                self._others, self._sums.n, self._sums.sum, self._sums.least, self._sums.most, strict=True
            )
            if n
        )  # fmt: skip
        facts.mark_covered("panel_series")


def _plain(lines: list[str], columns: int) -> tuple[list[str], Floats] | None:
    """Times and numbers of rows without quotes that have so many columns behind the time; None of others."""
    parts = [line.partition(",") for line in lines]
    cells = ",".join([part[2] for part in parts])
    if (
        '"' in cells
        or not cells.isascii()
        or any('"' in time or rest.count(",") != columns - 1 for time, _, rest in parts)
    ):
        return None
    text = cells.encode()
    ends = np.append(np.flatnonzero(np.frombuffer(text, np.uint8) == ord(",")), len(text))
    numbers = cell_numbers(text, ends, _number)
    return None if numbers is None else ([time for time, _, _ in parts], numbers.reshape(-1, columns))


def _series(title: str, panel: str) -> _Series:
    """What a title says: by its labels, else by its words and those of the panel."""
    labels = dict(LABEL.findall(title))
    metric = _TITLE_METRIC.search(title)
    known = COLUMNS.get((metric[1] or metric[2]) if metric is not None else "")
    if labels:
        gpu = gpu_of(labels)
        host = next((labels[key] for key in HOSTS if labels.get(key)), None)
        return _Series(title, host, gpu, *(known or _quantity(title, panel)))
    gpus, host = list(_GPU.finditer(title)), _HOST.search(title)
    who = host[1] if host is not None else None
    if who is None and len(gpus) > 1:  # of `gpu07: GPU 0` the first is a node
        who = gpus[0][0]
    gpu = Gpu(who, int(gpus[-1][1])) if gpus else None
    return _Series(title, who, gpu, *(known or _quantity(title, panel)))


def _quantity(title: str, panel: str) -> tuple[str | None, float]:
    for words in (title, panel):
        for pattern, column in _QUANTITIES:
            if pattern.search(words):
                return column, 1.0
    return None, 1.0


def _floats(cells: Sequence[str]) -> Floats:
    """The numbers of a column; NaN for an empty cell, and without the unit that formatted data has."""
    return np.fromiter(map(_number, cells), np.float64, len(cells))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        found = _VALUE.fullmatch(cell.strip())
        return float(found[1].replace(",", ".")) if found is not None else float("nan")


def _times(cells: Sequence[str]) -> Floats:
    """Seconds since the epoch."""
    if _MILLISECONDS.fullmatch(cells[0]):
        return _floats(cells) / 1000
    return np.array([float("nan") if (time := iso_seconds(cell)) is None else time for cell in cells])
