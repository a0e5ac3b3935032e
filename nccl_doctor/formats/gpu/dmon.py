"""Tables in columns of blanks: `nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`. Columns are found by their titles only."""

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place
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
_PROCESSES = 10_000  # different ones that are kept
_Key = tuple[str | None, int | str | None, int]  # host, index or uuid, pid


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


class _Columns:
    """Samples of one kind under titles that may change on the way."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._layout: _Layout | None = None
        self._slot_of: dict[tuple[str | None, int], int] = {}
        self._slots: list[int] = []
        self._cells: list[tuple[str, ...]] = []
        self._times: list[float] = []
        self._places: list[Place] = []
        self._last = ("", "", float("nan"))  # date and clock of the row before, and their time

    def add(self, layout: _Layout, host: str | None, cells: list[str], place: Place) -> None:
        """Take the cells of a row."""
        if layout is not self._layout or len(self._slots) >= _BATCH:
            self.flush()
            self._layout = layout
        key = host, int(cells[layout.gpu])
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = self.samples.slot(key, lambda: Gpu(*key))
        if slot >= 0:
            self._slots.append(slot)
            self._cells.append(layout.pick(cells))
            self._times.append(self._time(layout, cells))
            self._places.append(place)

    def _time(self, layout: _Layout, cells: list[str]) -> float:
        if layout.date is None or len(cells[layout.date]) != 8:
            return float("nan")
        date, clock = cells[layout.date], cells[layout.clock] if layout.clock is not None else ""
        if self._last[:2] != (date, clock):
            self._last = date, clock, seconds(f"{date} {clock}")
        return self._last[2]

    def flush(self) -> None:
        """Sum up the rows that wait."""
        if self._slots and self._layout is not None:
            columns = {
                name: _numbers(cells)
                for name, cells in zip(self._layout.names, zip(*self._cells, strict=True), strict=False)
            }
            if "active" in columns:
                columns.setdefault("util", 100 * columns["active"])
                del columns["active"]
            times, places = np.array(self._times), self._places
            timed = None if np.isnan(times).all() else times
            self.samples.add(Batch(np.array(self._slots), columns, timed, lambda row: places[row]))
        self._slots, self._cells, self._times, self._places = [], [], [], []


def _numbers(cells: tuple[str, ...]) -> npt.NDArray[np.float64]:
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:  # `-` or `N/A` among them
        return np.array([_number(cell) for cell in cells])


class Tables:
    """Reads the lines that belong to such tables."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._take: dict[str | None, Callable[[list[str], str, int], bool]] = {}
        self._dmon = _Columns()
        self._dcgm = _Columns()
        self._processes: dict[_Key, tuple[str | None, str | None, float | None, int, Place]] = {}
        self._processes_seen = False

    def take(self, line: str, host: str | None, number: int) -> bool:
        """Use a line; False where it is not part of a table."""
        if line.startswith("#"):
            return self._title(line.lstrip("# ").split(), host)
        if "pid," in line and _APPS.match(line):
            titles = [title.partition("[")[0].strip() for title in line.split(",")]
            self._processes_seen = True
            self._take[host] = lambda cells, line, number: self._app_row(titles, host, line, number)
            return True
        known = self._take.get(host)
        return known is not None and known(line.split(), line, number)

    def _title(self, titles: list[str], host: str | None) -> bool:
        lower = [title.lower() for title in titles]
        if titles[:1] == ["Entity"] and len(titles) > 1:
            layout = _dcgm_layout(tuple(titles[1:]))
            self._take[host] = lambda cells, line, number: self._dcgm_row(layout, cells, host, line, number)
        elif "gpu" in lower[:3] and "pid" in lower:
            self._processes_seen = True
            self._take[host] = lambda cells, line, number: self._pmon_row(lower, cells, host, line, number)
        elif "gpu" in lower[:3] and any(title in _DMON for title in lower):
            layout = _dmon_layout(tuple(lower))
            self._take[host] = lambda cells, line, number: self._dmon_row(layout, cells, host, line, number)
        else:
            return host in self._take and "idx" in lower
        return True

    def _dmon_row(self, layout: _Layout, cells: list[str], host: str | None, line: str, number: int) -> bool:
        if len(cells) != layout.cells or not cells[layout.gpu].isdigit():
            return False
        self._dmon.add(layout, host, cells, (number, line))
        return True

    def _dcgm_row(self, layout: _Layout, cells: list[str], host: str | None, line: str, number: int) -> bool:
        if len(cells) != layout.cells or cells[0] != "GPU" or not cells[1].isdigit():
            return bool(cells[:1] == ["ID"])
        self._dcgm.add(layout, host, cells, (number, line))
        return True

    def _pmon_row(self, titles: list[str], cells: list[str], host: str | None, line: str, number: int) -> bool:
        row = dict(zip(titles, cells, strict=False))
        if len(cells) < len(titles) - 1 or not row["gpu"].isdigit():
            return False
        if row.get("pid", "-").isdigit() and len(self._processes) < _PROCESSES:
            name = " ".join(cells[titles.index("command") :]) if "command" in titles else None
            self._process(
                (host, int(row["gpu"]), int(row["pid"])), row.get("type"), name, row.get("fb", "-"), (number, line)
            )
        return True

    def _app_row(self, titles: list[str], host: str | None, line: str, number: int) -> bool:
        row = dict(zip(titles, (cell.strip() for cell in line.split(",")), strict=False))
        if len(row) != len(titles) or not row["pid"].isdigit():
            return False
        if len(self._processes) < _PROCESSES:
            memory = row.get("used_gpu_memory [MiB]") or row.get("used_gpu_memory") or row.get("used_memory") or "-"
            gpu = row.get("gpu_uuid") or row.get("gpu_bus_id") or row.get("gpu_name")
            name = row.get("process_name") or row.get("name")
            self._process((host, gpu, int(row["pid"])), "C", name, memory.removesuffix(" MiB"), (number, line))
        return True

    def _process(self, key: _Key, kind: str | None, name: str | None, memory: str, place: Place) -> None:
        old = self._processes.get(key)
        known = [value for value in (old[2] if old else None, _number(memory)) if value is not None and value == value]
        self._processes[key] = (
            kind,
            name or None,
            max(known, default=None),
            old[3] + 1 if old else 1,
            old[4] if old else place,
        )

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
                host=host, gpu=gpu if isinstance(gpu, int) else None, uuid=None if isinstance(gpu, int) else gpu,
                pid=pid, kind=kind, name=name, memory=memory, n=n, ref=facts.evidence(self._file, *place),
            )
            for (host, gpu, pid), (kind, name, memory, n, place) in self._processes.items()
        )  # fmt: skip


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
