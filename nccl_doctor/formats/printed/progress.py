"""Training loops of anybody's own whose lines tell a step or an epoch and a loss, and at most when they were printed.

The time between two lines is that of their steps. A clock of whole seconds counts once ten of them have passed.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps import epoch_lines
from nccl_doctor.formats.training.steps.last_loss import loss_of
from nccl_doctor.formats.training.steps.own_steps import is_loop
from nccl_doctor.formats.training.steps.scalars import Scalars
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import Series, stamp_of

_LONGEST = 4096  # bytes of a line that a loop prints
LEAST = 5  # lines from which on they are a training loop
_MOST = 1024  # rows of a run
_COARSE = 10.0  # seconds between two lines of a clock that shows whole seconds
_STEP = compiled(
    rb"(?i)(?<![a-z])(?:global[_ ]?|train[_ ]?)?(?:step|iteration|iter|it|batch|update)s?[\"']?\s{0,3}[:=#|]?\s{0,3}\[?\s{0,6}"
    rb"(\d{1,12})(?:\s?/\s?(\d{1,12}))?(?![\d.]*\.\d|\s?/s)"
)
_OF = compiled(rb"[\[(]\s{0,6}(\d{1,12})\s?/\s?(\d{1,12})[\s\])]")
_EPOCH = compiled(
    rb"(?i)(?<![a-z])epochs?[\"']?\s{0,3}[:=#]?\s{0,3}[\[(]?\s{0,3}(\d{1,9})(?:\s?/\s?\d{1,9})?(?![\d.]*\.\d)"
)
# the form of PyTorch's examples, which count samples: `Train Epoch: 1 [6400/60000 (11%)]`
_SAMPLES = compiled(
    rb"(?i)\btrain epoch:? {0,3}\d{1,9} {0,3}\[ {0,9}\d{1,15}/\d{1,15} {1,3}\( {0,3}\d{1,3}(?:\.\d{1,3})?%\)\]"
)
_STAMPED = re.compile(r"(?<!\d)(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?![\d:])")
_ELAPSED = compiled(
    rb"(?i)(?:elapsed|total[_ ]time|since[_ ]start)(?:[_ ]?time)?[\"']?\s{0,3}[:=]?\s{0,3}"
    rb"(\d{1,9}(?:\.\d{1,9})?)\s?(ms|s|sec|secs|seconds|m|min|h)?(?![\w:.])"
)
_TOOK = compiled(
    rb"(?i)(?<![a-z])(?:time(?: taken)?|took|duration|(?:finished|completed|done|ended) in|elapsed)\W{1,4}"
    rb"(?:(\d{1,4})\s?h(?:ours?)?\W{1,2})?(?:(\d{1,4})\s?m(?:in(?:utes)?)?\W{1,2})?(\d{1,9}(?:\.\d{1,9})?)\s?(s|sec|secs|seconds|min|minutes|m|ms)?(?![\w:.])"
)
_LONE = compiled(rb"(?<![\w.,:/+-])(\d{1,9}\.\d{1,9})\s?(ms|s|sec|secs|seconds)(?![\w.:/])")
_NO_STEP = compiled(
    rb"(?i)elapsed|total|remain|since|\beta\b|left|so far|\bper\b|/"
)  # times of something else, or rates
_WRITER = compiled(rb"(?i)(?<!\S)\(\d{1,6}/\d{1,6}\)(?!\S)|(?<![a-z_])rank\W{0,2}\d{1,6}")  # icefall's `(3/8)`
_SECONDS = {None: 1.0, b"ms": 1e-3, b"m": 60.0, b"min": 60.0, b"minutes": 60.0, b"h": 3600.0}
_STEPS = Tool(b"", "own-loop", "samples/s", "job")
_EPOCHS = Tool(b"", epoch_lines.NAME, epoch_lines.UNIT, "job")
_LLM_C = compiled(rb"s:(\d{1,12}) (trl|tel):(\d{1,9}\.\d{1,9})(?: |\s*\Z)")  # `main.log` of llm.c
_EVALUATED = ("val", "eval", "test", "valid")


class _Above(NamedTuple):
    """The line above, which told no step together with a loss."""

    line: bytes
    loss: tuple[str, float] | None
    number: int


class Progress:
    """The loop of one file."""

    def __init__(self) -> None:
        self._scalars = Scalars()
        self._steps = Series(_STEPS, None, None)
        self._epochs = Series(_EPOCHS, None, None)
        self._samples = Series(_STEPS, None, None)  # of lines that count samples
        self._own = Series(_STEPS, None, None)  # by the times that lines tell of their steps
        self._writer: bytes | None = None  # whose lines tell the time between steps
        self._lines = 0
        self._epoch: int | None = None
        self._step: int | None = None  # of the last line that told one
        self._of_epochs = Scalars()  # the epochs of lines that tell no step
        self._last_epoch: int | None = None
        self._above: _Above | None = None
        self._before: tuple[int, float, bool] | None = None  # step or epoch, when, is it an epoch
        self._day = 0.0
        self._clock: float | None = None

    def take(self, line: bytes, number: int) -> bool:
        """Take a line; whether it is one of a training loop. Lines that `may_be_progress` denies may be left out."""
        if len(line) > _LONGEST:
            return False
        if (logged := _LLM_C.match(line)) is not None:
            self._lines += 1
            name, self._step = "loss" if logged[2] == b"trl" else "val_loss", int(logged[1])
            self._scalars.note_scalar(name, float(logged[3]), self._step, (line, number))
            return True
        epoch, loss = _EPOCH.search(line), loss_of(line)
        if epoch is not None:
            self._epoch = int(epoch[1])
        if self._epoch is not None and (took := _TOOK.search(line)) is not None and _STEP.search(line) is None:
            self._took(took, line, number)
        if epoch is None:
            found, loss = self._paired(line, loss, number)
        else:
            found = _step_of(line, epoch.end())
        if loss is None or (found is None and epoch is None):
            return False
        if loss[0].startswith(_EVALUATED):
            return False
        step = int(found[1]) if found is not None else self._epoch or 0
        if found is not None and epoch is not None and found[2]:
            step += int(epoch[1]) * int(found[2])
        self._lines += 1
        if found is not None:
            self._step = step
        elif self._step is None and step != self._last_epoch:
            self._last_epoch = step
            self._of_epochs.note_scalar("epoch", step, None, (line, number))
        self._scalars.note_scalar(loss[0], loss[1], self._step, (line, number))
        self._passed(step, found is None, line, number, samples=found is not None and _SAMPLES.search(line) is not None)
        return True

    def _paired(
        self, line: bytes, loss: tuple[str, float] | None, number: int
    ) -> tuple[re.Match[bytes] | None, tuple[str, float] | None]:
        """The step and the loss of a line, or of two of which each tells one, one below the other."""
        above, self._above = self._above, None
        if above is not None and above.number != number - 1:
            above = None
        step = None
        if loss is not None:
            step = _step_of(line) or (_step_of(above.line) if above is not None and above.loss is None else None)
        elif above is not None and above.loss is not None and (step := _step_of(line)) is not None:
            loss = above.loss
        if step is None:
            self._above = _Above(line, loss, number)
        return step, loss

    def _took(self, took: re.Match[bytes], line: bytes, number: int) -> None:
        seconds = 3600 * int(took[1] or 0) + 60 * int(took[2] or 0) + float(took[3]) * _SECONDS.get(took[4], 1.0)
        if seconds > 0 and self._epoch is not None:
            self._epochs.add((self._epoch, seconds, None, None), line, number, None)

    def _told(self, step: int, line: bytes, number: int) -> bool:
        """Take the time of the step, where the line tells one time and no clock; False for another line."""
        found = _LONE.findall(line)
        if len(found) != 1 or _NO_STEP.search(line) is not None:
            return False
        seconds = float(found[0][0]) * _SECONDS.get(found[0][1], 1.0)
        if seconds > 0 and (self._own.last_step is None or step > self._own.last_step):
            self._own.add((step, seconds, None, None), line, number, None)
        return True

    def _passed(self, step: int, is_epoch: bool, line: bytes, number: int, *, samples: bool) -> None:
        """Take the time since the line before; `samples` where the line counts these."""
        if (writer := _WRITER.search(line)) is not None:
            self._writer = self._writer or writer[0]
            if writer[0] != self._writer:  # the others print the same steps
                return
        if not is_epoch and not samples:
            self._told(step, line, number)
        when, is_fine = self._when(line)
        if when is None:
            return
        before = self._before
        if before is not None and is_epoch and step == before[0] and before[2]:
            return  # an epoch begins with its first line
        if before is None or step <= before[0] or is_epoch != before[2] or when < before[1]:
            self._before = step, when, is_epoch
            return
        passed = when - before[1]
        if passed <= 0 or (not is_fine and passed < _COARSE):
            return
        if samples:
            self._samples.add((None, None, (step - before[0]) / passed, None), line, number, when)
        else:
            series = self._epochs if is_epoch else self._steps
            series.add((step, passed / (step - before[0]), None, None), line, number, when)
        self._before = step, when, is_epoch

    def _when(self, line: bytes) -> tuple[float | None, bool]:
        """When a line was printed, by a clock since the start, a date, or the time of a day; and whether it tells less than a second."""
        if (elapsed := _ELAPSED.search(line)) is not None:
            return float(elapsed[1]) * _SECONDS.get(elapsed[2], 1.0), b"." in elapsed[1]
        text = line[:80].decode("utf-8", "replace")
        stamp = _STAMPED.search(text)
        if stamp is None:
            return None, False
        is_fine = stamp[4] is not None
        if (when := stamp_of(text)) is not None:
            return when, is_fine
        hours, minutes, seconds = (int(part) for part in stamp.groups()[:3])
        clock = 3600.0 * hours + 60 * minutes + seconds + float(f"0.{stamp[4] or 0}")
        if self._clock is not None and clock < self._clock - 43_200:  # midnight
            self._day += 86_400
        self._clock = clock
        return self._day + clock, is_fine

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
        for series in (steps, self._samples, self._epochs):
            if series.points >= 2:
                series.end(_MOST)
                yield from run_rows(facts, file, run, series, Settings())
                run += 1


def _step_of(line: bytes, start: int = 0) -> re.Match[bytes] | None:
    """The step of a line; of one that only says `[3/40]`, `start` is where that may stand."""
    return _STEP.search(line) or _OF.search(line, start)


def may_be_progress(line: bytes) -> bool:
    """Whether a line holds a step, an epoch, a time that one took, or a loss."""
    return (
        any(one.search(line) is not None for one in (_EPOCH, _STEP, _OF, _TOOK))
        or loss_of(line) is not None
        or _LLM_C.match(line) is not None
    )
