"""The clock of a loop that prints how long it has run so far, and not how long a step took: `step 120 loss 2.31 wall_time=96.2`."""

from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_series import Series

COARSE = 10.0  # seconds between two lines of a clock that shows whole seconds


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
