"""The numbers of steps whose metrics are printed a line each below the number.

[step=120/10000,epoch=1,eta=2:30:02]
    throughput/device/TPS=12,300
"""

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.formats.training.steps.step_columns import Steps

_FAR = 300  # lines between the number of a step and its last metric
_MOST = 1 << 16  # numbers that wait for metrics
_NUMBER = compiled(rb"\[(?:step|batch)=(\d{1,12})/\d{1,12}[,\]]")


class StepNumbers:
    """The numbers of one log, and in which lines they stand."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def note(self, line: bytes, number: int) -> None:
        """Take a line that may number a step."""
        found = _NUMBER.search(line)
        if found is not None:
            self._found.append((number, int(found[1])))
            self._found = self._found[-_MOST:] if len(self._found) > 2 * _MOST else self._found

    def fill(self, steps: Steps, rows: Numbers, lines: Numbers) -> None:
        """Number some of the steps, which stand in these lines, by the number above each."""
        if not self._found:
            return
        at, numbers = np.array(self._found).T
        above = np.searchsorted(at, lines[rows]) - 1
        known = (above >= 0) & (lines[rows] - at[above] <= _FAR)
        steps.put("step", rows[known], numbers[above[known]].astype(float))
