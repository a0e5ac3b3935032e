"""Step lines in columns, and rows of neighbours that were folded into one."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.steps.step_columns import Name, Steps

Point = tuple[int | None, float | None, float | None, float | None]  # step, seconds, rate, seconds that waited for data
Line = tuple[Point, int, bytes, float | None]  # point, line number, text, when
Texts = npt.NDArray[Any]  # lines, or their places (see `RecentLines`)


class Rows(NamedTuple):
    """Lines, or neighbours folded, in columns; NaN for what no line says."""

    step: Floats
    last_step: Floats
    n: Floats
    seconds: Floats
    rate: Floats
    data: Floats
    spent: Floats  # seconds of all lines that tell what waited for data, and what of them did
    waited: Floats
    slowest: Floats  # times the others
    slowest_step: Floats
    number: Floats  # and text and time of the slowest line
    line: Texts
    when: Floats

    def cut(self, start: int, end: int | None = None, stride: int = 1) -> "Rows":
        return Rows._make(column[start:end:stride] for column in self)

    def joined(self, other: "Rows") -> "Rows":
        return Rows._make(np.concatenate(pair) for pair in zip(self, other, strict=True)) if len(self.n) else other

    def cost(self) -> Floats:
        return _cost(self.seconds, self.rate)

    def folded(self) -> "Rows":
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
        pairs = Rows(
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


class Lines(NamedTuple):
    """Lines in columns."""

    steps: Steps
    number: Floats
    line: Texts

    def chosen(self, which: Numbers | Flags) -> "Lines":
        number = self.number[which]
        return Lines(self.steps.chosen(which, len(number)), number, self.line[which])

    def cut(self, start: int, end: int) -> "Lines":
        return Lines(self.steps.cut(start, end), self.number[start:end], self.line[start:end])


def _cost(seconds: Floats, rate: Floats) -> Floats:
    """Seconds of a step, or something proportional to it."""
    with np.errstate(divide="ignore", over="ignore"):
        by_rate = np.where(rate > 0, 1 / rate, 0.0)
    cost: Floats = np.where(np.isnan(seconds), by_rate, seconds)
    return cost


def _cost_of(steps: Steps) -> Floats:
    """The same of lines."""
    if "rate" in steps:
        return _cost(steps["seconds"], steps["rate"])
    return np.nan_to_num(steps["seconds"], nan=0.0, posinf=np.inf, neginf=-np.inf)


def _typical(a: Floats, b: Floats, faster: Any) -> Floats:
    """The mean of two neighbours; the faster one where they differ by more than half, so that stalls do not smear."""
    apart = np.fmax(a, b) > 1.5 * np.fmin(a, b)
    typical: Floats = np.where(apart | np.isnan(a) | np.isnan(b), faster(a, b), (a + b) / 2)
    return typical


def _median(values: Floats) -> Floats:
    """The median of each row of a matrix, of what is known of it."""
    size = values.shape[1]
    if size == 1:
        return values[:, 0]
    unknown = np.isnan(values)
    if not unknown.any():
        ordered = np.sort(values, axis=1)
        middle = ordered[:, size // 2]
        return middle if size % 2 else (ordered[:, size // 2 - 1] + middle) / 2
    medians = np.full(len(values), np.nan)
    some = ~unknown.all(axis=1)
    if some.any():
        medians[some] = np.nanmedian(values[some], axis=1)
    return medians


def folded(lines: Lines, size: int) -> Rows:
    """Each `size` neighbouring lines as a row: medians of what they say, and the slowest of them."""
    steps = lines.steps
    count = len(lines.number) // size
    unknown = np.full(count, np.nan)
    first = np.arange(count) * size
    cost = _cost_of(steps).reshape(count, size)
    worst = first + np.argmax(cost, axis=1)
    names: tuple[Name, ...] = ("seconds", "rate")
    seconds, rate = (_median(steps[name].reshape(count, size)) if name in steps else unknown for name in names)
    typical = _cost(seconds, rate)
    spent, waited, data = np.zeros(count), np.zeros(count), unknown
    if "data" in steps:
        tells = ~np.isnan(steps["data"]) & (steps["seconds"] >= steps["data"])
        names = ("seconds", "data")
        spent, waited = (np.where(tells, steps[name], 0.0).reshape(count, size).sum(axis=1) for name in names)
        data = np.fmax.reduce(steps["data"].reshape(count, size), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest = np.where(typical > 0, np.maximum(cost.max(axis=1) / typical, 1.0), 1.0)
    step = steps["step"]
    return Rows(
        step[first], step[first + size - 1], np.full(count, float(size)), seconds, rate, data, spent, waited, slowest,
        step[worst], lines.number[worst], lines.line[worst], steps["when"][worst] if "when" in steps else unknown,
    )  # fmt: skip


def lines_of(points: list[Line]) -> Lines:
    columns = np.array([(_exact(step), *others, when) for (step, *others), _, _, when in points], float).T
    names: tuple[Name, ...] = ("step", "seconds", "rate", "data", "when")
    said = {name: column for name, column in zip(names, columns, strict=True) if not np.isnan(column).all()}
    texts = np.empty(len(points), object)
    texts[:] = [line for _, _, line, _ in points]
    return Lines(Steps(len(points), said), np.array([number for _, number, *_ in points], float), texts)


def joined(parts: list[Lines]) -> Lines:
    if len(parts) == 1:
        return parts[0]
    number, line = (np.concatenate([part[index] for part in parts]) for index in (1, 2))
    return Lines(Steps.joined([part.steps for part in parts]), number, line)


def _exact(step: int | None) -> int | None:
    """A step; None for one that is too large for a number."""
    return step if step is not None and abs(step) < 1 << 62 else None


NONE = Rows._make(np.empty(0, object if name == "line" else float) for name in Rows._fields)


class RowParts:
    """Rows that are joined when they are asked for."""

    def __init__(self) -> None:
        self._parts = [NONE]
        self.count = 0

    def add(self, rows: Rows) -> None:
        self._parts.append(rows)
        self.count += len(rows.n)

    def whole(self) -> Rows:
        """All of them."""
        if len(self._parts) > 1:
            self._parts = [Rows._make(np.concatenate(columns) for columns in zip(*self._parts, strict=True))]
        return self._parts[0]

    def fold(self) -> None:
        """Make one row of each two neighbours."""
        self._parts = [self.whole().folded()]
        self.count = len(self._parts[0].n)


def known(column: Floats) -> list[float | None]:
    """The numbers of a column, None where nothing is known."""
    unknown = np.isnan(column)
    if unknown.all():
        return [None] * len(column)
    numbers: list[float | None] = column.tolist()
    for row in np.flatnonzero(unknown).tolist():
        numbers[row] = None
    return numbers


def whole(column: Floats) -> list[int | None]:
    """The same of whole numbers."""
    return [None if number is None else int(number) for number in known(column)]
