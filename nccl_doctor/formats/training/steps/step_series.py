"""One series of step lines while it grows: repeated lines left out, neighbours folded when it gets long."""

import re
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.step_columns import Floats, Steps
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_repeats import StepRepeats

KEEP = 1_024  # rows that a long series keeps at least
BULK = 8  # lines that become one row from which on records need not be read each
_SETTLE = 1_024  # lines that wait until they are folded together
_MEDIAN = 256  # lines of which a median is taken; rows of more lines are folded from such rows
_STAMP_TEXT = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")
Point = tuple[int | None, float | None, float | None, float | None]  # step, seconds, rate, seconds that waited for data
Line = tuple[Point, int, bytes, float | None]  # point, line number, text, when
Texts = npt.NDArray[np.object_]


def stamp_of(text: str) -> float | None:
    """Seconds since the epoch of the first date in a line, read as UTC."""
    match = _STAMP_TEXT.search(text[:200])
    return iso_seconds(match[0]) if match is not None else None


class Row(NamedTuple):
    """One line, or neighbours folded; None for what no line says."""

    step: int | None
    last_step: int | None
    n: int
    seconds: float | None
    rate: float | None
    data: float | None
    spent: float | None  # seconds of all lines that tell what waited for data, and what of them did
    waited: float | None
    slowest: float  # times the others
    slowest_step: int | None
    number: int  # and text and time of the slowest line
    line: bytes
    when: float | None


class _Rows(NamedTuple):
    """Rows in columns, NaN for what no line says."""

    step: Floats
    last_step: Floats
    n: Floats
    seconds: Floats
    rate: Floats
    data: Floats
    spent: Floats
    waited: Floats
    slowest: Floats
    slowest_step: Floats
    number: Floats
    line: Texts
    when: Floats

    def cut(self, start: int, end: int | None = None, stride: int = 1) -> "_Rows":
        return _Rows._make(column[start:end:stride] for column in self)

    def joined(self, other: "_Rows") -> "_Rows":
        return _Rows._make(np.concatenate(pair) for pair in zip(self, other, strict=True)) if len(self.n) else other

    def cost(self) -> Floats:
        return _cost(self.seconds, self.rate)

    def folded(self) -> "_Rows":
        """Each two neighbours as one row; the last one stays alone where it has no neighbour."""
        size = len(self.n) // 2 * 2
        a, b = self.cut(0, size, 2), self.cut(1, size, 2)
        mine, its = a.cost() * a.slowest, b.cost() * b.slowest
        worse = its > mine
        slowest_step, number, line, when = (
            np.where(worse, column_b, column_a)
            for column_a, column_b in zip(
                (a.slowest_step, a.number, a.line, a.when), (b.slowest_step, b.number, b.line, b.when), strict=True
            )
        )
        seconds = _typical(a.seconds, b.seconds, np.fmin)
        rate = _typical(a.rate, b.rate, np.fmax)
        cost = _cost(seconds, rate)
        with np.errstate(divide="ignore", invalid="ignore"):
            slowest = np.where(cost > 0, np.maximum(np.maximum(mine, its) / cost, 1.0), 1.0)
        pairs = _Rows(
            a.step,
            b.last_step,
            a.n + b.n,
            seconds,
            rate,
            np.fmax(a.data, b.data),
            a.spent + b.spent,
            a.waited + b.waited,
            slowest,
            slowest_step,
            number,
            line,
            when,
        )
        return pairs.joined(self.cut(size)) if size < len(self.n) else pairs

    def each(self) -> Iterator[Row]:
        for step, last, n, seconds, rate, data, spent, waited, slowest, worst, number, line, when in zip(
            *(column.tolist() for column in self), strict=True
        ):
            yield Row(
                _whole(step), _whole(last), int(n), _known(seconds), _known(rate), _known(data), spent or None,
                waited if spent else None, slowest, _whole(worst), int(number), line, _known(when),
            )  # fmt: skip


class _Lines(NamedTuple):
    """Lines in columns."""

    steps: Steps
    number: Floats
    line: Texts
    when: Floats

    def chosen(self, which: npt.NDArray[Any] | slice) -> "_Lines":
        steps = Steps(*(column[which] for column in self.steps))
        return _Lines(steps, self.number[which], self.line[which], self.when[which])


def _cost(seconds: Floats, rate: Floats) -> Floats:
    """Seconds of a step, or something proportional to it."""
    with np.errstate(divide="ignore"):
        by_rate = np.where(rate > 0, 1 / rate, 0.0)
    cost: Floats = np.where(np.isnan(seconds), by_rate, seconds)
    return cost


def _typical(a: Floats, b: Floats, faster: Any) -> Floats:
    """The mean of two neighbours; the faster one where they differ by more than half, so that stalls do not smear."""
    apart = np.fmax(a, b) > 1.5 * np.fmin(a, b)
    typical: Floats = np.where(apart | np.isnan(a) | np.isnan(b), faster(a, b), (a + b) / 2)
    return typical


def _median(values: Floats) -> Floats:
    """The median of each row of a matrix, of what is known of it."""
    unknown = np.isnan(values)
    if not unknown.any():
        return np.median(values, axis=1)
    medians = np.full(len(values), np.nan)
    some = ~unknown.all(axis=1)
    medians[some] = np.nanmedian(values[some], axis=1)
    return medians


def _folded(lines: _Lines, size: int) -> _Rows:
    """Each `size` neighbouring lines as a row: medians of what they say, and the slowest of them."""
    steps = lines.steps
    count = len(lines.number) // size
    first = np.arange(count) * size
    cost = _cost(steps.seconds, steps.rate).reshape(count, size)
    worst = first + np.argmax(cost, axis=1)
    seconds, rate = (_median(column.reshape(count, size)) for column in (steps.seconds, steps.rate))
    typical = _cost(seconds, rate)
    tells = ~np.isnan(steps.data) & (steps.seconds >= steps.data)
    spent, waited = (
        np.where(tells, column, 0.0).reshape(count, size).sum(axis=1) for column in (steps.seconds, steps.data)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest = np.where(typical > 0, np.maximum(cost.max(axis=1) / typical, 1.0), 1.0)
    return _Rows(
        steps.step[first], steps.step[first + size - 1], np.full(count, float(size)), seconds, rate,
        np.fmax.reduce(steps.data.reshape(count, size), axis=1), spent, waited, slowest, steps.step[worst], lines.number[worst],
        lines.line[worst], lines.when[worst],
    )  # fmt: skip


def _lines(points: list[Line]) -> _Lines:
    columns = np.array([(_exact(step), *others) for (step, *others), *_ in points], float).T
    steps = Steps.empty(len(points))._replace(step=columns[0], seconds=columns[1], rate=columns[2], data=columns[3])
    texts = np.empty(len(points), object)
    texts[:] = [line for _, _, line, _ in points]
    when = np.array([when for *_, when in points], float)
    return _Lines(steps, np.array([number for _, number, *_ in points], float), texts, when)


_NONE = _Rows._make(np.empty(0, object if name == "line" else float) for name in _Rows._fields)


class Series:
    """Steps that one process printed with one tool."""

    def __init__(self, tool: Tool, host: str | None, rank: int | None) -> None:
        self.tool = tool
        self.host = host
        self.rank = rank
        self.batch: int | None = None
        self.total: float | None = None
        self.losses = Losses()
        self.chunk = 1  # lines that become one row
        self._points = 0
        self._rows = _NONE
        self._few = _NONE  # rows that are not as long yet
        self._waiting: list[_Lines] = []  # what `put` gave
        self._single: list[Line] = []  # what `add` gave
        self._count = 0  # of both
        self._rest: _Lines | None = None  # fewer lines than a row has
        self._scale = np.nan  # of the last line
        self._overflows: list[tuple[int, bytes]] = []
        self._repeats = StepRepeats(tool.name == "tqdm")

    @property
    def first_step(self) -> int | None:
        """The step with which it began."""
        return self._repeats.first

    def begin(self, step: int) -> None:
        """Take the first step of a series of which only the last one is known."""
        self._repeats.first = step

    @property
    def last_step(self) -> int | None:
        """The step of the last line."""
        return self._repeats.last

    @property
    def points(self) -> int:
        """Steps so far."""
        self._settle()
        return self._points

    def rows(self) -> Iterator[Row]:
        """The rows of a series that was ended."""
        return self._rows.each()

    def add(self, point: Point, line: bytes, number: int, when: float | None = None) -> None:
        """Append a step."""
        self._single.append((point, number, line, when))
        self._count += 1
        if self._count >= _SETTLE:
            self._settle()

    def put(self, steps: Steps, number: Floats, line: Texts) -> None:
        """Append the steps of lines."""
        if self._single:
            self._settle()
        self._waiting.append(_Lines(steps, number, line, np.full(len(number), np.nan)))
        self._count += len(number)
        if self._count >= _SETTLE:
            self._settle()

    def overflow(self, line: bytes, number: int) -> None:
        """Take a lowered loss scale, which some programs print beside the step lines."""
        self._overflows.append((number, line))
        if len(self._overflows) >= _SETTLE:
            self._settle()

    def follows(self, step: int | None) -> bool:
        """True where a step goes on from the last one."""
        self._settle()
        return step is not None and (self.last_step is None or step > self.last_step)

    def add_many(self, first: Line, middle: Line, slowest: Line, last: Line, count: int) -> None:
        """Append a row of `count` records, of which these were read."""
        self._settle()
        self._finish()
        row = _folded(_lines([slowest, middle, middle]), 3)
        ends = [np.array([line[0][0]], float) for line in (first, last)]
        values = _lines([middle]).steps
        row = row._replace(
            step=ends[0], last_step=ends[1], n=np.array([float(count)]), seconds=values.seconds, rate=values.rate
        )
        self._repeats.last = last[0][0]
        self._points += count
        self._append(row)

    def _settle(self) -> None:
        """Fold the lines that wait."""
        lines = self._new()
        if lines is not None:
            if self._rest is not None:
                lines = _joined([self._rest, lines])
                self._rest = None
            while lines is not None and len(lines.number) >= (size := min(self.chunk, _MEDIAN)):
                ratio = self.chunk // size
                room = (2 * KEEP - len(self._rows.n)) * self.chunk - len(self._few.n) * size
                count = min(len(lines.number), room) // size * size
                self._few = self._few.joined(_folded(lines.chosen(slice(count)), size))
                lines = lines.chosen(slice(count, None)) if count < len(lines.number) else None
                full = len(self._few.n) // ratio * ratio
                if full:
                    rows = reduce(lambda rows, _: rows.folded(), range(ratio.bit_length() - 1), self._few.cut(0, full))
                    self._few = self._few.cut(full)
                    self._append(rows)
            self._rest = lines

    def _new(self) -> _Lines | None:
        """The lines that wait, without those that another rank has printed too; takes what they say of losses."""
        if self._single:
            self._waiting.append(_lines(self._single))
            self._single = []
        overflows, self._overflows = self._overflows, []
        if not self._waiting:
            self._note_losses([], overflows)
            return None
        lines = _joined(self._waiting)
        self._waiting, self._count = [], 0
        kept = self._repeats.new(lines.steps)
        if kept is not None:
            lines = lines.chosen(kept)
        self._points += len(lines.number)
        steps = lines.steps
        if not np.isnan(steps.batch).all():
            self.batch = int(steps.batch[~np.isnan(steps.batch)][-1])
        said = np.flatnonzero(~np.isnan(steps.scale))
        scales = np.append(self._scale, steps.scale[said])
        changed = np.zeros(len(lines.number), bool)
        changed[said[scales[1:] != scales[:-1]]] = True
        self._scale = scales[-1]
        which = np.flatnonzero(changed | (steps.lost > 0))
        of = lines.chosen(which)
        steps_said = [_whole(step) for step in of.steps.step.tolist()]
        self._note_losses(list(zip(of.number.tolist(), of.line.tolist(), steps_said, strict=True)), overflows)
        return lines if len(lines.number) else None

    def _note_losses(self, lines: list[tuple[float, bytes, int | None]], overflows: list[tuple[int, bytes]]) -> None:
        events = [
            *((number, line, True, step) for number, line, step in lines),
            *((*one, False, None) for one in overflows),
        ]
        for number, line, is_step, step in sorted(events, key=lambda event: event[0]):
            if is_step:
                self.losses.line(self.tool.name, step, line, int(number))
            else:
                self.losses.overflow(line, int(number))

    def _append(self, rows: _Rows) -> None:
        self._rows = self._rows.joined(rows)
        if len(self._rows.n) >= 2 * KEEP:
            self._rows = self._rows.folded()
            self.chunk *= 2

    def _finish(self) -> None:
        """Make rows of what is left, though they are shorter."""
        few = self._few
        self._few = _NONE
        if self._rest is not None:
            few = few.joined(_folded(self._rest, len(self._rest.number)))
            self._rest = None
        while len(few.n) > 1:
            few = few.folded()
        if len(few.n):
            self._rows = self._rows.joined(few)

    def end(self, most: int) -> None:
        """Close the series: fold neighbours until there are at most `most` rows."""
        self._settle()
        self._finish()
        while len(self._rows.n) > most:
            self._rows = self._rows.folded()

    def seconds(self) -> list[float]:
        """What the rows so far say of seconds."""
        self._settle()
        known = self._rows.seconds
        return known[~np.isnan(known)].tolist()  # type: ignore[no-any-return]

    def scope(self, gpus: int | None) -> str:
        """What one rate counts. tf_cnn_benchmarks under Horovod prints that of its process and the total of all at the end."""
        if self.tool.name == "tf-cnn-benchmarks" and self.total and gpus and gpus > 1:
            rates = sorted(self._rows.rate[self._rows.rate > 0].tolist())
            if rates and self.total > 1.5 * rates[len(rates) // 2]:
                return "process"
        return self.tool.scope


def _joined(parts: list[_Lines]) -> _Lines:
    if len(parts) == 1:
        return parts[0]
    steps = Steps(*(np.concatenate(column) for column in zip(*(part.steps for part in parts), strict=True)))
    return _Lines(steps, *(np.concatenate([part[index] for part in parts]) for index in (1, 2, 3)))


def _exact(step: int | None) -> int | None:
    """A step; None for one that is too large for a number."""
    return step if step is not None and abs(step) < 1 << 62 else None


def _known(value: float) -> float | None:
    return None if value != value else value


def _whole(value: float) -> int | None:
    return None if value != value else int(value)
