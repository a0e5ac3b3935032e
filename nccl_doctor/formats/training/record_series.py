"""Steps and scalars of a run from records that a library kept: numbers under names of its own, one record a step."""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scalar
from nccl_doctor.formats.training.metrics import Speed, number, speed_key, speed_of
from nccl_doctor.formats.training.record_folds import fold_values
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.step_formats import Tool
from nccl_doctor.formats.training.step_rows import run_rows, text_of
from nccl_doctor.formats.training.step_series import BULK, Line, Series

MOST = 1024  # rows of a run
_MANY = 32  # lines of a block from which on they are read together
_NAMES = 100  # of numbers in such lines; each is looked for in them
_SCALARS = 1_000  # names of one file
_UNITS = 10_000
_LARGEST = sys.float_info.max
_NUMBERS = frozenset((int, float))
_VALUE = compiled(rb"'([\w/ .-]{1,80})': '?(-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|-?inf|nan)'?[,}]")
Place = tuple[bytes, int]  # the text that evidence shows, and its line or record


class At(NamedTuple):
    """Where and when a step was recorded."""

    step: int | None
    when: float | None  # seconds of any clock
    place: Place


class RecordSeries:
    """The runs of one file while it is read."""

    def __init__(self) -> None:
        self.runs = 0  # that `rows` gave
        self._series: dict[str, Series] = {}
        self._scalars: dict[str, _Scalar] = {}
        self._units: dict[str, str] = {}  # of a metric, as its library declared it
        # when and step of the record before, where nothing else shows the time
        self._before: tuple[float, int] | None = None

    def declare_unit(self, metric: str, unit: str) -> None:
        """Take the unit of a metric."""
        if len(self._units) < _UNITS:
            self._units[metric] = unit

    def of(self, tool: str) -> Series | None:
        """The series of a tool, if it has begun."""
        return self._series.get(tool)

    def speed_of(self, data: Mapping[str, Any]) -> Speed:
        """What a record says of speed, by the units that were declared."""
        return speed_of(data, self._units)

    def record(self, tool: str, step: int | None, when: float | None, data: Mapping[str, Any], place: Place) -> None:
        """Take a step of a run: its own numbers, else the time since the step before."""
        speed = speed_of(data, self._units)
        seconds = speed.seconds
        if seconds is None and speed.rate is None and step is not None and when is not None:
            if self._before is not None and step > self._before[1] and when > self._before[0]:
                seconds = (when - self._before[0]) / (step - self._before[1])
            if self._before is None or step > self._before[1]:
                self._before = when, step
        if seconds is None and speed.rate is None:
            return
        line, number_ = place
        series = self._of(tool, speed)
        series.add((0, step, seconds, speed.rate, speed.data), line[:600], number_, when)

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

    def _fold(self, series: Series, records: Sequence[Mapping[str, Any]], at: Callable[[int], At], first: int) -> bool:
        key, rate = speed_key(records[0]) or ("", False)
        values: list[Any] = [record.get(key) for record in records]
        if set(map(type, values)) != {float} or not min(values) > 0:
            return False

        def read(index: int) -> Line | None:
            speed, (step, when, (line, place)) = self.speed_of(records[index]), at(first + index)
            return (0, step, speed.seconds, speed.rate, speed.data), place, line[:600], when

        return fold_values(series, values, rate, read)

    def summary(self, tool: str, steps: int, seconds: float, speed: Speed, place: Place) -> None:
        """Take a run of which only the whole is known."""
        series = self._of(tool, speed)
        series.add((0, steps, seconds / steps, speed.rate, None), *place)
        series.first_step, series.total = 1, speed.rate

    def note_total(self, tool: str, data: Mapping[str, Any]) -> None:
        """Take the rate of the whole run, which some libraries print at its end."""
        speed = speed_of(data, self._units)
        if speed.rate is not None and tool in self._series:
            self._series[tool].total = speed.rate

    def note_scalars(self, data: Mapping[str, Any], step: float | None, place: Place) -> None:
        """Take all numbers of a record by their names."""
        for name, raw in data.items():
            if (type(raw) is float or type(raw) is int) and name[:1] != "_":
                scalar = self._scalars.get(name)
                if scalar is None:
                    self.note_scalar(name, raw, step, place)
                else:
                    scalar.add(raw, step, place)

    def note_all(self, records: Sequence[Mapping[str, Any]], step: str, place: Callable[[int], Place]) -> None:
        """Take all numbers of records, whose steps have the name `step`; `place` gives the place of one of them."""
        steps = [number(record.get(step)) for record in records]
        if len(set(map(tuple, records))) > 1:
            for at, record in enumerate(records):
                self.note_scalars(record, steps[at], place(at))
            return
        for name, values in zip(records[0], zip(*(record.values() for record in records), strict=True), strict=True):
            if name[:1] != "_":
                self.note_values(name, values, steps, place)

    def note_values(
        self, name: str, values: Sequence[Any], steps: Sequence[float | None], place: Callable[[int], Place]
    ) -> None:
        """Take the values of one name that are numbers, with their steps; `place` gives the place of one of them."""
        if set(map(type, values)) <= _NUMBERS and _are_finite(values):
            self.note_many(name, values, place(len(values) - 1), (steps[0], steps[-1]))
            return
        for at, value in enumerate(values):
            self.note_scalars({name: value}, steps[at], place(at))

    def note_scalar(self, name: str, value: float, step: float | None, place: Place) -> None:
        """Take one number."""
        self.note_many(name, (value,), place, (step, step))

    def note_many(
        self, name: str, values: Sequence[float], place: Place, steps: tuple[float | None, float | None] = (None, None)
    ) -> None:
        """Take numbers of one name, several only where all are finite; the place is that of the last, the steps of both ends."""
        scalar = self._scalars.get(name)
        if scalar is None:
            if len(self._scalars) >= _SCALARS:
                return
            scalar = self._scalars[name] = _Scalar()
        scalar.add(values[0], steps[0], place)
        if len(values) > 1:
            scalar.add_many(values[1:], steps[1], place)

    def _of(self, tool: str, speed: Speed) -> Series:
        found = self._series.get(tool)
        if found is None:
            shown = Tool(b"", tool, speed.unit or "samples/s", speed.scope or "job", lambda _: None)
            found = self._series[tool] = Series(shown, None, None)
        return found

    def take_steps(self, other: "RecordSeries") -> None:
        """Take the steps, not the scalars, of another reading of the file."""
        self._series = other._series

    def rows(self, facts: Facts, file: str, run: int, settings: Settings) -> Iterator[Any]:
        """The runs, numbered from `run`, and the scalars."""
        for series in self._series.values():
            series.end(MOST)
            yield from run_rows(facts, file, run + self.runs, series, settings)
            self.runs += 1
        for name, scalar in self._scalars.items():
            yield scalar.row(facts, file, name)


class _Scalar:
    """The values of one name so far."""

    def __init__(self) -> None:
        self.n = self.not_finite = 0
        self.first: float | None = None
        self.last: float | None = None
        self.lowest = math.inf
        self.highest = -math.inf
        self.first_step: float | None = None
        self.last_step: float | None = None
        self.place: Place = b"", 1

    def add(self, value: float, step: float | None, place: Place) -> None:
        self.n += 1
        self.first_step = step if self.first_step is None else self.first_step
        self.last_step = step
        if not -_LARGEST <= value <= _LARGEST:
            if not self.not_finite:
                self.place = place
            self.not_finite += 1
            return
        finite = self.last = float(value)
        if self.first is None:
            self.first = finite
        if finite < self.lowest:
            self.lowest = finite
        if finite > self.highest:
            self.highest = finite
        if not self.not_finite:
            self.place = place

    def add_many(self, values: Sequence[float], step: float | None, place: Place) -> None:
        """Add finite numbers behind a first one; step and place are those of the last."""
        extremes = (values[0], min(values), max(values), values[-1])
        for value in extremes:
            self.add(value, step, place)
        self.n += len(values) - len(extremes)

    def row(self, facts: Facts, file: str, name: str) -> Scalar:
        known = self.first is not None
        return Scalar(
            file=file, name=name[:200], n=self.n, first_step=_whole(self.first_step), last_step=_whole(self.last_step),
            first=self.first, last=self.last, lowest=self.lowest if known else None,
            highest=self.highest if known else None, not_finite=self.not_finite,
            ref=facts.evidence(file, self.place[1], text_of(self.place[0])),
        )  # fmt: skip


class LossValues:
    """The scalars of one log in the lines of the Hugging Face Trainer (`{'loss': 1.2, 'grad_norm': 0.9, 'epoch': 0.1}`).

    They tell no step. Its source: `src/transformers/trainer_callback.py`.
    """

    LITERAL = b"{'loss': "

    def __init__(self) -> None:
        self._series = RecordSeries()

    def line(self, line: bytes, number: int) -> None:
        """Take the numbers of one line."""
        data = {name.decode(): float(value) for name, value in _VALUE.findall(line, line.find(self.LITERAL))}
        self._series.note_scalars(data, None, (line, number))

    def many(self, block: bytes, offsets: Sequence[int], number: int) -> bool:
        """Take all lines of a block that begins with this line of the log, from the ends of their literals.

        False where they are few, have many names, or hold a number that is none and whose line evidence has to name.
        """
        if len(offsets) < _MANY:
            return False
        lines = [block[at - len(self.LITERAL) + 1 : block.find(b"\n", at) + 1 or len(block)] for at in offsets]
        text = b"".join(lines)
        if b"nan" in text or b"inf" in text:
            return False
        values: dict[bytes, list[float]] = defaultdict(list)
        for name, value in _VALUE.findall(text):
            values[name].append(float(value))
        if len(values) > _NAMES:
            return False
        for name, numbers in values.items():
            last = next(index for index in range(len(lines) - 1, -1, -1) if b"'%b': " % name in lines[index])
            start = block.rfind(b"\n", 0, offsets[last]) + 1
            end = block.find(b"\n", start)
            line = block[start : end if end >= 0 else len(block)]
            self._series.note_many(name.decode(), numbers, (line, number + block.count(b"\n", 0, start)))
        return True

    def rows(self, facts: Facts, file: str, run: int) -> Iterator[Any]:
        """One scalar for each name."""
        yield from self._series.rows(facts, file, run, Settings())


def _are_finite(values: Sequence[float]) -> bool:
    try:
        return all(map(math.isfinite, values))
    except OverflowError:  # a whole number that no float can hold
        return False


def _whole(step: float | None) -> int | None:
    return int(step) if step is not None and abs(step) < 1 << 62 else None
