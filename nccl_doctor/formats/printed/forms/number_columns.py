"""The rates and times of lines that differ in their numbers only, read as columns."""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.forms.digit_runs import DigitRuns, digit_runs, has_long_run
from nccl_doctor.formats.printed.named_numbers import measured, plain_numbers
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.training.lines.line_numbers import TextNumbers, Texts

_NAMED_DIGIT = compiled(r"\d")


class Column(NamedTuple):
    """A number of each line of a form."""

    name: str
    unit: str
    where: DigitRuns


def columns_of(line: bytes, plain: bytes, form: bytes) -> tuple[Column, ...] | None:
    """The columns of lines of a form; None where others of it may tell something else.

    `plain` is one of them without its codes, `form` that with each run of digits as one 0.
    """
    if plain_numbers(line) != line or plain_numbers(form) != form:
        return None
    columns = []
    of_line, of_plain, of_form = list(measured(line)), list(measured(plain)), list(measured(form))
    if not [one[:2] for one in of_line] == [one[:2] for one in of_plain] == [one[:2] for one in of_form]:
        return None
    for one, short in zip(of_plain, of_form, strict=True):
        end = short.start + len(short.text)
        where = digit_runs(plain, one.start, form, short.start, end, one.times)
        # 1,234 is one number, and 12,5 are two
        has_comma = form[short.start - 2 : short.start] == b"0," or form[end : end + 2] == b",0"
        if where is None or has_comma or _NAMED_DIGIT.search(one.name) is not None:
            return None
        columns.append(Column(one.name, one.unit, where))
    return tuple(columns)


def add_columns(
    columns: Sequence[Column], lines: Sequence[bytes], places: Sequence[Place], series: NumberSeries
) -> tuple[int, list[Place]]:
    """Add the numbers of lines, without codes, of a form; how many told one, and the lines that must be read one by one."""
    texts = Texts(lines)
    numbers, is_long = TextNumbers(texts, np.arange(len(places))), has_long_run(texts)
    for column in columns:
        is_long |= column.where.are_long(numbers)
    long: list[Place] = []
    if is_long.any():
        long = list(compress(places, is_long.tolist()))
        rows = np.flatnonzero(~is_long)
        places = [places[row] for row in rows.tolist()]
        numbers = TextNumbers(texts, rows)
        if not places:
            return 0, long
    took = np.zeros(len(places), bool)
    for column in columns:
        took |= series.add_many(column.name, column.unit, column.where.values(numbers), places)
    return int(took.sum()), long
