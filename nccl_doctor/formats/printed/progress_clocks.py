"""The clocks of a loop: the time of the day in front of its lines, and how long it has run so far: `step 120 loss 2.31 wall_time=96.2`."""

import re
from itertools import compress
from typing import NamedTuple

import numpy as np

from nccl_doctor.formats.printed.loop_marks import CLOCK_WITHIN, LoopLines
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_series import STAMP_TEXT, Series

COARSE = 10.0  # seconds between two lines of a clock that shows whole seconds

_TIME = re.compile(r"(?<!\d)(?<!\d:)(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?![\d:])")


class Stamp(NamedTuple):
    """When a line was printed."""

    text: str  # the date with its time; empty of a line that tells the time alone
    start: int  # where the date begins, and ends
    end: int
    seconds: float  # since midnight
    is_fine: bool  # whether it tells less than a second


def stamp_in(line: bytes) -> Stamp | None:
    """The date or the time with which a line begins."""
    text = line[:CLOCK_WITHIN].decode("utf-8", "replace")
    time = _TIME.search(text)
    if time is None:
        return None
    hours, minutes, seconds = map(int, time.groups()[:3])
    of_day = 3600.0 * hours + 60 * minutes + seconds + float(f"0.{time[4] or 0}")
    date = STAMP_TEXT.search(text)
    return Stamp(date[0] if date else "", *(date.span() if date else (0, 0)), of_day, time[4] is not None)


class Clock:
    """Steps by the time that a line tells, as long as it grows from line to line; one that begins again with an epoch starts anew."""

    def __init__(self, tool: Tool) -> None:
        self.series = Series(tool, None, None)
        self._fell = False  # as the time of a step does
        self._span = 0.0, 0.0  # of the first line, and the longest
        self._before: tuple[int, float] | None = None  # step and clock of the last line

    @property
    def is_one(self) -> bool:
        """Whether the times are those of a clock: they never fall a little, and are far from each other."""
        return not self._fell and self._span[1] >= 2 * self._span[0]

    def take_many(self, lines: LoopLines) -> None:
        """Take the lines that tell a time."""
        tells = ~np.isnan(lines.clock)
        columns = (lines.step, lines.clock, lines.has_fine_clock, lines.number)
        steps, clocks, fine, numbers = (column[tells].tolist() for column in columns)
        texts = compress(lines.line, tells.tolist())
        for step, clock, is_fine, number, line in zip(steps, clocks, fine, numbers, texts, strict=True):
            self.take(int(step), clock, line, number, is_fine=is_fine)

    def take(self, step: int, clock: float, line: bytes, number: int, *, is_fine: bool) -> None:
        """Take a line that tells a step and a time, in seconds; `is_fine` where it shows less than one."""
        before = self._before
        self._span = self._span[0] if before is not None else clock, max(self._span[1], clock)
        if before is None or step <= before[0] or clock < before[1]:
            self._fell |= before is not None and before[1] / 2 < clock < before[1]
            self._before = step, clock
            return
        passed = clock - before[1]
        if passed > 0 and (is_fine or passed >= COARSE):
            self.series.add((step, passed / (step - before[0]), None, None), line, number, None)
            self._before = step, clock
