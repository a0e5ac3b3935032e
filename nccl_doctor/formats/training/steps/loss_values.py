"""The scalars of one log in the lines of the Hugging Face Trainer (`{'loss': 1.2, 'grad_norm': 0.9, 'epoch': 0.1}`).

They tell no step. Their source: `src/transformers/trainer_callback.py`. Lines that differ in digits only are read together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.lines.line_numbers import Floats, Group, LineNumbers
from nccl_doctor.formats.training.steps.scalars import Place, Scalars
from nccl_doctor.formats.training.steps.step_columns import Column, runs_of

LITERAL = b"{'loss': "
_MEMO = 10_000  # forms
_VALUE = compiled(rb"'([\w/ .-]{1,80})': '?(-?)(?:(\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?)|inf|(nan))'?[,}]")


class _Number(NamedTuple):
    """A number of all lines of one form."""

    name: str
    column: Column | None  # None where it is a word
    sign: float
    word: float  # its value there

    def read(self, numbers: LineNumbers) -> Floats:
        if self.column is None:
            return np.full(numbers.count, self.sign * self.word)
        return self.sign * self.column.read(numbers)


class LossValues:
    """The scalars of one log."""

    def __init__(self) -> None:
        self._scalars = Scalars()
        self._forms: dict[int, tuple[_Number, ...]] = {}  # by the key of the lines

    def take(self, groups: Sequence[Group], text: Callable[[int], bytes], numbers: Numbers) -> None:
        """Take groups of lines that hold the literal; `text` gives a line of the batch, `numbers` are those of all of its lines."""
        parts = defaultdict[str, list[tuple[Numbers, Floats]]](list)
        if len(self._forms) > _MEMO:
            self._forms.clear()
        for key, rows, runs in groups:
            form = self._forms.get(key)
            if form is None:
                form = self._forms[key] = _form(text(int(rows[0])))
            for one in form:
                parts[one.name].append((rows, one.read(runs)))
        for name, of_name in parts.items():
            rows, values = (np.concatenate(column) for column in zip(*of_name, strict=True))
            order = np.argsort(rows)
            self._scalars.note_many(name, values[order], partial(_place, text, numbers, rows[order]))

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """One scalar for each name."""
        yield from self._scalars.rows(facts, file)


def _place(text: Callable[[int], bytes], numbers: Numbers, rows: Numbers, index: int) -> Place:
    row = int(rows[index])
    return text(row), int(numbers[row])


def _form(line: bytes) -> tuple[_Number, ...]:
    """The numbers of lines like this one, the last of each name."""
    runs = runs_of(line)
    begins = {begin: index for index, (begin, _) in enumerate(runs)}
    found = {}
    for match in _VALUE.finditer(line, max(line.find(LITERAL), 0)):
        name, sign = match[1].decode(), -1.0 if match[2] else 1.0
        column = Column.of(name, line, match.span(3), runs, begins) if match[3] is not None else None
        if column is not None or match[3] is None:
            found[name] = _Number(name, column, sign, np.nan if match[4] is not None else np.inf)
    return tuple(found.values())
