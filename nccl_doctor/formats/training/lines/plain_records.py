"""Neighbouring records of a history that have the same names and nothing but numbers, as columns."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.lines.record_columns import Records
from nccl_doctor.formats.training.metrics import is_of_run, number, speed_key

STEP_KEYS = (
    "step", "global_step", "trainer/global_step", "iteration", "iter", "train_step", "num_updates", "steps", "global_step/max_steps",
)  # fmt: skip
_WHEN_KEYS = ("timestamp", "ts", "wall_time", "time")
# Seconds since the start of a run, where nothing else is called so; `elapsed` and `wall_time` may be those of one step.
_CLOCK_KEYS = (
    "wall_clock",
    "wall_clock_time",
    "wallclock",
    "time_elapsed",
    "elapsed_total",
    "time_total_s",
    "relative_time",
    "_runtime",
)
_YEAR_2001 = 1e9  # seconds since the epoch; smaller numbers are no time stamps
_OTHERS = frozenset(("perf/step_time_seconds", "data_time"))  # of MaxText, and of detectron2
_NUMBERS = frozenset((int, float))
_LEAST = 8  # records from which on columns are faster
_SHOWN = 600  # bytes of a record


class Row(NamedTuple):
    """A record and where it stands."""

    record: dict[str, Any]
    line: bytes
    number: int


class PlainRecords(NamedTuple):
    """Records of one run."""

    records: Records
    values: dict[str, tuple[float, ...]]  # by their names, without the step and the epoch
    are_trained: bool  # whether they tell of the training, and not of a validation


def of_rows(rows: Sequence[Row]) -> PlainRecords | None:
    """The columns of records of the same names; None where each has to be read."""
    names = tuple(rows[0].record)
    key = _step_key(names)
    if key is None or len(rows) < _LEAST:
        return None
    columns = dict(zip(names, zip(*(row.record.values() for row in rows), strict=True), strict=True))
    if not all(_NUMBERS.issuperset(map(type, column)) for column in columns.values()):
        return None
    try:
        values = {name: np.array(column, float) for name, column in columns.items()}
    except OverflowError:  # a whole number that no float can hold
        return None
    step = values[key]
    if not np.isfinite(step).all():
        return None
    own = {name: column for name, column in columns.items() if name not in STEP_KEYS and name != "epoch"}
    lines = np.empty(len(rows), object)
    lines[:] = [row.line[:_SHOWN] for row in rows]
    places = np.array([row.number for row in rows], float)
    records = Records({name: values[name] for name in own}, step, _when(values, len(rows)), places, lines)
    return PlainRecords(records, own, are_trained(rows[0].record))


def moment_of(record: Mapping[str, Any]) -> float | None:
    """The time stamp of a record, or of a clock that began with the run."""
    stamp = next((stamp for key in _WHEN_KEYS if (stamp := number(record.get(key)) or 0.0) > _YEAR_2001), None)
    if stamp is not None:
        return stamp
    return next((clock for key in _CLOCK_KEYS if (clock := number(record.get(key)) or 0.0) > 0), None)


def are_trained(record: Mapping[str, Any]) -> bool:
    """Whether records with these names tell of steps of a training."""
    return "lr" in record or speed_key(record) is not None or any("loss" in key for key in record)


@lru_cache(64)
def _step_key(names: tuple[str, ...]) -> str | None:
    """Under which of its names a record tells the step; None where others of them tell what is read record by record."""
    if not _OTHERS.isdisjoint(names) or any(map(is_of_run, names)):
        return None
    return next((key for key in STEP_KEYS if key in names), None)


def _when(values: Mapping[str, Floats], count: int) -> Floats:
    when = np.full(count, np.nan)
    for key in _WHEN_KEYS:
        if key in values:
            stamps = values[key]
            when = np.where(np.isnan(when) & np.isfinite(stamps) & (stamps > _YEAR_2001), stamps, when)
    for key in _CLOCK_KEYS:
        if key in values:
            clock = values[key]
            when = np.where(np.isnan(when) & np.isfinite(clock) & (clock > 0), clock, when)
    return when
