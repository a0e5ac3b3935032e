"""The lines of a block that tell numbers or the steps of a loop, kept until those of one form can be read together."""

from operator import itemgetter

import numpy as np

from nccl_doctor.formats.printed.forms.line_kinds import NUMBERS, PROGRESS, Form
from nccl_doctor.formats.printed.forms.loop_columns import LoopColumns, marks
from nccl_doctor.formats.printed.forms.loop_lines import are_alone, in_order, loop_lines
from nccl_doctor.formats.printed.forms.number_columns import add_columns
from nccl_doctor.formats.printed.json_numbers import numbers_of_record
from nccl_doctor.formats.printed.loop_marks import LoopLines, Mark
from nccl_doctor.formats.printed.named_numbers import numbers_of_line
from nccl_doctor.formats.printed.progress import Progress
from nccl_doctor.formats.printed.series import NumberSeries, Place

_LEAST = 8  # lines from which on columns are faster
_STRETCH = 16  # lines of loops between two others from which on it is faster to take them together


class LineBatch:
    """The lines of a block."""

    def __init__(self, series: NumberSeries, progress: Progress) -> None:
        self._series = series
        self._progress = progress
        self._forms: list[Form] = []  # of lines that wait

    def add(self, line: bytes, number: int, form: Form, plain: bytes) -> None:
        """Keep a line; `plain` is the same without its codes."""
        if not form.waiting:
            self._forms.append(form)
        form.waiting.append(Place(number, line))
        form.plain.append(plain)

    def read(self) -> int:
        """Read the lines; how many told a number, and how many a step."""
        used = 0
        told: list[tuple[int, bytes, Mark | None]] = []
        # the time of what ended counts where it may be an epoch
        tells_epochs = self._progress.has_epochs or any(form.may_tell_epochs for form in self._forms)
        loops: list[tuple[LoopColumns, list[bytes], list[Place]]] = []
        for form in self._forms:
            places, plain = form.waiting, form.plain
            form.waiting, form.plain = [], []
            are_many = len(places) >= _LEAST
            if form.kinds & PROGRESS:
                if form.loop is None or not are_many:
                    told += [(*place[:2], None) for place in places]
                elif form.loop.tells_a_loop or tells_epochs:
                    loops.append((form.loop, plain, places))
            if form.kinds & NUMBERS:
                if form.columns is not None and are_many:
                    taken, places = add_columns(form.columns, plain, places, self._series)
                    used += taken
                used += sum(map(self._take, places))
        self._forms = []
        together = sum(len(loop[2]) for loop in loops if are_alone(loop[0]))
        apart = len(told) + sum(len(loop[2]) for loop in loops if not are_alone(loop[0]))
        columns = []
        for loop in loops:
            read = loop_lines(*loop) if are_alone(loop[0]) and apart * _STRETCH < together else None
            if read is None:
                told += marks(*loop)
            else:
                columns.append(read)
        return used + self._progressed(told, in_order(columns) if columns else None)

    def _progressed(self, told: list[tuple[int, bytes, Mark | None]], columns: LoopLines | None) -> int:
        """Take the lines of loops in their order, and what stands between them; how many told a step."""
        progress, used, start = self._progress, 0, 0
        for number, line, mark in sorted(told, key=itemgetter(0)):
            if columns is not None and (end := int(np.searchsorted(columns.number, number))) > start:
                used += progress.add_many(columns.cut(start, end))
                start = end
            used += progress.take(line, number) if mark is None else progress.add(mark, line, number)
        if columns is not None and start < len(columns.line):
            used += progress.add_many(columns.cut(start, len(columns.line)))
        return used

    def _take(self, place: Place) -> bool:
        """Take the numbers of a line; whether it told one."""
        line = place.line
        numbers = numbers_of_record(line) if line[:1] == b"{" and b'"' in line else numbers_of_line(line)
        took = False
        for name, unit, value in numbers:
            took |= self._series.add(name, unit, value, place)
        return took
