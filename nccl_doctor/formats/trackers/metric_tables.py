"""Tables of metrics with a row a step, as training libraries and their web pages write them in CSV."""

import codecs
import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.number_grid import cell_numbers
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.lines.record_columns import Records
from nccl_doctor.formats.training.metrics import meaning_of
from nccl_doctor.formats.training.record_series import RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.scalars import Place
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import cells_of

_STEP = re.compile(r"(?i)_?step|global[_ ]step|trainer/global_step|iter(?:ation)?")
_WHEN = re.compile(r"(?i)wall[_ ]time|_timestamp|_runtime|relative time \(process\)")
_WORKER = re.compile(r"(?i)(?:(?:global|world)[_ ]?)?rank|host(?:_?name)?|node(?:_?name)?|worker")
_EPOCH_TIME = re.compile(r"(?i)(?:train[_ ]?)?epoch[_ ]?(?:time|duration)(?:[_ ]?[(\[]?(?:s|sec|secs|seconds)[)\]]?)?")
_METRIC = re.compile(r"[\w./() -]{1,120}")
_BLOCK = 1 << 20  # bytes of rows that are taken together
_TIME = "step_time_s"  # of a step whose own title leaves its unit open
_MOST_RUNS = 64  # of a table
_MOST_WORKERS = 512  # of a table, of whose steps each keeps rows of its own
_LOOK = 256  # rows by which columns are judged
_FEW = 4
_LONG = 100.0  # seconds of a step, beyond which a unit has to be named
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"[-+]?(?:{_DIGITS}|nan|inf(?:inity)?)", re.IGNORECASE | re.ASCII)
_NUMBERS = re.compile(rf"(?:[-+]?{_DIGITS})?(?:,(?:[-+]?{_DIGITS})?){{1,1000}}", re.ASCII)  # a whole row
_SIGNS = b"0123456789.,+-eE\n"  # of rows of numbers


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the rows of a table.

    Source: Lightning's CSVLogger (`metrics.csv`), the exports of TensorBoard and of Weights & Biases, Keras's CSVLogger::

        epoch,step,step_time,train_loss
        0,2,0.04392261058092117,0.6528290510177612

    Weights & Biases gives each run columns of its own where a chart shows several; they are read as one file a run, named
    `FILE!RUN`::

        "Step","run-1 - train/step_time","run-1 - train/step_time__MIN","run-1 - train/step_time__MAX","run-2 - train/step_time",…
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    table = MetricTable()
    lines = 0
    for block in blocks(stream, _BLOCK):
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        data, first_line = block.data, block.first
        if first_line == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
            table.look(_lines(b"\n".join(data.split(b"\n", 2 * _LOOK)[: 2 * _LOOK])))
            title, _, data = data.partition(b"\n")
            table.rows(_lines(title), 1)
            first_line = 2
        if not table.columns(data, first_line):
            table.rows(_lines(data), first_line)
        table.is_open = not block.data.endswith(b"\n")
    if table.is_open and table.note is None and table.understood:
        table.note = f"ends without a line end; the row in line {lines:,} may be cut"
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    for run, series in table.runs():
        facts.add(series.rows(facts, f"{name}!{run}" if run else name, first, Settings()))
        first += series.runs
    return Reading(lines, table.understood, table.note)


class MetricTable:
    """One table while it is being read."""

    def __init__(self) -> None:
        self._series = {"": RecordSeries()}  # by run; one without a name where the table is of one run
        self._columns: dict[str, list[int]] = {}  # of each run, where the table has several
        self._measured: dict[str, dict[int, str]] = {}  # of each run: column -> title, without step, clock and worker
        self.understood = 0
        self.note: str | None = None
        self.is_open = False  # its last line has no end
        self._titles: list[str] = []
        self._head: list[str] = []  # as the file has them
        self._step: int | None = None  # None where the rows are epochs
        self._when: int | None = None
        self._workers: dict[str, RecordSeries] = {}
        self._worker: int | None = None  # the column that tells whose step a row is
        self._epoch_time: int | None = None  # the column that tells how long an epoch took, and that of its number
        self._epoch: int | None = None
        self._since: tuple[int, float] | None = None  # the clock of a table of epochs, and seconds of its unit
        self._before: tuple[float, float] | None = None  # the last epoch, and its clock
        self._clock = 1.0  # seconds of a unit of that column
        self._times: dict[
            int, float
        ] = {}  # columns that are the time of a step though their title leaves it open -> seconds of their unit
        self._damaged = 0

    def runs(self) -> Iterator[tuple[str, RecordSeries]]:
        """The runs with their names, which are empty where the table is of one run."""
        yield from self._series.items()
        yield from (("", worker) for worker in self._workers.values())

    def look(self, lines: list[str]) -> None:
        """Decide from the first rows what titles leave open: whether a time runs on or is that of a step, and its unit.

        A time without a unit is that of a step in seconds, unless a clock beside it proves milliseconds, or it would be minutes and
        no clock proves them; one that grows from row to row is a clock.
        """
        listed = [cells for line in lines[: 2 * _LOOK] if line and not line.isspace() and (cells := _cells(line))]
        titles = [_of_run(title)[1] for title in listed[0]] if listed else []
        step = next((at for at, title in enumerate(titles) if _STEP.fullmatch(title)), None)
        known = [row for row in ([_value(cell) for cell in cells] for cells in listed[1:]) if len(row) == len(titles)]
        if step is None:
            self._since = _clock_of_epochs(titles, known)
            return
        meanings = {at: meaning for at, title in enumerate(titles) if (meaning := meaning_of(title)) is not None}
        clock = next((at for at, title in enumerate(titles) if _WHEN.fullmatch(title)), None)
        for at, meaning in meanings.items():
            if meaning.what == "clock" and at != clock:
                values = [value for row in known if (value := row[at]) is not None]
                if not _runs_on(values):
                    self._times[at] = meaning.factor
                elif clock is None:
                    self._when, self._clock = at, meaning.factor
        clock = self._when if clock is None else clock
        for at, meaning in meanings.items():
            if meaning.what != "seconds" or not meaning.open_unit:
                continue
            paired = [
                (number, (row[clock] if clock is not None else None), value)
                for row in known
                if (number := row[step]) is not None and (value := row[at])
            ]
            ratios = [
                value * (number - earlier) / ((when - before) * self._clock)
                for (earlier, before, _), (number, when, value) in pairwise(paired)
                if number > earlier and when is not None and before is not None and when > before
            ]
            proof = median(ratios) if len(ratios) >= _FEW else None
            if proof is not None and 500 < proof < 2000:
                self._times[at] = 1e-3
            elif (
                paired and median(value for *_, value in paired) > _LONG and not (proof is not None and 0.2 < proof < 5)
            ):
                self._times[at] = 0.0  # milliseconds or seconds: nothing tells

    def rows(self, lines: list[str], first: int) -> None:
        """Take lines, of which the first has this number in the file."""
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                self.row(line, number)

    def row(self, line: str, number: int, shown: bytes | None = None) -> None:
        """Take a line with this number in the file; evidence shows `shown` in its place."""
        if self._titles and _NUMBERS.fullmatch(line) is not None:
            cells = line.split(",")
            if len(cells) == len(self._titles):
                place = (line.encode() if shown is None else shown)[:600], number
                self._numbers([float(cell) if cell else None for cell in cells], cells, place)
                return
        cells = _cells(line)
        if not self._titles:
            self._title(cells)
        elif cells != self._head and not self._row(cells, ((line.encode() if shown is None else shown)[:600], number)):
            self._damaged += 1
            self.note = f"{self._damaged} rows are cut or damaged, the last in line {number:,}"

    def columns(self, data: bytes, first: int) -> bool:
        """Take whole lines of numbers together, as `rows` takes them; False where they have to be taken one by one."""
        width, data = len(self._titles), data.replace(b"\r\n", b"\n").removesuffix(b"\n")
        is_plain = (
            width > 1
            and not self._columns
            and self._worker is None
            and self._epoch_time is None
            and self._since is None
        )
        if not is_plain or len({*self._titles, _TIME}) <= width or not data or data.translate(None, _SIGNS):
            return False
        signs = np.frombuffer(data + b"\n", np.uint8)
        ends = np.flatnonzero((signs == ord(",")) | (signs == ord("\n")))
        if len(ends) % width or (signs[ends].reshape(-1, width) == ord("\n")).sum(axis=0).tolist() != [
            *[0] * (width - 1),
            len(ends) // width,
        ]:
            return False
        try:
            numbers = cell_numbers(data, ends, float)
        except ValueError:
            return False
        if numbers is None:
            return False
        said = numbers.reshape(-1, width)
        lines = np.empty(len(said), object)
        lines[:] = [line[:600] for line in data.split(b"\n")]
        self.understood += len(said)
        self._take_columns(said, np.arange(first, first + len(said), dtype=float), lines)
        return True

    def _take_columns(self, said: Floats, number: Floats, line: npt.NDArray[np.object_]) -> None:
        """Take what rows say of the only run, as `_take` takes one."""
        unknown = np.full(len(said), np.nan)
        step = unknown if self._step is None else said[:, self._step]
        when = unknown if self._when is None else said[:, self._when] * self._clock
        values = {title: said[:, at] for at, title in self._measured[""].items()}
        some = ~np.logical_and.reduce([np.isnan(column) for column in values.values()])
        for at, factor in self._times.items():
            values.pop(self._titles[at], None)
            if factor:
                values[_TIME] = said[:, at] * factor
        for title, column in values.items():
            if title[:1] != "_" and len(which := np.flatnonzero(~np.isnan(column))):
                steps = _known(step[which[0]]), _known(step[which[-1]])
                self._series[""].scalars.note_many(title, column[which], _places(line[which], number[which]), steps)
        self._series[""].record_columns("metrics-table", Records(values, step, when, number, line).chosen(some))

    def _title(self, cells: list[str]) -> None:
        self._titles = [_of_run(title)[1] for title in cells]
        self._head = cells
        of_runs: dict[str, list[int]] = {}
        for at, title in enumerate(cells):
            if run := _of_run(title)[0]:
                of_runs.setdefault(run.replace("/", "_"), []).append(at)
        if len(of_runs) > 1:
            self._columns = dict(list(of_runs.items())[:_MOST_RUNS])
            self._series = {run: RecordSeries() for run in self._columns}
            if len(of_runs) > _MOST_RUNS:
                self.note = f"has {len(of_runs)} runs, of which the first {_MOST_RUNS} were read"
        self._step = next((at for at, title in enumerate(cells) if _STEP.fullmatch(title)), None)
        if self._step is not None and self._when is None:
            self._when = next((at for at, title in enumerate(cells) if _WHEN.fullmatch(title)), None)
        if self._step is not None and not self._columns:
            self._worker = next((at for at, title in enumerate(cells) if _WORKER.fullmatch(title)), None)
        if not self._columns:
            self._epoch_time = next((at for at, title in enumerate(cells) if _EPOCH_TIME.fullmatch(title)), None)
            self._epoch = next((at for at, title in enumerate(cells) if title.lower() == "epoch"), None)
        others = (self._step, self._when, self._worker)
        for run in self._series:
            columns = self._columns.get(run, range(len(cells)))
            self._measured[run] = {at: self._titles[at] for at in columns if at not in others}

    def _row(self, cells: list[str], place: Place) -> bool:
        """Take a row; False where it is no whole one."""
        if len(cells) != len(self._titles):
            return False
        values = [_value(cell) for cell in cells]
        step = values[self._step] if self._step is not None else None
        cut = (
            value is None and bool(cell) and at != self._worker
            for at, (value, cell) in enumerate(zip(values, cells, strict=True))
        )
        if any(cut) and not step:
            return False
        self._numbers(values, cells, place)
        return True

    def _numbers(self, values: list[float | None], cells: list[str], place: Place) -> None:
        """Take the numbers of a whole row."""
        self.understood += 1
        seconds = values[self._epoch_time] if self._epoch_time is not None else None
        epoch = values[self._epoch] if self._epoch is not None else None
        if self._since is not None and epoch is not None and (when := values[self._since[0]]) is not None:
            before, self._before = self._before, (epoch, when)
            if before is not None and epoch == before[0] + 1:
                seconds = (when - before[1]) * self._since[1]
        if seconds is not None and seconds > 0 and epoch is not None and 0 <= epoch < 1 << 32:
            self._series[""].epoch(int(epoch), seconds, place)
        for run, series in self._series.items():
            tool = f"metrics-table {run}"[:80].rstrip()
            worker = series if self._worker is None else self._of_worker(cells[self._worker])
            self._take(series, worker, tool, self._measured[run], values, place)

    def _of_worker(self, label: str) -> RecordSeries:
        """The steps of the rank or host that a row names; those of too many are taken for the job's."""
        found = self._workers.get(label)
        if found is None:
            if not label or len(self._workers) >= _MOST_WORKERS:
                return self._series[""]
            found = self._workers[label] = RecordSeries()
            if "rank" in self._titles[self._worker or 0].lower() and label.isdecimal() and len(label) < 8:
                found.rank = int(label)
            else:
                found.host = label[:80]
        return found

    def _take(
        self,
        series: RecordSeries,
        worker: RecordSeries,
        tool: str,
        measured: dict[int, str],
        values: list[float | None],
        place: Place,
    ) -> None:
        """Take what a row says of one run."""
        data = {title: value for at, title in measured.items() if (value := values[at]) is not None}
        if not data:
            return
        for at, factor in self._times.items():
            if (not self._columns or at in measured) and (value := values[at]) is not None:
                data.pop(self._titles[at], None)
                if factor:
                    data[_TIME] = value * factor
        step = values[self._step] if self._step is not None else None
        series.scalars.note_scalars(data, step, place)
        if step is not None and abs(step) < 1 << 62:
            when = values[self._when] if self._when is not None else None
            worker.record(tool, int(step), when * self._clock if when is not None else None, data, place)


def _of_run(title: str) -> tuple[str, str]:
    """Run and metric of a title as Weights & Biases writes it; no run for others, and for the extremes that stand beside a metric."""
    run, _, metric = title.rpartition(" - ")
    if not run or len(run) > 200 or _METRIC.fullmatch(metric) is None or metric.endswith(("__MIN", "__MAX")):
        return "", title
    return run, metric


def _clock_of_epochs(titles: list[str], known: list[list[float | None]]) -> tuple[int, float] | None:
    """The column that shows the time since the start in a table of epochs, and seconds of its unit."""
    if "epoch" not in map(str.lower, titles) or any(_EPOCH_TIME.fullmatch(title) for title in titles):
        return None
    for at, title in enumerate(titles):
        meaning = meaning_of(title)
        values = [value for row in known if (value := row[at]) is not None]
        if meaning is not None and meaning.what == "clock" and _runs_on(values):
            return at, meaning.factor
    return None


def _runs_on(values: list[float]) -> bool:
    """Whether numbers grow from row to row, as a clock does."""
    grown = sum(after > before for before, after in pairwise(values))
    return len(values) >= _FEW and grown >= 0.9 * (len(values) - 1) and values[-1] > 2 * values[0]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in cells_of(line)]


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _places(line: npt.NDArray[np.object_], number: Floats) -> Callable[[int], Place]:
    return lambda at: (line[at], int(number[at]))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _value(cell: str) -> float | None:
    return float(cell) if _NUMBER.fullmatch(cell) else None
