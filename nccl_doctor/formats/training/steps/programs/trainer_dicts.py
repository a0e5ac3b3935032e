"""What the Hugging Face Trainer prints without numbers of steps: dictionaries with a share of an epoch, whose lines carry a clock.

    Num Epochs = 3
    Total train batch size (w. parallel, distributed & accumulation) = 128
    Total optimization steps = 1,218
    2026-03-02 10:11:12 - INFO - {'loss': 1.92, 'grad_norm': 1.1, 'learning_rate': 2e-05, 'epoch': 0.02}

`logging_steps` is the same between all lines, and follows from how far the epoch came in all of them together.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import Series, stamp_of

LEAST = 5  # lines with a clock
_MOST = 20_000  # of them
_ROWS = 1024  # of a run
_COARSE = 10.0  # seconds between two lines of a clock that shows whole seconds
_EPOCH = compiled(rb"'epoch': '?(\d{1,6}(?:\.\d{1,6})?)'?[,}]")
_TOOL = Tool(b"", "hf-trainer", "samples/s", "job")


class _Line(NamedTuple):
    epoch: float
    when: float
    line: bytes
    number: int


class TrainerDicts:
    """The dictionaries of one log."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self.is_full = False  # or without a clock: no line is wanted any more

    def take(self, line: bytes, number: int) -> None:
        """Take a line, if it was printed behind a clock and goes on where the one before ended."""
        at = line.find(b"{'loss': ")
        when = stamp_of(line[: max(at, 0)].decode("utf-8", "replace"))
        found = _EPOCH.search(line, max(at, 0))
        if when is None or found is None:
            self.is_full = not self._lines
            return
        last = self._lines[-1] if self._lines else None
        if last is None or (float(found[1]) >= last.epoch and when > last.when):
            self._lines.append(_Line(float(found[1]), when, line, number))
            self.is_full = len(self._lines) >= _MOST

    def _interval(self, settings: Settings) -> int | None:
        """Steps from one line to the next; None where the log does not tell how many an epoch has, or its clock is too coarse."""
        if not settings.epochs or not settings.optimizer_steps or len(self._lines) < LEAST:
            return None
        first, last = self._lines[0], self._lines[-1]
        if (last.when - first.when) / (len(self._lines) - 1) < _COARSE:
            return None
        passed = (last.epoch - first.epoch) / (len(self._lines) - 1)
        return max(round(passed * settings.optimizer_steps / settings.epochs), 1)

    def rows(self, facts: Facts, file: str, run: int, settings: Settings) -> Iterator[Any]:
        """The times of steps."""
        interval = self._interval(settings)
        if interval is None:
            return
        series = Series(_TOOL, None, None)
        for at, (before, line) in enumerate(pairwise(self._lines), 2):
            spent = (line.when - before.when) / interval
            series.add((at * interval, spent, None, None), line.line, line.number, line.when)
        series.end(_ROWS)
        yield from run_rows(facts, file, run, series, settings)
