"""Times and bandwidths of collectives that a profiler plug-in of NCCL measured, summed up a rank, kind and size."""

import statistics
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import InspectorColl

_KEPT = 2000  # values of one series that a median is taken of; then every second one is dropped
_SERIES = 20_000


class Kind(NamedTuple):
    """What is summed up in one row."""

    host: str | None
    pid: int | None
    comm: str
    comm_name: str | None
    rank: int
    nranks: int | None
    nodes: int | None
    op: str
    size: int
    timing: str | None


class _Series:
    """The values of one kind, thinned out evenly when there are many."""

    def __init__(self, ref: int) -> None:
        self.ref = ref
        self.n = 0
        self.highest = 0.0
        self.lowest: float | None = None
        self.values: list[tuple[float, float | None, float | None]] = []
        self._step = 1

    def add(self, time: float, algbw: float | None, busbw: float | None) -> None:
        self.highest = max(self.highest, time)
        if busbw is not None:
            self.lowest = busbw if self.lowest is None else min(self.lowest, busbw)
        if self.n % self._step == 0:
            self.values.append((time, algbw, busbw))
            if len(self.values) > _KEPT:
                self.values, self._step = self.values[::2], self._step * 2
        self.n += 1

    def median(self, column: int) -> float | None:
        """The median of times (0), algorithm (1) or bus bandwidths (2); None where none is known."""
        known = [value for values in self.values if (value := values[column]) is not None]
        return statistics.median(known) if known else None


class CollectiveSeries:
    """Collects the measurements of one file."""

    def __init__(self, facts: Facts, name: str) -> None:
        self._facts, self._name = facts, name
        self._series: dict[Kind, _Series] = {}

    def add(self, kind: Kind, time: float, algbw: float | None, busbw: float | None, number: int, line: str) -> None:
        """Add one collective: its time in us, its bandwidths in GB/s, and the line that says so."""
        known = self._series.get(kind)
        if known is None:
            if len(self._series) >= _SERIES:
                return
            known = self._series[kind] = _Series(self._facts.evidence(self._name, number, line))
        known.add(time, algbw, busbw)

    def write(self) -> None:
        """Add a row for each kind."""
        self._facts.add(
            InspectorColl(
                **kind._asdict(), n=one.n, time_median=one.median(0) or 0.0, time_max=one.highest, algbw_median=one.median(1),
                busbw_median=one.median(2), busbw_min=one.lowest, ref=one.ref,
            )
            for kind, one in self._series.items()
        )  # fmt: skip
        self._facts.mark_covered("inspector_coll")
