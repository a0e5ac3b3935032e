"""Steps from columns of numbers: what many records say of speed at once."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.metrics import meaning_of

_LARGEST_STEP = float(1 << 62)


class Records(NamedTuple):
    """Neighbouring records of a run, one entry each; NaN for what one does not say."""

    values: Mapping[str, Floats]  # by the name of the metric
    step: Floats
    when: Floats  # seconds of any clock
    number: Floats  # lines of the file
    line: npt.NDArray[np.object_]  # their texts as bytes

    def chosen(self, which: npt.NDArray[np.bool_] | slice) -> "Records":
        """Some of them."""
        values = {name: column[which] for name, column in self.values.items()}
        return Records(values, self.step[which], self.when[which], self.number[which], self.line[which])

    def with_steps(self) -> "Records":
        """Those that name a step, which is a whole number."""
        named = np.abs(self.step) < _LARGEST_STEP
        chosen = self if named.all() else self.chosen(named)
        return chosen._replace(step=np.trunc(chosen.step))


class Speeds(NamedTuple):
    """What records say of speed, as `metrics.Speed` is that of one; NaN where one does not."""

    rate: Floats
    seconds: Floats
    data: Floats

    def tells(self) -> npt.NDArray[np.bool_]:
        """Which of the records tell how fast a step was."""
        told: npt.NDArray[np.bool_] = ~(np.isnan(self.rate) & np.isnan(self.seconds))
        return told


def speeds_of(records: Records) -> Speeds:
    """Rates and times among the metrics of records."""
    rate, seconds, speed, data = (np.full(len(records.step), np.nan) for _ in range(4))
    into = {"seconds": seconds, "speed": speed, "rate": rate, "data": data}
    for name, column in records.values.items():
        meaning = meaning_of(name)
        if meaning is None or meaning.what not in into:
            continue
        said = into[meaning.what]
        known = np.isfinite(column) & (column > 0)
        if meaning.what == "rate":
            known &= np.isnan(said)
        elif meaning.what != "data":
            known &= ~(said > 0)
        said[known] = column[known] * meaning.factor
    by_speed = ~(seconds > 0) & (speed > 0)
    seconds[by_speed] = 1 / speed[by_speed]
    return Speeds(rate, seconds, data)


def by_clock(records: Records, before: tuple[float, int] | None) -> Floats | None:
    """The time of each step since the one before; None where steps do not grow from record to record, or a clock is missing."""
    if not (np.diff(records.step) > 0).all() or np.isnan(records.when).any():
        return None
    when, step = (
        (records.when, records.step)
        if before is None
        else (
            np.concatenate(([earlier], column))
            for earlier, column in zip(before, (records.when, records.step), strict=True)
        )
    )
    passed, steps = np.diff(when), np.diff(step)
    seconds = np.full(len(records.step), np.nan)
    if (steps <= 0).any():
        return None
    seconds[len(seconds) - len(passed) :] = np.where(passed > 0, passed / steps, np.nan)
    return seconds
