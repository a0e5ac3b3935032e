"""Tables of `nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`, with blanks or commas. Columns are found by their titles only."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess
from nccl_doctor.formats.gpu.loops.dmon_columns import TITLES, Columns, Layout, Rows, dcgm_layout, dmon_layout
from nccl_doctor.formats.gpu.loops.process_looks import Looks
from nccl_doctor.formats.gpu.sample_totals import Gpu, Place, known_or_none
from nccl_doctor.formats.number_grid import Grid, number_of

_APPS = re.compile(r"(?:[a-z_]{2,20}(?: \[MiB\])?, ?){0,8}pid(?:, ?[a-z_]{2,20}(?: \[MiB\])?){1,8}(?:, ?)?$")
_LOSS = re.compile(r"Unable to determine the device handle for (?:GPU|gpu) ?([0-9A-Fa-f:.]{7,16})\b")
_RUN = 64  # rows that are looked at together; titles are repeated after each screen
_PERCENT = 3  # digits of a percentage
_DIGITS = 19  # of a number that 64 bits hold, and one
_PAUSE = 50_000  # lines without a row, after which a table has ended; all of these print their titles again and again
_TABLES = 4  # of a block of lines that are looked for as a whole
_PROCESSES = 10_000  # different ones that are kept


class _Process:
    """What the rows of one process said."""

    def __init__(self, place: Place) -> None:
        self.place = place  # of the first row
        self.kind: str | None = None
        self.name: str | None = None
        self.memory = float("nan")  # MiB, the highest
        self.sm = 0.0  # %, the sum of the looks that tell it
        self.sm_looks = 0
        self.n = 0
        self.first = self.last = 0  # looks that showed it

    def add(self, kind: str | None, name: str | None, memory: str, sm: str = "-") -> None:
        """Take one row."""
        if sm.isdecimal() and len(sm) <= _PERCENT:
            self.sm += int(sm)
            self.sm_looks += 1
        self.kind, self.name = kind, name or None
        if memory != "-" and not (value := number_of(memory)) <= self.memory:
            self.memory = value
        self.n += 1


class _Open(NamedTuple):
    """The table of a host, whose rows may come."""

    split: Callable[[str], list[str]]
    fits: Callable[[list[str]], bool]  # whether cells are those of a row
    add: Callable[[Rows, list[Place]], None]
    layout: Layout | None = None  # of samples


class Tables:
    """Reads the lines that belong to such tables."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: dict[str | None, _Open] = {}
        self._dmon = Columns()
        self._dcgm = Columns()
        self._processes: dict[tuple[str | None, str | None, str], _Process] = {}  # by host, GPU and pid as written
        self._processes_seen = False
        self._looks = Looks()
        self._split: Callable[[str], list[str]] = str.split  # of the table whose titles came last
        self._idle = 0  # lines since a table was used

    @property
    def is_open(self) -> bool:
        """Whether rows may come."""
        return bool(self._open)

    def take(self, line: str, host: str | None, number: int) -> bool:
        """Use a line; False where it is not part of a table."""
        if line.startswith("#") and not self._is_marked_row(line, host):
            self._idle = 0
            self._split = _by_commas if "," in line else str.split
            return self._title(self._split(line.lstrip("# ")), host)
        if "pid," in line and _APPS.match(line):
            self._idle = 0
            self._app_title([title.partition("[")[0].strip() for title in line.split(",")], host)
            return True
        table = self._open.get(host)
        if table is None:
            return False
        cells = table.split(line.lstrip("# "))
        if not table.fits(cells):
            return cells[:1] == ["ID"] or self._is_loss(line, host, number)  # dcgmi has the units in a row
        table.add([cells], [(number, line)])
        self._idle = 0
        return True

    def _is_marked_row(self, line: str, host: str | None) -> bool:
        """Whether a line is a row that someone put behind the mark of titles."""
        table = self._open.get(host)
        return table is not None and line[1:].lstrip()[:1].isdecimal() and table.fits(table.split(line.lstrip("# ")))

    def _is_loss(self, line: str, host: str | None, number: int) -> bool:
        """Whether a line between rows says that a GPU was lost, with which nvidia-smi ends."""
        found = _LOSS.match(line)
        if found is not None:
            self._dmon.samples.unreadable(Gpu(host, None, uuid=found[1]), (number, line))
        return found is not None

    def take_block(self, lines: list[str], number: int, other: Callable[[str, int], int]) -> int:
        """Use lines, of which the first has this number; how many. `other` takes those that are not rows without prefixes."""
        used = at = tried = 0
        self._idle += len(lines)
        while at < len(lines):
            table = self._open.get(None)
            layout = table.layout if table is not None and tried < _TABLES and len(lines) - at > _RUN else None
            rest = lines[at:] if layout is not None else []
            grid = layout.grid(rest) if layout is not None else None
            if layout is not None and grid is not None and len(grid.rows) > len(rest) // 2:
                taken, rows = self._take_grid(layout, grid, rest, number + at, other)
                tried += 1
            else:
                tried = _TABLES if layout is not None else tried
                taken = rows = self.take_rows(lines, at, number + at)
                if not taken:
                    taken, rows = 1, other(lines[at], number + at)
            at, used = at + taken, used + rows
        if self._idle > _PAUSE:
            self._open.clear()
        return used

    def _take_grid(
        self, layout: Layout, grid: Grid, lines: Sequence[str], first: int, other: Callable[[str, int], int]
    ) -> tuple[int, int]:
        """Use lines as far as they have this layout, of which most are rows of a grid: how many that is, and how many were used."""
        columns = self._dcgm if layout.first else self._dmon
        self._idle = 0
        used = at = start = 0  # lines that were looked at, and rows of the grid that were summed up
        for stop, row in enumerate([*grid.rows.tolist(), len(lines)]):
            for between in range(at, row):
                if not lines[between].startswith(("#", "ID ")) and start < stop:  # it may be a row, too
                    columns.add_grid(layout, grid.part(start, stop), lines, first)
                    start = stop
                used += other(lines[between], first + between)
                table = self._open.get(None)
                if table is None or table.layout is not layout:
                    if start < stop:
                        columns.add_grid(layout, grid.part(start, stop), lines, first)
                    return between + 1, used + stop
            at = row + 1
        if start < len(grid.rows):
            columns.add_grid(layout, grid.part(start, len(grid.rows)), lines, first)
        return len(lines), used + len(grid.rows)

    def take_rows(self, lines: list[str], at: int, number: int) -> int:
        """Use the lines from `at` on, of which the first has this number, as far as they are rows without prefixes; how many."""
        table = self._open.get(None)
        if table is None:
            return 0
        split, fits = table.split, table.fits
        rows: Rows = []
        for line in lines[at : at + _RUN]:
            cells = split(line)
            if not fits(cells) or not (cells[0].isdecimal() or cells[0] == "GPU") or not line.isprintable():
                break
            rows.append(cells)
        if rows:
            self._idle = 0
            table.add(rows, list(enumerate(map(str.strip, lines[at : at + len(rows)]), number)))
        return len(rows)

    def _title(self, titles: list[str], host: str | None) -> bool:
        lower = [title.lower() for title in titles]
        if titles[:1] == ["Entity"] and len(titles) > 1:
            self._columns(self._dcgm, dcgm_layout(tuple(titles[1:])), host)
        elif "gpu" in lower[:3] and "pid" in lower:
            self._process_title(lower, host)
        elif "gpu" in lower[:3] and not TITLES.isdisjoint(lower):
            self._columns(self._dmon, dmon_layout(tuple(lower)), host)
        else:
            return host in self._open and "idx" in lower
        return True

    def _columns(self, columns: Columns, layout: Layout, host: str | None) -> None:
        """Open a table of samples."""
        of_blanks = layout if self._split is str.split else None  # only these are read as a grid
        self._open[host] = _Open(
            self._split, layout.fits, lambda rows, places: columns.add(layout, host, rows, places), of_blanks
        )

    def _process_title(self, titles: list[str], host: str | None) -> None:
        """Open a table of pmon. The command may be missing, and it may have blanks."""
        gpu, pid = titles.index("gpu"), titles.index("pid")
        kind, memory, name, time, sm = (
            titles.index(title) if title in titles else None for title in ("type", "fb", "command", "time", "sm")
        )

        def fits(cells: list[str]) -> bool:
            return len(cells) >= len(titles) - 1 and cells[gpu].isdecimal()

        def add(rows: Rows, places: list[Place]) -> None:
            for cells, place in zip(rows, places, strict=True):
                look = self._looks.at((host, cells[gpu], cells[pid]), _cell(cells, time))
                if cells[pid].isdecimal() and (process := self._process((host, cells[gpu], cells[pid]), look, place)):
                    command = None if name is None else " ".join(cells[name:])
                    process.add(_cell(cells, kind), command, _cell(cells, memory) or "-", _cell(cells, sm) or "-")

        self._processes_seen = True
        self._open[host] = _Open(self._split, fits, add)

    def _app_title(self, titles: list[str], host: str | None) -> None:
        """Open a table of `--query-compute-apps`."""
        pid = titles.index("pid")
        gpu, memory, name, time = (
            next((titles.index(title) for title in those if title in titles), None)
            for those in (
                ("gpu_uuid", "gpu_bus_id"),
                ("used_gpu_memory", "used_memory"),
                ("process_name", "name"),
                ("timestamp",),
            )
        )

        def fits(cells: list[str]) -> bool:
            return len(cells) >= len(titles) and cells[pid].isdecimal()

        def add(rows: Rows, places: list[Place]) -> None:
            for cells, place in zip(rows, places, strict=True):
                key = host, _cell(cells, gpu), cells[pid]
                if process := self._process(key, self._looks.at(key, _cell(cells, time)), place):
                    process.add("C", _cell(cells, name), (_cell(cells, memory) or "-").removesuffix(" MiB"))

        self._processes_seen = True
        self._open[host] = _Open(lambda line: [cell.strip() for cell in line.split(",")], fits, add)

    def _process(self, key: tuple[str | None, str | None, str], look: int, place: Place) -> _Process | None:
        """The process of a host, a GPU and a pid, which may be new; None where there are too many."""
        known = self._processes.get(key)
        if known is None and len(self._processes) < _PROCESSES and len(key[2]) < _DIGITS:
            known = self._processes[key] = _Process(place)
            known.first = look
        if known is not None:
            known.last = look
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
                pid=int(pid), kind=process.kind, name=process.name, memory=known_or_none(process.memory),
                sm=process.sm / process.sm_looks if process.sm_looks else None, n=process.n, first=process.first, last=process.last,
                ref=facts.evidence(self._file, *process.place),
            )
            for (host, gpu, pid), process in self._processes.items()
        )  # fmt: skip


def _by_commas(line: str) -> list[str]:
    """The cells of `nvidia-smi dmon --format csv`."""
    return [cell.strip() for cell in line.split(",")]


def _cell(cells: list[str], at: int | None) -> str | None:
    return cells[at] if at is not None and at < len(cells) else None
