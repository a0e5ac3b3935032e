"""Training loops of anybody's own whose lines tell a step or an epoch and a loss, and at most when they were printed.

The time between two lines is that of their steps. A clock of whole seconds counts once ten of them have passed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.printed.loop_marks import LLM_C, LoopLines, Mark, mark_of
from nccl_doctor.formats.printed.progress_clocks import COARSE, Clock, stamp_in
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps import epoch_lines
from nccl_doctor.formats.training.steps.own_steps import is_loop
from nccl_doctor.formats.training.steps.scalars import Scalars
from nccl_doctor.formats.training.steps.step_columns import Name, Steps
from nccl_doctor.formats.training.steps.step_folds import Lines
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import SETTLE, Series, seconds_of

_LONGEST = 4096  # bytes of a line that a loop prints
LEAST = 5  # lines from which on they are a training loop
_MOST = 1024  # rows of a run
_STEPS = Tool(b"", "own-loop", "samples/s", "job")
_EPOCHS = Tool(b"", epoch_lines.NAME, epoch_lines.UNIT, "job")
_EVALUATED = ("val", "eval", "test", "valid")


class Progress:
    """The loop of one file."""

    def __init__(self) -> None:
        self._scalars = Scalars()
        self._steps = Series(_STEPS, None, None)
        self._epochs = Series(_EPOCHS, None, None)
        self._samples = Series(_STEPS, None, None)  # of lines that count samples
        self._own = Series(_STEPS, None, None)  # by the times that lines tell of their steps
        self._clocked = Clock(_STEPS)  # by the clock that they tell
        self._writer: bytes | None = None  # whose lines tell the time between steps
        self._lines = 0
        self._epoch: int | None = None
        self._step: int | None = None  # of the last line that told one
        self._of_epochs = Scalars()  # the epochs of lines that tell no step
        self._last_epoch: int | None = None
        self._above: tuple[Mark, int] | None = None  # the last line that told a step or a loss alone
        self._before: tuple[int, float, bool] | None = None  # step or epoch, when, is it an epoch
        self._day = 0.0
        self._clock: float | None = None

    @property
    def has_epochs(self) -> bool:
        """Whether a line told which epoch it is."""
        return self._epoch is not None

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is one of a training loop. Lines that `may_be_progress` denies may be left out."""
        if len(line) > _LONGEST:
            return False
        if (logged := LLM_C.match(line)) is not None:
            self._lines += 1
            name, self._step = "loss" if logged[2] == b"trl" else "val_loss", int(logged[1])
            self._scalars.note_scalar(name, float(logged[3]), self._step, (line, number))
            return True
        return self.add(mark_of(line), line, number)

    def add(self, mark: Mark, line: bytes, number: int) -> bool:
        """Take what a line tells; whether it is one of a training loop."""
        if mark.epoch is not None:
            self._epoch = mark.epoch
        if mark.took is not None and mark.took > 0 and self._epoch is not None:
            self._epochs.add((self._epoch, mark.took, None, None), line, number, None)
        if mark.epoch is None:
            mark = self._paired(mark, number)
        if (
            mark.loss is None
            or (mark.step is None and mark.epoch is None)
            or mark.places.loss_name.startswith(_EVALUATED)
        ):
            return False
        step = mark.step if mark.step is not None else self._epoch or 0
        if mark.epoch is not None and mark.step is not None and mark.total:
            step += mark.epoch * mark.total
        self._lines += 1
        if mark.step is not None:
            self._step = step
        elif self._step is None and step != self._last_epoch:
            self._last_epoch = step
            self._of_epochs.note_scalar("epoch", step, None, (line, number))
        self._scalars.note_scalar(mark.places.loss_name, mark.loss, self._step, (line, number))
        self._passed(mark, step, line, number)
        return True

    def add_many(self, lines: LoopLines) -> int:
        """Take lines that each tell a step and a loss; how many are of a training loop."""
        epochs = lines.epoch[~np.isnan(lines.epoch)]
        if len(epochs):
            self._epoch = int(epochs[-1])
        names = dict.fromkeys(lines.loss_name)
        if left_out := [name for name in names if name.startswith(_EVALUATED)]:
            lines = lines.chosen(~np.isin(lines.loss_name, left_out))
            names = dict.fromkeys(lines.loss_name)
        if not names:
            return 0
        self._lines += len(lines.line)
        self._step = int(lines.step[-1])
        for name in names:
            of_name = lines.chosen(np.array(lines.loss_name) == name) if len(names) > 1 else lines
            self._note_losses(name, of_name)
        own = lines.chosen(lines.own > 0)
        if len(own.line):
            self._own.put(_steps_of(own, own.own), SETTLE)
        self._clocked.take_many(lines)
        self._passed_many(lines)
        return len(lines.line)

    def _note_losses(self, name: str, lines: LoopLines) -> None:
        first, last = (int(lines.step[at]) for at in (0, -1))
        self._scalars.note_many(name, lines.loss, lambda at: (lines.line[at], int(lines.number[at])), (first, last))

    def _passed_many(self, lines: LoopLines) -> None:
        """Take the times between the lines."""
        lines = lines.chosen(~np.isnan(lines.when))
        if not len(lines.line):
            return
        before, took = self._before, []
        columns = lines.step.tolist(), lines.when.tolist(), lines.is_fine.tolist()
        for at, (step, when, is_fine) in enumerate(zip(*columns, strict=True)):
            if before is None or before[2] or step <= before[0] or when < before[1]:
                before = step, when, False
                continue
            passed = when - before[1]
            if passed > 0 and (is_fine or passed >= COARSE):
                took.append((at, passed / (step - before[0])))
                before = step, when, False
        self._before = before
        if took:
            is_end = np.zeros(len(lines.line), bool)
            is_end[[at for at, _ in took]] = True
            ends = lines.chosen(is_end)
            self._steps.put(_steps_of(ends, np.array([seconds for _, seconds in took]), ends.when), SETTLE)

    def _paired(self, mark: Mark, number: int) -> Mark:
        """A mark with the step or the loss that the line above told."""
        if (mark.step is None) == (mark.loss is None):
            return mark
        above, self._above = self._above, (mark, number)
        if above is None or above[1] != number - 1:
            return mark
        if mark.step is None and mark.loss is not None and above[0].step is not None:
            paired = mark._replace(step=above[0].step)
        elif mark.loss is None and mark.step is not None and above[0].loss is not None:
            paired = mark._replace(loss=above[0].loss, places=mark.places._replace(loss_name=above[0].places.loss_name))
        else:
            return mark
        self._above = None
        return paired

    def _passed(self, mark: Mark, step: int, line: bytes, number: int) -> None:
        """Take the time since the line before."""
        if mark.writer is not None:
            self._writer = self._writer or mark.writer
            if mark.writer != self._writer:  # the others print the same steps
                return
        is_epoch = mark.step is None
        if not is_epoch and not mark.places.counts_samples:
            if mark.own and (self._own.last_step is None or step > self._own.last_step):
                self._own.add((step, mark.own, None, None), line, number, None)
            if mark.clock is not None:
                self._clocked.take(step, mark.clock, line, number, is_fine=mark.places.has_fine_clock)
        when, is_fine = self._when(mark, line)
        if when is None:
            return
        before = self._before
        if before is not None and is_epoch and step == before[0] and before[2]:
            return  # an epoch begins with its first line
        if before is None or step <= before[0] or is_epoch != before[2] or when < before[1]:
            self._before = step, when, is_epoch
            return
        passed = when - before[1]
        if passed <= 0 or (not is_fine and passed < COARSE):
            return
        if mark.places.counts_samples:
            self._samples.add((None, None, (step - before[0]) / passed, None), line, number, when)
        else:
            series = self._epochs if is_epoch else self._steps
            series.add((step, passed / (step - before[0]), None, None), line, number, when)
        self._before = step, when, is_epoch

    def _when(self, mark: Mark, line: bytes) -> tuple[float | None, bool]:
        """When a line was printed, by a clock since the start, a date, or the time of a day; and whether it tells less than a second."""
        if mark.elapsed is not None:
            return mark.elapsed, mark.places.is_fine
        if not mark.places.is_stamped:
            return None, False
        stamp = stamp_in(line)
        if stamp is None:
            return None, False
        if stamp.text and (when := seconds_of(stamp.text)) is not None:
            return when, stamp.is_fine
        clock = stamp.seconds
        if self._clock is not None and clock < self._clock - 43_200:  # midnight
            self._day += 86_400
        self._clock = clock
        return self._day + clock, stamp.is_fine

    @property
    def is_loop(self) -> bool:
        """Whether the file is the log of a training loop."""
        return self._lines >= LEAST or self._epochs.points >= 2

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """The losses, and the times of steps or epochs."""
        yield from self._scalars.rows(facts, file)
        if self._step is None:
            yield from self._of_epochs.rows(facts, file)
        run = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
        steps = self._own if self._own.points >= LEAST and is_loop(self._own) else self._steps
        if steps.points < LEAST <= self._clocked.series.points and self._clocked.is_one:
            steps = self._clocked.series
        for series in (steps, self._samples, self._epochs):
            if series.points >= 2:
                series.end(_MOST)
                yield from run_rows(facts, file, run, series, Settings())
                run += 1


def _steps_of(lines: LoopLines, seconds: Floats, when: Floats | None = None) -> Lines:
    """The steps that lines tell, which took so long."""
    columns: dict[Name, Floats] = {"step": lines.step, "seconds": seconds}
    if when is not None:
        columns["when"] = when
    texts = np.empty(len(lines.line), object)
    texts[:] = lines.line
    return Lines(Steps(len(texts), columns), lines.number.astype(float), texts)
