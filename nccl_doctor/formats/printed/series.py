"""The values of each name in one file, and which of them are the lowest and the highest."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.robust import median
from nccl_doctor.common.text_keys import Flags
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import PrintedNumber
from nccl_doctor.formats.printed.units import kind_of, unit_of
from nccl_doctor.formats.training.lines.line_numbers import Floats

_NAMES = 100  # of one file
_VALUES = 20_000  # of one name, for its median
_SHOWN = 300  # bytes of a line
_MOMENTS = (1e9, 1e12, 1e15)  # seconds, ms and µs since 1970, from 2001 to 2033


class Place(NamedTuple):
    """Where a value stands."""

    number: int
    line: bytes
    label: str | None = None  # what the value belongs to: a host, a rank, a size


class _Extreme(NamedTuple):
    value: float
    place: Place


class _Values:
    def __init__(self, name: str, unit: str, kind: str | None) -> None:
        self.name, self.unit, self.kind = name, unit, kind
        self.values = array("d")
        self.n = 0
        self.lowest: _Extreme | None = None
        self.highest: _Extreme | None = None
        self.last: _Extreme | None = None
        self.first = 0  # line

    def add(self, value: float, place: Place) -> None:
        self.n += 1
        if len(self.values) < _VALUES:
            self.values.append(value)
        self._note(_Extreme(value, place))

    def add_many(self, values: Floats, places: Sequence[Place]) -> None:
        self.n += len(values)
        self.values.extend(values[: max(_VALUES - len(self.values), 0)].tolist())
        for at in (int(values.argmin()), int(values.argmax()), 0, len(values) - 1):
            self._note(_Extreme(float(values[at]), places[at]))

    def _note(self, one: _Extreme) -> None:
        """Take what may be an extreme; lines may come in another order."""
        number = one.place.number
        self.first = min(self.first, number) if self.last is not None else number
        if self.last is None or number >= self.last.place.number:
            self.last = one
        if self.lowest is None or (one.value, number) < (self.lowest.value, self.lowest.place.number):
            self.lowest = one
        if self.highest is None or (-one.value, number) < (-self.highest.value, self.highest.place.number):
            self.highest = one


class NumberSeries:
    """All names of one file."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], _Values] = {}

    def add(self, name: str, unit: str, value: float, place: Place) -> bool:
        """Take a value; False for a moment in time, and where the file has too many names."""
        if not unit and any(low <= value < 2 * low for low in _MOMENTS):
            return False
        found = self._of(name, unit)
        if found is None:
            return False
        found.add(value, place)
        return True

    def add_many(self, name: str, unit: str, values: Floats, places: Sequence[Place]) -> Flags:
        """Take values in the order of their lines; which of them were taken, as `add` says."""
        is_moment = np.zeros(len(values), bool)
        if not unit:
            for low in _MOMENTS:
                is_moment |= (low <= values) & (values < 2 * low)
        found = None if is_moment.all() else self._of(name, unit)
        if found is None:
            return np.zeros(len(values), bool)
        if is_moment.any():
            places = [place for place, is_one in zip(places, is_moment.tolist(), strict=True) if not is_one]
        found.add_many(values[~is_moment], places)
        return ~is_moment

    def _of(self, name: str, unit: str) -> _Values | None:
        found = self._names.get((name, unit))
        if found is None and len(self._names) < _NAMES:
            found = self._names[name, unit] = _Values(name, unit, kind_of(name, unit))
        return found

    def rows(self, facts: Facts, file: str) -> Iterator[PrintedNumber]:
        """One row a name, in the order of their first lines."""

        def ref(extreme: _Extreme) -> int:
            place = extreme.place
            return facts.evidence(file, place.number, place.line[:_SHOWN].decode("utf-8", "replace").strip())

        for one in sorted(self._names.values(), key=lambda one: one.first):
            if one.lowest is None or one.highest is None or one.last is None:
                continue
            if (
                one.kind == "time" and not one.unit and one.lowest.value == one.highest.value == 0
            ):  # of a limit that was not set
                continue
            yield PrintedNumber(
                file=file, name=one.name, unit=one.unit or unit_of(one.name), kind=one.kind, n=one.n,
                median=median(one.values), last=one.last.value, last_label=one.last.place.label,
                lowest=one.lowest.value, lowest_label=one.lowest.place.label,
                highest=one.highest.value, highest_label=one.highest.place.label,
                worst_ref=ref(one.lowest if one.kind == "rate" else one.highest), ref=ref(one.last),
            )  # fmt: skip
