"""Lines of NVIDIA's DLLogger: `DLLL {…}` of its file, and `DLL …` of what it prints."""

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

LITERAL = b"DLLL {"
SHOWN = b"DLL 20"  # and the rest of the year
_SHOWN = re.compile(rb"DLL (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) - ([^\n]{1,20000})")
_INDEX = re.compile(r"(?<![\w.])\d{1,15}(?![\w.])")
_MOST = 200  # metrics of a line


class StepNumber(NamedTuple):
    """Counts steps that a program names by (epoch, iteration), where iterations may begin again in each epoch."""

    epoch: int | None = None
    iteration: int = 0
    number: int = 0  # of the step
    stride: int = 1  # between the last two

    def after(self, step: list[Any]) -> "StepNumber | None":
        """The count at the next step; None for what is no pair of numbers."""
        if len(step) != 2 or not all(
            isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 40 for one in step
        ):
            return None
        epoch, iteration = step
        if self.epoch is None or epoch < self.epoch:
            return StepNumber(epoch, iteration, iteration)
        ahead = iteration - self.iteration
        if ahead > 0 or epoch == self.epoch:
            return StepNumber(epoch, iteration, self.number + ahead, ahead if ahead > 0 else self.stride)
        return StepNumber(epoch, iteration, self.number + self.stride, self.stride)


def parse_shown(line: bytes) -> dict[str, Any] | None:
    """A line that DLLogger prints, in the shape of the records in its file; None where it is cut.

    Source: dllogger `logger.py`, StdOutBackend with its own formats; programs replace that of the step::

        DLL 2026-11-23 04:39:04.563010 - (0, 3) loss : 0.0510  throughput : 2994.23 samples/s
        DLL 2026-11-23 04:39:04.563010 - Epoch: 0 Iteration: 3  loss : 0.0510  throughput : 2994.23 samples/s
    """
    match = _SHOWN.search(line)
    if match is None:
        return None
    parts = match[2].decode("utf-8", "replace").split(" : ", _MOST)
    if len(parts) < 2:
        return None
    where, _, key = parts[0].rstrip().rpartition(" ")
    data: dict[str, str] = {}
    units: dict[str, str] = {}
    for number, part in enumerate(parts[1:], 1):
        words = part.split()
        following = words.pop() if number < len(parts) - 1 and len(words) > 1 else ""
        if words:
            data[key] = words[0]
        if len(words) > 1:
            units[key] = words[1]
        key = following
    step: Any = "PARAMETER" if "PARAMETER" in where else [int(index) for index in _INDEX.findall(where)[:8]]
    try:
        when = datetime.fromisoformat(match[1].decode()).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return {"type": "LOG", "timestamp": when, "step": step, "data": data, "units": units}
