"""Samples under the titles of `nvidia-smi dmon` and `dcgmi dmon`, as columns of numbers: rows one by one, or a block of them at once."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from nccl_doctor.formats.gpu.refusals import REFUSED
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import MANY, Batch, Floats, Gpu, Ints, Place, Waiting
from nccl_doctor.formats.gpu.smi_csv import seconds
from nccl_doctor.formats.number_grid import Grid, number_of, read_grid

_DMON = {
    "sm": "util", "pwr": "power", "gtemp": "temperature", "temp": "temperature", "pclk": "clock", "fb": "memory",
    "sbecc": "counter:ecc-corrected", "dbecc": "counter:ecc-uncorrected", "pci": "counter:pcie-replays",
}  # fmt: skip
_DCGM = {
    "GPUTL": "util", "POWER": "power", "SMCLK": "clock", "FBUSD": "memory", "FBTTL": "memory_total",
    "TMPTR": "temperature", "SMACT": "sm_active", "GRACT": "active", "DVCCTR": "mask", "XIDER": "counter:xid",
    "RPCTR": "counter:pcie-replays",
}  # fmt: skip
TITLES = frozenset(_DMON)
_DIGITS = 19  # of a number that 64 bits hold, and one
Rows = list[list[str]]  # cells


class Layout(NamedTuple):
    """Where the cells of a table are, by its titles."""

    cells: int  # of a row
    gpu: int
    date: int | None
    clock: int | None
    names: tuple[str, ...]  # of the columns that are read
    places: tuple[int, ...]  # where these are
    pick: Callable[[list[str]], tuple[str, ...]]  # the cells of these columns
    first: str | None  # the first cell of all rows

    def fits(self, cells: list[str]) -> bool:
        """Whether cells are those of a row."""
        return len(cells) == self.cells and cells[self.gpu].isdecimal() and self.first in (None, cells[0])

    def grid(self, lines: Sequence[str]) -> Grid | None:
        """The rows among lines that have no prefix; None where they have no columns."""
        begins = self.first or ""
        likely = [number for number, line in enumerate(lines) if line.startswith(begins) and line[:1] != "#"]
        grid = read_grid([lines[number] for number in likely], self.cells) if likely else None
        if grid is None:
            return None
        fits = grid.is_decimal(self.gpu)
        fits &= grid.is_decimal(0) if self.first is None else grid.is_word(0, self.first.encode())
        return grid.only(fits, likely)


def _layout(titles: tuple[str, ...], known: dict[str, str], first: str | None = None) -> Layout:
    """The layout of rows; `first` is the first cell of all, and this and the number of the GPU have no title of their own."""
    untitled = 0 if first is None else 2
    wanted = {known[title]: at for at, title in enumerate(titles, untitled) if title in known}
    places = tuple(wanted.values())
    pick = itemgetter(*places) if len(places) > 1 else lambda cells: tuple(cells[at] for at in places)
    return Layout(
        cells=len(titles) + untitled,
        gpu=titles.index("gpu") if "gpu" in titles else 1,
        date=titles.index("date") if "date" in titles else None,
        clock=titles.index("time") if "time" in titles else None,
        names=tuple(wanted),
        places=places,
        pick=pick,
        first=first,
    )


@lru_cache(64)  # titles are repeated after each screen
def dmon_layout(titles: tuple[str, ...]) -> Layout:
    return _layout(titles, _DMON)


@lru_cache(64)
def dcgm_layout(titles: tuple[str, ...]) -> Layout:
    return _layout(titles, _DCGM, "GPU")


class _Slots(dict[str, int]):
    """The index of a GPU of one host, as it is written -> its slot."""

    def __init__(self, samples: Samples, host: str | None) -> None:
        super().__init__()
        self._samples, self._host = samples, host

    def __missing__(self, index: str) -> int:
        gpu = Gpu(self._host, int(index) if len(index) < _DIGITS else None)
        self[index] = slot = self._samples.slot((gpu.host, gpu.number), lambda: gpu)
        return slot


class Columns:
    """Samples of one kind under titles that may change on the way."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._waiting = Waiting(self.samples.add)
        self._layout: Layout | None = None
        self._slots_of: dict[str | None, _Slots] = {}
        self._lost: set[int] = set()  # slots of GPUs that the tool could not read
        self._clear()

    def _clear(self) -> None:
        self._slots: list[int] = []
        self._cells: list[tuple[str, ...]] = []
        self._times: list[float] = []
        self._places: list[Place] = []

    def _opened(self, layout: Layout, host: str | None) -> _Slots:
        """The slots of a host, of which rows come."""
        if layout is not self._layout:
            self.flush()
            self._layout = layout
        slots = self._slots_of.get(host)
        if slots is None:
            slots = self._slots_of[host] = _Slots(self.samples, host)
        return slots

    def add(self, layout: Layout, host: str | None, rows: Rows, places: Iterable[Place]) -> None:
        """Take the cells of rows."""
        slots = self._opened(layout, host)
        self._slots += [slots[cells[layout.gpu]] for cells in rows]
        self._cells += map(layout.pick, rows)
        self._places += places
        if layout.date is not None:
            clock = layout.clock
            self._times += [_time(cells[layout.date], "" if clock is None else cells[clock]) for cells in rows]
        if len(self._slots) >= MANY:
            self._end_rows()

    def add_grid(self, layout: Layout, grid: Grid, lines: Sequence[str], first: int) -> None:
        """The same of the rows of a grid, which lines without prefixes hold; `first` is the number of the first of these."""
        slots, rows = self._opened(layout, None), grid.rows
        self._end_rows()
        known, order, which = np.unique(grid.numbers(layout.gpu), return_index=True, return_inverse=True)
        of = np.zeros(len(known), np.int64)
        for at in np.argsort(order):  # as they come in the file
            of[at] = slots[str(int(known[at]))]

        def place(row: int) -> Place:
            return first + int(rows[row]), lines[rows[row]].strip()

        self._sum(of[which], map(grid.numbers, layout.places), _times(layout, grid), place)

    def _end_rows(self) -> None:
        """Turn the single rows that wait into columns."""
        if self._slots:
            columns = map(_numbers, zip(*self._cells, strict=True))
            times = np.array(self._times) if self._times else None
            self._sum(np.array(self._slots, np.int64), columns, times, self._places.__getitem__)
            self._clear()

    def _sum(self, slots: Ints, values: Iterable[Floats], times: Floats | None, place: Callable[[int], Place]) -> None:
        assert self._layout is not None
        columns = dict(zip(self._layout.names, values, strict=False))
        self._note_lost(slots, columns, place)
        if "active" in columns:
            columns.setdefault("util", 100 * columns["active"])
            del columns["active"]
        self._waiting.add(Batch(slots, columns, times, place))

    def _note_lost(self, slots: Ints, columns: dict[str, Floats], place: Callable[[int], Place]) -> None:
        """Remember GPUs with `ERR!` in the place of a number; `-` and `N/A` are numbers that a GPU does not have."""
        odd = np.zeros(len(slots), bool)
        for values in columns.values():
            odd |= np.isnan(values)
        for row in np.flatnonzero(odd).tolist():
            slot = int(slots[row])
            if slot >= 0 and slot not in self._lost and REFUSED.search(place(row)[1]):
                self._lost.add(slot)
                self.samples.unreadable(self.samples.gpus[slot], place(row))

    def flush(self) -> None:
        """Sum up the rows that wait."""
        self._end_rows()
        self._waiting.flush()


@lru_cache(64)  # rows of one sweep have the same
def _time(date: str, clock: str) -> float:
    """Seconds since the epoch; NaN where a part is missing."""
    return seconds(f"{date} {clock}") if len(date) == 8 else float("nan")


def _numbers(cells: tuple[str, ...]) -> Floats:
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:  # `-` or `N/A` among them
        return np.fromiter(map(number_of, cells), np.float64, len(cells))


def _times(layout: Layout, grid: Grid) -> Floats | None:
    """When each row was printed."""
    if layout.date is None:
        return None
    words = [grid.words(at) for at in (layout.date, layout.clock) if at is not None]
    signs = np.concatenate(words, axis=1)
    changes = np.flatnonzero(np.concatenate([[True], (signs[1:] != signs[:-1]).any(axis=1)]))
    dates = grid.texts(layout.date, changes)
    clocks = grid.texts(layout.clock, changes) if layout.clock is not None else [""] * len(dates)
    times = np.array(list(map(_time, dates, clocks)))
    return np.repeat(times, np.diff(changes, append=len(signs)))
