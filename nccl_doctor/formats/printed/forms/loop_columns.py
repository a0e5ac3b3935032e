"""What the lines of a training loop tell that differ in their numbers only, read as columns."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.text_keys import Flags
from nccl_doctor.formats.printed.forms.digit_runs import DigitRuns, digit_runs, has_long_run
from nccl_doctor.formats.printed.loop_marks import ALONE, LLM_C, SUMS, WHOLE, Mark, Places, places_of, writer_of
from nccl_doctor.formats.printed.series import Place
from nccl_doctor.formats.training.lines.line_numbers import Floats, TextNumbers, Texts

_DIGITS = 9  # of a run, in the expressions of all numbers
_NONE = repeat(None)
_THOUSANDS = b",0"


class LoopColumns(NamedTuple):
    """What each line of a form tells, and where."""

    numbers: tuple[tuple[str, DigitRuns], ...]  # parts of a mark
    places: Places

    @property
    def tells_a_loop(self) -> bool:
        """Whether lines tell a step, a loss or an epoch, and not only how long something took."""
        return any(name in ("epoch", "step", "loss") for name, _ in self.numbers)

    def values(self, texts: Texts) -> tuple[dict[str, Floats], Flags]:
        """Part of a mark -> what each line tells; and which lines have a number that is too long for columns."""
        numbers, is_long = TextNumbers(texts, np.arange(len(texts.first))), has_long_run(texts)
        values: dict[str, Floats] = {}
        for name, where in self.numbers:
            is_long |= where.are_long(numbers, _DIGITS)
            values[name] = where.values(numbers)
        return values, is_long


def loop_columns_of(line: bytes, plain: bytes, form: bytes) -> LoopColumns | None:
    """The columns of lines of a form; None where others of it may tell something else.

    `plain` is one of them without its codes, `form` that with each run of digits as one 0.
    """
    places, of_form = places_of(plain), places_of(form)
    if LLM_C.match(form) or not _kind_of(places_of(line)) == _kind_of(places) == _kind_of(of_form):
        return None
    numbers = []
    for one, short in zip(places.numbers, of_form.numbers, strict=True):
        if form[short.end : short.end + 2] == _THOUSANDS:  # `121,400` is one number, `5,4` are two
            return None
        where = digit_runs(plain, one.start, form, short.start, short.end, one.times)
        if where is None:
            return None
        numbers.append((one.name, where))
    return LoopColumns(tuple(numbers), of_form)


def _kind_of(places: Places) -> Places:
    """What a line tells without where; of a time of the day each line is asked."""
    return places._replace(numbers=tuple(one._replace(start=0, end=0) for one in places.numbers), is_stamped=False)


def marks(
    loop: LoopColumns, lines: Sequence[bytes], places: Sequence[Place]
) -> Iterator[tuple[int, bytes, Mark | None]]:
    """Each line with its number and what it tells by `lines`, which have no codes; None for one whose numbers are too long for columns."""
    values, is_long = loop.values(Texts(lines))
    told = map(
        Mark,
        *(np.where(is_long, 0, values[name]).astype(int).tolist() if name in values else _NONE for name in WHOLE),
        values["loss"].tolist() if "loss" in values else _NONE,
        *(
            np.sum([values[part] for part in parts if part in values], axis=0).tolist()
            if parts[-1] in values
            else _NONE
            for parts in SUMS
        ),
        *(values[name].tolist() if name in values else _NONE for name in ALONE),
        [writer_of(place.line) for place in places] if loop.places.has_writer else _NONE,
        repeat(loop.places, len(places)),
    )
    for place, mark, long in zip(places, told, is_long.tolist(), strict=True):
        yield place.number, place.line, None if long else mark
