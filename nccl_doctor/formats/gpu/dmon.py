"""Tables in columns of blanks: `nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`. Columns are found by their titles only."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place, known_or_none
from nccl_doctor.formats.gpu.smi_csv import seconds

_DMON = {
    "sm": "util", "pwr": "power", "gtemp": "temperature", "temp": "temperature", "pclk": "clock", "fb": "memory",
    "sbecc": "counter:ecc-corrected", "dbecc": "counter:ecc-uncorrected", "pci": "counter:pcie-replays",
}  # fmt: skip
_DCGM = {
    "GPUTL": "util", "POWER": "power", "SMCLK": "clock", "FBUSD": "memory", "FBTTL": "memory_total",
    "TMPTR": "temperature", "SMACT": "sm_active", "GRACT": "active", "DVCCTR": "mask", "XIDER": "counter:xid",
    "RPCTR": "counter:pcie-replays",
}  # fmt: skip
_APPS = re.compile(r"(?:[a-z_]{2,20}(?: \[MiB\])?, ?){0,8}pid(?:, ?[a-z_]{2,20}(?: \[MiB\])?){1,8}(?:, ?)?$")
_BATCH = 20_000
_RUN = 64  # rows that are looked at together; titles are repeated after each screen
_DIGITS = 19  # of a number that 64 bits hold, and one
_PROCESSES = 10_000  # different ones that are kept
_Rows = list[list[str]]  # cells


class _Layout(NamedTuple):
    """Where the cells of a table are, by its titles."""

    cells: int  # of a row
    gpu: int
    date: int | None
    clock: int | None
    names: tuple[str, ...]  # of the columns that are read
    pick: Callable[[list[str]], tuple[str, ...]]  # the cells of these columns


def _layout(titles: tuple[str, ...], known: dict[str, str], first: int) -> _Layout:
    """The layout of rows whose first `first` cells have no title of their own."""
    wanted = {known[title]: at for at, title in enumerate(titles, first) if title in known}
    places = tuple(wanted.values())
    pick = itemgetter(*places) if len(places) > 1 else lambda cells: tuple(cells[at] for at in places)
    return _Layout(
        cells=len(titles) + first,
        gpu=titles.index("gpu") if "gpu" in titles else 1,
        date=titles.index("date") if "date" in titles else None,
        clock=titles.index("time") if "time" in titles else None,
        names=tuple(wanted),
        pick=pick,
    )


@lru_cache(64)  # titles are repeated after each screen
def _dmon_layout(titles: tuple[str, ...]) -> _Layout:
    return _layout(titles, _DMON, 0)


@lru_cache(64)
def _dcgm_layout(titles: tuple[str, ...]) -> _Layout:
    return _layout(titles, _DCGM, 2)


class _Slots(dict[str, int]):
    """The index of a GPU of one host, as it is written -> its slot."""

    def __init__(self, samples: Samples, host: str | None) -> None:
        super().__init__()
        self._samples, self._host = samples, host

    def __missing__(self, index: str) -> int:
        gpu = Gpu(self._host, int(index) if len(index) < _DIGITS else None)
        self[index] = slot = self._samples.slot((gpu.host, gpu.number), lambda: gpu)
        return slot


class _Columns:
    """Samples of one kind under titles that may change on the way."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._layout: _Layout | None = None
        self._slots_of: dict[str | None, _Slots] = {}
        self._clear()

    def _clear(self) -> None:
        self._slots: list[int] = []
        self._cells: list[tuple[str, ...]] = []
        self._times: list[float] = []
        self._places: list[Place] = []

    def add(self, layout: _Layout, host: str | None, rows: _Rows, places: Iterable[Place]) -> None:
        """Take the cells of rows."""
        if layout is not self._layout or len(self._slots) >= _BATCH:
            self.flush()
            self._layout = layout
        slots = self._slots_of.get(host)
        if slots is None:
            slots = self._slots_of[host] = _Slots(self.samples, host)
        self._slots += [slots[cells[layout.gpu]] for cells in rows]
        self._cells += map(layout.pick, rows)
        self._places += places
        if layout.date is not None:
            clock = layout.clock
            self._times += [_time(cells[layout.date], "" if clock is None else cells[clock]) for cells in rows]

    def flush(self) -> None:
        """Sum up the rows that wait."""
        slots = np.array(self._slots, np.int64)
        keep, places = np.flatnonzero(slots >= 0), self._places
        if len(keep) and self._layout is not None:
            values = map(_numbers, zip(*self._cells, strict=True))
            columns = {name: column[keep] for name, column in zip(self._layout.names, values, strict=False)}
            if "active" in columns:
                columns.setdefault("util", 100 * columns["active"])
                del columns["active"]
            times = np.array(self._times)[keep] if self._times else None
            timed = None if times is None or np.isnan(times).all() else times
            self.samples.add(Batch(slots[keep], columns, timed, lambda row: places[keep[row]]))
        self._clear()


@lru_cache(64)  # rows of one sweep have the same
def _time(date: str, clock: str) -> float:
    """Seconds since the epoch; NaN where a part is missing."""
    return seconds(f"{date} {clock}") if len(date) == 8 else float("nan")


def _numbers(cells: tuple[str, ...]) -> npt.NDArray[np.float64]:
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:  # `-` or `N/A` among them
        return np.fromiter(map(_number, cells), np.float64, len(cells))


class _Process:
    """What the rows of one process said."""

    def __init__(self, place: Place) -> None:
        self.place = place  # of the first row
        self.kind: str | None = None
        self.name: str | None = None
        self.memory = float("nan")  # MiB, the highest
        self.n = 0

    def add(self, kind: str | None, name: str | None, memory: str) -> None:
        """Take one row."""
        self.kind, self.name = kind, name or None
        if memory != "-" and not (value := _number(memory)) <= self.memory:
            self.memory = value
        self.n += 1


class _Open(NamedTuple):
    """The table of a host, whose rows may come."""

    split: Callable[[str], list[str]]
    fits: Callable[[list[str]], bool]  # whether cells are those of a row
    add: Callable[[_Rows, list[Place]], None]


class Tables:
    """Reads the lines that belong to such tables."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: dict[str | None, _Open] = {}
        self._dmon = _Columns()
        self._dcgm = _Columns()
        self._processes: dict[tuple[str | None, str | None, str], _Process] = {}  # by host, GPU and pid as written
        self._processes_seen = False

    def take(self, line: str, host: str | None, number: int) -> bool:
        """Use a line; False where it is not part of a table."""
        if line.startswith("#"):
            return self._title(line.lstrip("# ").split(), host)
        if "pid," in line and _APPS.match(line):
            self._app_title([title.partition("[")[0].strip() for title in line.split(",")], host)
            return True
        table = self._open.get(host)
        if table is None:
            return False
        cells = table.split(line)
        if not table.fits(cells):
            return cells[:1] == ["ID"]  # dcgmi has the units in a row
        table.add([cells], [(number, line)])
        return True

    def take_rows(self, lines: list[str], at: int, number: int) -> int:
        """Use the lines from `at` on, of which the first has this number, as far as they are rows without prefixes; how many."""
        table = self._open.get(None)
        if table is None:
            return 0
        split, fits = table.split, table.fits
        rows: _Rows = []
        for line in lines[at : at + _RUN]:
            cells = split(line)
            if not fits(cells) or not (cells[0].isdecimal() or cells[0] == "GPU") or not line.isprintable():
                break
            rows.append(cells)
        if rows:
            table.add(rows, list(enumerate(map(str.strip, lines[at : at + len(rows)]), number)))
        return len(rows)

    def _title(self, titles: list[str], host: str | None) -> bool:
        lower = [title.lower() for title in titles]
        if titles[:1] == ["Entity"] and len(titles) > 1:
            self._columns(self._dcgm, _dcgm_layout(tuple(titles[1:])), host, "GPU")
        elif "gpu" in lower[:3] and "pid" in lower:
            self._process_title(lower, host)
        elif "gpu" in lower[:3] and any(title in _DMON for title in lower):
            self._columns(self._dmon, _dmon_layout(tuple(lower)), host)
        else:
            return host in self._open and "idx" in lower
        return True

    def _columns(self, columns: _Columns, layout: _Layout, host: str | None, first: str | None = None) -> None:
        """Open a table of samples; `first` is the first cell of all rows."""

        def fits(cells: list[str]) -> bool:
            return len(cells) == layout.cells and cells[layout.gpu].isdecimal() and first in (None, cells[0])

        self._open[host] = _Open(str.split, fits, lambda rows, places: columns.add(layout, host, rows, places))

    def _process_title(self, titles: list[str], host: str | None) -> None:
        """Open a table of pmon. The command may be missing, and it may have blanks."""
        gpu, pid = titles.index("gpu"), titles.index("pid")
        kind, memory, name = (titles.index(title) if title in titles else None for title in ("type", "fb", "command"))

        def fits(cells: list[str]) -> bool:
            return len(cells) >= len(titles) - 1 and cells[gpu].isdecimal()

        def add(rows: _Rows, places: list[Place]) -> None:
            for cells, place in zip(rows, places, strict=True):
                if cells[pid].isdecimal() and (process := self._process(host, cells[gpu], cells[pid], place)):
                    command = None if name is None else " ".join(cells[name:])
                    process.add(_cell(cells, kind), command, _cell(cells, memory) or "-")

        self._processes_seen = True
        self._open[host] = _Open(str.split, fits, add)

    def _app_title(self, titles: list[str], host: str | None) -> None:
        """Open a table of `--query-compute-apps`."""
        pid = titles.index("pid")
        gpu, memory, name = (
            next((titles.index(title) for title in those if title in titles), None)
            for those in (
                ("gpu_uuid", "gpu_bus_id", "gpu_name"),
                ("used_gpu_memory", "used_memory"),
                ("process_name", "name"),
            )
        )

        def fits(cells: list[str]) -> bool:
            return len(cells) >= len(titles) and cells[pid].isdecimal()

        def add(rows: _Rows, places: list[Place]) -> None:
            for cells, place in zip(rows, places, strict=True):
                if process := self._process(host, _cell(cells, gpu), cells[pid], place):
                    process.add("C", _cell(cells, name), (_cell(cells, memory) or "-").removesuffix(" MiB"))

        self._processes_seen = True
        self._open[host] = _Open(lambda line: [cell.strip() for cell in line.split(",")], fits, add)

    def _process(self, host: str | None, gpu: str | None, pid: str, place: Place) -> _Process | None:
        """A process, which may be new; None where there are too many."""
        known = self._processes.get((host, gpu, pid))
        if known is None and len(self._processes) < _PROCESSES and len(pid) < _DIGITS:
            known = self._processes[host, gpu, pid] = _Process(place)
        return known

    def write(self, facts: Facts) -> None:
        """Turn what was read into rows."""
        for columns, source in ((self._dmon, "dmon"), (self._dcgm, "dcgm")):
            columns.flush()
            if columns.samples.gpus:
                columns.samples.write(facts, self._file, source)
        if self._processes_seen:
            facts.mark_covered("gpu_process")
        facts.add(
            GpuProcess(
                host=host, gpu=int(gpu) if gpu and gpu.isdecimal() and len(gpu) < _DIGITS else None,
                uuid=None if gpu and gpu.isdecimal() else gpu,
                pid=int(pid), kind=process.kind, name=process.name, memory=known_or_none(process.memory), n=process.n,
                ref=facts.evidence(self._file, *process.place),
            )
            for (host, gpu, pid), process in self._processes.items()
        )  # fmt: skip


def _cell(cells: list[str], at: int | None) -> str | None:
    return cells[at] if at is not None and at < len(cells) else None


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
