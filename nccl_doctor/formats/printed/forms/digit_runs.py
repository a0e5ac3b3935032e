"""Where the lines of one form have a number: runs of digits, read as a column."""

from typing import NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Flags
from nccl_doctor.formats.training.lines.line_numbers import Floats, LineNumbers, Texts

_RUN = compiled(rb"\d+")
_PLAIN = compiled(rb"(-?)(0(?:\.0)?(?:e[+-]?0)?)")
_EXPONENT = 3  # digits
_MOST = 15  # digits of a number


class DigitRuns(NamedTuple):
    """A number of each line."""

    run: int  # of digits in the line, with which it begins
    form: bytes  # with each run of digits as one 0: `0.0e-0`
    times: float  # by which it is multiplied

    def values(self, numbers: LineNumbers) -> Floats:
        """The number of each line."""
        return numbers.decimal(self.run, self.form) * self.times

    def are_long(self, numbers: LineNumbers, most: int = _MOST) -> Flags:
        """Which lines have more digits there than the expression of the number takes."""
        last = self.run + self.form.count(b"0") - 1
        found = np.zeros(numbers.count, bool)
        for run in range(self.run, last + 1):
            found |= numbers.digits(run) > (_EXPONENT if run == last and b"e" in self.form else most)
        return found


def digit_runs(line: bytes, start: int, form: bytes, begin: int, end: int, times: float) -> DigitRuns | None:
    """The number that begins at `start` in a line, and is from `begin` to `end` in its form; None where a column cannot be read."""
    text = _PLAIN.fullmatch(form[begin:end].lower())
    run = form.count(b"0", 0, begin)
    if text is None or len(_RUN.findall(line, 0, start)) != run:
        return None
    return DigitRuns(run, text[2], -times if text[1] else times)


def has_long_run(texts: Texts) -> Flags:
    """Which lines have a run of more digits than a number may have."""
    found = np.zeros(len(texts.first), bool)
    runs = np.flatnonzero(texts.end - texts.begin > _MOST)
    found[np.searchsorted(texts.first, runs, "right") - 1] = True
    return found
