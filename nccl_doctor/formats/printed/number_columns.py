"""The rates and times of lines that differ in their numbers only, read as columns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Flags
from nccl_doctor.formats.printed.named_numbers import has_left_out, measured
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.training.lines.line_numbers import Floats, TextNumbers, Texts

EXPONENT = 3  # digits
_DIGITS = 15  # of a number
_RUN = compiled(rb"\d+")
_NAMED_DIGIT = compiled(r"\d")


class Column(NamedTuple):
    """Where each line of a form has one number."""

    name: str
    unit: str
    times: float
    run: int  # of digits in the line, with which it begins
    form: bytes  # with each run of digits as one 0: `0.0e-0`


def columns_of(line: bytes, form: bytes) -> tuple[Column, ...] | None:
    """The columns of a line that is this with each run of digits as one 0; None where other lines of the form may tell something else."""
    if has_left_out(line) or has_left_out(form):
        return None
    columns = []
    of_line, of_form = list(measured(line)), list(measured(form))
    if [one[:2] for one in of_line] != [one[:2] for one in of_form]:
        return None
    for one, plain in zip(of_line, of_form, strict=True):
        end = plain.start + len(plain.text)
        run = form.count(b"0", 0, plain.start)
        has_comma = (
            form[plain.start - 2 : plain.start] == b"0," or form[end : end + 2] == b",0"
        )  # 1,234 is one number, and 12,5 are two
        if has_comma or _NAMED_DIGIT.search(one.name) is not None or len(_RUN.findall(line, 0, one.start)) != run:
            return None
        columns.append(Column(one.name, one.unit, one.times, run, plain.text.lower()))
    return tuple(columns)


def add_columns(columns: Sequence[Column], places: Sequence[Place], series: NumberSeries) -> tuple[int, list[Place]]:
    """Add the numbers of lines of a form; how many lines told one, and the lines that must be read one by one."""
    texts = Texts([place.line for place in places])
    numbers, is_long = TextNumbers(texts, np.arange(len(places))), has_long_run(texts)
    for column in columns:
        if b"e" in column.form:
            is_long |= numbers.digits(column.run + column.form.count(b"0") - 1) > EXPONENT
    long: list[Place] = []
    if is_long.any():
        long, places = _split(places, is_long)
        if not places:
            return 0, long
        numbers = TextNumbers(Texts([place.line for place in places]), np.arange(len(places)))
    took = np.zeros(len(places), bool)
    for column in columns:
        values: Floats = numbers.decimal(column.run, column.form) * column.times
        took |= series.add_many(column.name, column.unit, values, places)
    return int(took.sum()), long


def _split(places: Sequence[Place], is_first: Flags) -> tuple[list[Place], list[Place]]:
    parts: tuple[list[Place], list[Place]] = [], []
    for place, first in zip(places, is_first.tolist(), strict=True):
        parts[not first].append(place)
    return parts


def has_long_run(texts: Texts) -> Flags:
    """Which lines have a run of more digits than a number may have."""
    found = np.zeros(len(texts.first), bool)
    runs = np.flatnonzero(texts.end - texts.begin > _DIGITS)
    found[np.searchsorted(texts.first, runs, "right") - 1] = True
    return found
