"""The scalars of one log or file: numbers under names of a library's own, of each step."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nccl_doctor.facts.storable import LARGEST
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scalar
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.metrics import number
from nccl_doctor.formats.training.steps.step_rows import text_of

_SCALARS = 1_000  # names of one file
_NUMBERS = frozenset((int, float))
Place = tuple[bytes, int]  # the text that evidence shows, and its line or record


class Scalars:
    """The numbers of one file while it is read."""

    def __init__(self) -> None:
        self._scalars: dict[str, _Scalar] = {}

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
        kinds = set(map(type, values))
        if kinds.isdisjoint(_NUMBERS):
            return
        floats = _floats(values) if kinds <= _NUMBERS else None
        if floats is not None:
            self.note_many(name, floats, place, (steps[0], steps[-1]))
            return
        for at, value in enumerate(values):
            self.note_scalars({name: value}, steps[at], place(at))

    def note_scalar(self, name: str, value: float, step: float | None, place: Place) -> None:
        """Take one number."""
        scalar = self._scalar(name)
        if scalar is not None:
            scalar.add(value, step, place)

    def note_many(
        self,
        name: str,
        values: Floats,
        place: Callable[[int], Place],
        steps: tuple[float | None, float | None] = (None, None),
    ) -> None:
        """Take numbers of one name in their order; `place` tells that of each, `steps` are those of the first and the last."""
        scalar = self._scalar(name)
        if scalar is not None:
            scalar.add_many(values, place, steps)

    def _scalar(self, name: str) -> "_Scalar | None":
        if name not in self._scalars and len(self._scalars) < _SCALARS:
            self._scalars[name] = _Scalar()
        return self._scalars.get(name)

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """One row for each name."""
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
        if not -LARGEST < value < LARGEST:
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

    def add_many(
        self, values: Floats, place: Callable[[int], Place], steps: tuple[float | None, float | None] = (None, None)
    ) -> None:
        """Add some numbers, of which the first and the last have these steps."""
        self.first_step = steps[0] if self.first_step is None else self.first_step
        self.last_step = steps[1]
        is_finite = np.abs(values) < LARGEST
        finite = values[is_finite]
        self.n += len(values)
        if len(finite):
            self.last = float(finite[-1])
            self.first = float(finite[0]) if self.first is None else self.first
            self.lowest = min(self.lowest, float(finite.min()))
            self.highest = max(self.highest, float(finite.max()))
        if not self.not_finite:
            self.place = place(len(values) - 1 if len(finite) == len(values) else int(np.argmin(is_finite)))
        self.not_finite += len(values) - len(finite)

    def row(self, facts: Facts, file: str, name: str) -> Scalar:
        known = self.first is not None
        return Scalar(
            file=file, name=name[:200], n=self.n, first_step=_whole(self.first_step), last_step=_whole(self.last_step),
            first=self.first, last=self.last, lowest=self.lowest if known else None,
            highest=self.highest if known else None, not_finite=self.not_finite,
            ref=facts.evidence(file, self.place[1], text_of(self.place[0])),
        )  # fmt: skip


def _floats(values: Sequence[float]) -> Floats | None:
    try:
        return np.array(values, float)
    except OverflowError:  # a whole number that no float can hold
        return None


def _whole(step: float | None) -> int | None:
    return int(step) if step is not None and abs(step) < 1 << 62 else None
