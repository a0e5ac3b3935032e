"""Steps and scalars of a run from records that a library kept: numbers under names of its own, one record a step."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.lines.plain_records import PlainRecords
from nccl_doctor.formats.training.lines.record_columns import Records, by_clock, speeds_of
from nccl_doctor.formats.training.metrics import Speed, speed_key, speed_of
from nccl_doctor.formats.training.record_folds import fold_values
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps import epoch_lines
from nccl_doctor.formats.training.steps.scalars import Place, Scalars
from nccl_doctor.formats.training.steps.step_columns import Name, Steps
from nccl_doctor.formats.training.steps.step_folds import Line, Lines
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import BULK, SETTLE, Series

MOST = 1024  # rows of a run
_UNITS = 10_000
_HELD = 64  # records after which it is known what is logged by turns
_TURNS = 8  # least of them
_ALL = 0.7  # share of the records that have a name of every step; an evaluation now and then has others
_NO_SPEED = Speed(None, None, None, None, None)


class At(NamedTuple):
    """Where and when a step was recorded."""

    step: int | None
    when: float | None  # seconds of any clock
    place: Place


class _Held(NamedTuple):
    """A record that tells no speed of its own."""

    tool: str
    step: int
    when: float
    names: tuple[str, ...]
    speed: Speed
    place: Place


class RecordSeries:
    """The runs of one file while it is read."""

    def __init__(self) -> None:
        self.runs = 0  # that `rows` gave
        self.rank: int | None = None  # of the process that keeps the records, where they tell it
        self.host: str | None = None
        self._series: dict[str, Series] = {}
        self.scalars = Scalars()
        self._units: dict[str, str] = {}  # of a metric, as its library declared it
        # when and step of the record before, where nothing else shows the time
        self._before: tuple[float, int] | None = None
        self._held: list[_Held] = []  # until it is known what shows the pace
        self._led: str | None = None  # the name of that; empty where every record does
        self._totals: dict[str, tuple[Speed, Place]] = {}  # of tools before their first step
        self._telling: set[str] = set()  # tools whose records tell their speed

    def declare_unit(self, metric: str, unit: str) -> None:
        """Take the unit of a metric."""
        if len(self._units) < _UNITS:
            self._units[metric] = unit

    def of(self, tool: str) -> Series | None:
        """The series of a tool, if it has begun."""
        self._lead()
        return self._series.get(tool)

    def knows_pace(self, tool: str, data: Mapping[str, Any]) -> bool:
        """Whether it is known how the time of a step is found for records with these names."""
        return self._led is not None or tool in self._telling or speed_key(data) is not None

    def speed_of(self, data: Mapping[str, Any]) -> Speed:
        """What a record says of speed, by the units that were declared."""
        return speed_of(data, self._units)

    def record(self, tool: str, step: int | None, when: float | None, data: Mapping[str, Any], place: Place) -> None:
        """Take a step of a run: its own numbers, else the time since the step before."""
        speed = speed_of(data, self._units)
        seconds = speed.seconds
        if seconds is not None or speed.rate is not None:
            self._lead()
            self._telling.add(tool)
        elif step is not None and when is not None and tool not in self._telling:
            held = _Held(tool, step, when, tuple(data), speed, place)
            if self._led is not None:
                self._timed(held)
                return
            self._held.append(held)
            if len(self._held) >= _HELD:
                self._lead()
            return
        if seconds is None and speed.rate is None:
            return
        line, number_ = place
        series = self._of(tool, speed)
        series.add((step, seconds, speed.rate, speed.data), line[:600], number_, when)

    def _lead(self) -> None:
        """Take the records that wait. Where different things are logged by turns, each as a step, those of one name show the pace."""
        if self._led is not None or not self._held:
            return
        names = Counter(name for one in self._held for name in one.names if not name.startswith("_"))
        most, times = max(names.items(), key=itemgetter(1), default=("", 0))
        turns = len(self._held) >= _TURNS and times < _ALL * len(self._held)
        self._led = most if turns else ""
        held, self._held = self._held, []
        for one in held:
            self._timed(one)

    def _timed(self, one: _Held) -> None:
        """Take a record that tells no speed: the time since the one before."""
        if self._led and self._led not in one.names:
            return
        before = self._before
        if before is not None and one.step <= before[1]:
            return
        self._before = one.when, one.step
        if before is None or one.when <= before[0]:
            return
        seconds = (one.when - before[0]) / (one.step - before[1])
        line, number_ = one.place
        self._of(one.tool, one.speed).add((one.step, seconds, None, one.speed.data), line[:600], number_, one.when)

    def record_all(self, tool: str, records: Sequence[Mapping[str, Any]], at: Callable[[int], At]) -> None:
        """Take the numbers of many steps in their order. Neighbours in a long run become one row."""
        first = 0
        while first < len(records):
            series = self._series.get(tool)
            some = records[first : first + (series.chunk if series is not None and series.chunk >= BULK else 1)]
            if series is None or len(some) == 1 or not self._fold(series, some, at, first):
                for index, record in enumerate(some, first):
                    self.record(tool, *at(index)[:2], record, at(index).place)
            first += len(some)

    def take_plain(self, tool: str, plain: PlainRecords) -> None:
        """Take records of the same names, and their scalars."""
        records = plain.records
        steps: list[float | None] = records.step.tolist()
        for name, values in plain.values.items():
            if name[:1] != "_":
                self.scalars.note_values(name, values, steps, lambda at: (records.line[at], int(records.number[at])))
        if plain.are_trained:
            self.record_columns(tool, records)

    def record_columns(self, tool: str, records: Records) -> None:
        """Take the numbers of many steps in their order, as `record` takes those of one."""
        records = records.with_steps()
        speeds = speeds_of(records)
        tells = speeds.tells()
        first = int(np.argmax(tells)) if tells.any() else len(tells)
        if tool not in self._telling and first:
            self._by_clock(tool, records.chosen(slice(first)))
        if first == len(tells):
            return
        self._lead()
        self._telling.add(tool)
        told = {name: float(column[first]) for name, column in records.values.items()}
        columns: dict[Name, Floats] = {
            "step": records.step,
            "when": records.when,
            "seconds": speeds.seconds,
            "rate": speeds.rate,
            "data": speeds.data,
        }
        self._put(self._of(tool, self.speed_of(told)), records, columns, tells)

    def _by_clock(self, tool: str, records: Records) -> None:
        """Take steps whose records tell no speed: the time since the step before."""
        timed = records.chosen(~np.isnan(records.when))
        if not len(timed.step):
            return
        self._lead()
        if self._led and self._led not in records.values:
            return
        seconds = by_clock(timed, self._before)
        if seconds is None:
            for step, when, number, line in zip(timed.step, timed.when, timed.number, timed.line, strict=True):
                self.record(tool, int(step), float(when), {}, (line, int(number)))
            return
        self._before = float(timed.when[-1]), int(timed.step[-1])
        known = ~np.isnan(seconds)
        if known.any():
            columns: dict[Name, Floats] = {"step": timed.step, "when": timed.when, "seconds": seconds}
            self._put(self._of(tool, _NO_SPEED), timed, columns, known)

    def _put(self, series: Series, records: Records, columns: dict[Name, Floats], which: npt.NDArray[np.bool_]) -> None:
        said = {name: column[which] for name, column in columns.items()}
        said = {name: column for name, column in said.items() if not np.isnan(column).all()}
        series.put(Lines(Steps(int(which.sum()), said), records.number[which], records.line[which]), SETTLE)

    def _fold(self, series: Series, records: Sequence[Mapping[str, Any]], at: Callable[[int], At], first: int) -> bool:
        key, rate = speed_key(records[0]) or ("", False)
        values: list[Any] = [record.get(key) for record in records]
        if set(map(type, values)) != {float} or not min(values) > 0:
            return False

        def read(index: int) -> Line | None:
            speed, (step, when, (line, place)) = self.speed_of(records[index]), at(first + index)
            return (step, speed.seconds, speed.rate, speed.data), place, line[:600], when

        return fold_values(series, values, rate, read)

    def summary(self, tool: str, steps: int, seconds: float, speed: Speed, place: Place) -> None:
        """Take a run of which only the whole is known."""
        self._lead()
        series = self._of(tool, speed)
        series.begin(1)
        series.add((steps, speed.seconds or seconds / steps, speed.rate, None), *place)
        series.total = speed.rate

    def note_total(self, tool: str, data: Mapping[str, Any], place: Place) -> None:
        """Take the rate of the whole run, which some libraries print at its end; a run without rates of its steps has only this one."""
        speed = speed_of(data, self._units)
        if speed.rate is None:
            return
        self._lead()
        if tool not in self._series:
            self._totals[tool] = speed, place
            return
        series = self._series[tool]
        series.total = speed.rate
        if not series.has_rates:
            self._whole(tool, speed, series.last_step, place)

    def _whole(self, tool: str, speed: Speed, step: int | None, place: Place) -> None:
        self._of(f"{tool}-summary", speed).add((step, None, speed.rate, None), place[0][:600], place[1], None)

    def _of(self, tool: str, speed: Speed) -> Series:
        found = self._series.get(tool)
        if found is None:
            shown = Tool(b"", tool, speed.unit or "samples/s", speed.scope or "job")
            found = self._series[tool] = Series(shown, self.host, self.rank)
        return found

    def epoch(self, number: int, seconds: float, place: Place) -> None:
        """Take an epoch of which the time is known."""
        series = self._series.get(epoch_lines.NAME)
        if series is None:
            tool = Tool(b"", epoch_lines.NAME, epoch_lines.UNIT, "job")
            series = self._series[epoch_lines.NAME] = Series(tool, self.host, self.rank)
        series.add((number, seconds, None, None), place[0][:600], place[1], None)

    def forget_rank(self) -> None:
        """Take the series for that of the job."""
        self.rank = None
        for series in self._series.values():
            series.rank = None

    def take_steps(self, other: "RecordSeries") -> None:
        """Take the steps, not the scalars, of another reading of the file."""
        other._lead()
        self._series = other._series

    def rows(self, facts: Facts, file: str, run: int, settings: Settings) -> Iterator[Any]:
        """The runs, numbered from `run`, and the scalars."""
        self._lead()
        for tool, (speed, place) in self._totals.items():
            if tool not in self._series:
                self._whole(tool, speed, None, place)
        for series in self._series.values():
            series.end(MOST)
            yield from run_rows(facts, file, run + self.runs, series, settings)
            self.runs += 1
        yield from self.scalars.rows(facts, file)
