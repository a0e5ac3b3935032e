"""Series of samples of one device, with their times."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import isfinite
from typing import Any

HISTORY = 600  # samples kept of each series
MAX_GAP = 15.0  # seconds between two samples above which the time between them counts as unknown


def number(value: Any) -> float | None:
    """Returns a finite number as float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if isfinite(converted) else None


def dicts(value: Any) -> list[dict[str, Any]]:
    """Returns the objects of a list; an empty list for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass
class Series:
    """The newest values of one quantity, oldest first; None where a sample lacked it."""

    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, value: float | None) -> None:
        self.values.append(value)

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


@dataclass
class Device:
    """A GPU, a port or a host: its last record, and series by name."""

    name: str
    now: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    times: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))  # of the values in every series
    sampled_at: float | None = None
    errors: dict[str, int] = field(default_factory=dict)  # growth of each error counter since the watch began
    _means: dict[tuple[str, float], float | None] = field(default_factory=dict)  # of the newest sample

    def add_sample(self, record: dict[str, Any], at: float | None, values: dict[str, float | None]) -> None:
        """Add the record and values of one sample."""
        self.now, self.sampled_at = record, at
        self._means.clear()
        self.times.append(at if at is not None else 0.0)
        for name, value in values.items():
            self.series.setdefault(name, Series()).add(value)

    def recent(self, name: str, since: float) -> list[float]:
        """Returns the known values since a time, newest first."""
        series = self.series.get(name)
        if series is None:
            return []
        pairs = zip(reversed(self.times), reversed(series.values), strict=False)
        return [value for at, value in takewhile(lambda pair: pair[0] >= since, pairs) if value is not None]

    def covers(self, since: float) -> bool:
        """Returns whether samples reach back to a time without a gap above MAX_GAP."""
        later = self.times[-1] if self.times else since
        for at in reversed(self.times):
            if later - at > MAX_GAP:
                return False
            if at <= since:
                return True
            later = at
        return False

    def last(self, name: str) -> float | None:
        series = self.series.get(name)
        return series.last if series is not None else None

    def values(self, name: str) -> Sequence[float | None]:
        """Returns all values of a series, oldest first; one for each of `times`."""
        series = self.series.get(name)
        return series.values if series is not None else ()

    def lately(self, name: str, seconds: float) -> float | None:
        """Returns the mean of the known values of the last seconds; drawing asks often, so it is kept until the next sample."""
        key = name, seconds
        if key not in self._means:
            known = self.recent(name, (self.sampled_at or 0.0) - seconds)
            self._means[key] = sum(known) / len(known) if known else None
        return self._means[key]
