"""The series of steps of one launch, and who wrote which of them."""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.text_keys import Keys, Numbers
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.lines.recent_lines import RecentLines
from nccl_doctor.formats.training.steps import epoch_lines, own_steps
from nccl_doctor.formats.training.steps.step_blocks import Written
from nccl_doctor.formats.training.steps.step_columns import Form, Steps
from nccl_doctor.formats.training.steps.step_folds import Lines
from nccl_doctor.formats.training.steps.step_formats import BAR, Tool, uncoloured
from nccl_doctor.formats.training.steps.step_places import Batch
from nccl_doctor.formats.training.steps.step_series import SETTLE, Series
from nccl_doctor.formats.training.steps.step_writers import Writer, writer_of

_WAITING = 1 << 18  # lines of all series that wait until they are folded together
_TOGETHER = 64  # lines that a series gets at once, of the lines of all of them
_MOST_WAITING = 1 << 12  # of one series
_MEMO = 50_000  # writers remembered
_BAR_LEAST = 8  # points from which a progress bar is taken for a training loop
_TRAINING_BAR_LEAST = 2  # where a loss is printed in the bar or beside it

_LESS = {  # tool -> others of whose steps it tells more
    "deepspeed": ("deepspeed-timers",),  # the number of the step as well
    "deepspeed-chat": ("deepspeed", "deepspeed-timers"),  # a step of RLHF with its generation
}


class _Writers(NamedTuple):
    """Who wrote lines of one form, in ascending keys, and the index of the series of each."""

    keys: Keys
    series: Numbers

    def series_of(self, writers: Keys) -> Numbers:
        """-1 where nobody is known."""
        at = np.searchsorted(self.keys[:-1], writers)
        return np.where(self.keys[at] == writers, self.series[at], -1)

    def more(self, series: dict[int, int]) -> "_Writers":
        """These, and the series of others by their keys."""
        keys = np.append(np.array(list(series), np.uint64), self.keys[:-1])
        order = np.append(np.argsort(keys), len(keys))
        return _Writers(
            np.append(keys, self.keys[-1])[order],
            np.concatenate([np.array(list(series.values()), np.int64), self.series])[order],
        )


_NOBODY = _Writers(np.zeros(1, np.uint64), np.full(1, -1))


class _Lines(NamedTuple):
    """Lines in their order, each with the index of its series."""

    steps: Steps
    of: Numbers
    numbers: Floats
    places: Numbers


class Launch:
    """The series of a job from one start to the next, in the order in which they come in the log."""

    def __init__(self, recent: RecentLines) -> None:
        self._series: list[Series] = []
        self._waiting: list[_Lines] = []  # of all series
        self._recent = recent
        self._of_writer: dict[int, _Writers] = {}  # by the key of the lines
        self._named: dict[tuple[str, Writer], int] = {}  # tool and writer -> index of the series
        self._is_known = False
        self._trained: set[Series] = set()  # progress bars that show a loss

    @property
    def series(self) -> list[Series]:
        """All of them, each with its lines."""
        self._give()
        return self._series

    def is_known(self) -> bool:
        """Whether a program was recognised: then its lines are those of the loop, and no others. A bar may be of any loop inside it."""
        if not self._is_known and any(_is_known(one.tool) for one in self._series):
            self._is_known = any(_is_loop(one) for one in self.series if _is_known(one.tool))
        return self._is_known

    def loops(self, *, has_losses: bool = False) -> list[Series]:
        """The series that are training loops, by tool and rank; `has_losses` where losses are printed beside progress bars."""
        named, own = [], []
        for one in self.series:
            if one.tool.is_guess:
                own += [one] if own_steps.is_loop(one) else []
            elif _is_loop(one, trains=has_losses or one in self._trained):
                named.append(one)
        named = _principal(named)
        if own and all(one.tool.name == BAR for one in named) and any(_numbers_steps(one) for one in own):
            named = []  # the loop prints its steps beside bars, which may be of parts of a step
        found = named or own  # lines of a known tool are also of a loop that nobody knows
        if any(one.tool.name != epoch_lines.NAME for one in found):  # whose steps tell more
            found = [one for one in found if one.tool.name != epoch_lines.NAME]
        return sorted(found, key=lambda one: (one.tool.name, one.rank if one.rank is not None else -1))

    def keep(self, end: int) -> None:
        """Copy the lines that are still needed of those in front of a place."""
        for series in self.series:
            series.keep(end)

    def of(self, tool: Tool, line: bytes, start: int = 0) -> int:
        """The index of the series of a tool and who wrote a line, in which its own text begins at `start`."""
        writer = writer_of(line, start, anywhere=tool.is_guess)
        found = self._named.setdefault((tool.name, writer), len(self._series))
        if found == len(self._series):
            self._series.append(Series(tool, writer.host, writer.rank, self._recent, writer.local_rank, writer.task))
        return found

    def put(self, batch: Batch, steps: Steps, written: list[Written]) -> None:
        """Take the steps of a batch, of which each series gets its own."""
        of = self._name(batch, written)
        which = np.flatnonzero(of >= 0)
        self._waiting.append(
            _Lines(
                steps.chosen(which, len(which)), of[which], batch.numbers[which].astype(float),
                self._recent.places(batch.start[which], batch.stop[which]),
            )
        )  # fmt: skip
        if sum(len(lines.of) for lines in self._waiting) >= min(_TOGETHER * len(self._series), 2 * _WAITING):
            self._give()

    def _give(self) -> None:
        """Give each series its lines."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        series = np.concatenate([lines.of for lines in waiting])
        order = np.argsort(series.astype(np.int16) if len(self._series) < 1 << 15 else series, kind="stable")
        series = series[order]
        edges = [0, *(np.flatnonzero(series[1:] != series[:-1]) + 1).tolist(), len(order)]
        steps = Steps.joined([lines.steps for lines in waiting]).chosen(order, len(order))
        number = np.concatenate([lines.numbers for lines in waiting])[order]
        place = np.concatenate([lines.places for lines in waiting])[order]
        limit = min(max(_WAITING // max(len(self._series), 1), SETTLE), _MOST_WAITING)
        for start, end in pairwise(edges):
            if start < end:
                part = Lines(steps.cut(start, end), number[start:end], place[start:end])
                self._series[int(series[start])].put(part, limit)

    def _name(self, batch: Batch, written: list[Written]) -> Numbers:
        """The index of the series of each line by who wrote it, -1 for none."""
        of = np.full(len(batch.start), -1)
        if sum(len(known.keys) for known in self._of_writer.values()) > _MEMO:
            self._of_writer.clear()
        firsts = []
        for key, form, rows, writers, _ in written:
            is_new = self._of_writer.get(key, _NOBODY).series_of(writers) < 0
            if is_new.any():
                new, first = np.unique(writers[is_new], return_index=True)
                first_rows = rows[is_new][first].tolist()
                firsts += [(row, key, writer, form) for row, writer in zip(first_rows, new.tolist(), strict=True)]
        found = defaultdict[int, dict[int, int]](dict)
        for row, key, writer, form in sorted(firsts, key=lambda first: first[0]):
            if writer not in found[key]:
                found[key][writer] = self._of_line(form, batch.text(row))
        for key, series in found.items():
            self._of_writer[key] = self._of_writer.get(key, _NOBODY).more(series)
        for key, _, rows, writers, _ in written:
            of[rows] = self._of_writer[key].series_of(writers)
        return of

    def _of_line(self, form: Form, line: bytes) -> int:
        fields = form.tool.find(plain := uncoloured(line))
        index = self.of(form.tool, plain, fields.start) if fields is not None else self.of(form.tool, b"")
        if form.tool.name == BAR and b"loss=" in plain:
            self._trained.add(self._series[index])
        return index


def _principal(named: list[Series]) -> list[Series]:
    """The series of known tools without those whose lines say less of the same steps than others do."""
    names = {one.tool.name for one in named}
    less = {other for name, others in _LESS.items() if name in names for other in others}
    if "gnmt-epochs" in names and "gnmt" in names:  # the first steps of epochs alone tell no speed
        is_short = all(one.points < _BAR_LEAST for one in named if one.tool.name == "gnmt")
        less.add("gnmt" if is_short else "gnmt-epochs")
    return [one for one in named if one.tool.name not in less]


def _is_known(tool: Tool) -> bool:
    return not tool.is_guess and tool.name != BAR


def _numbers_steps(series: Series) -> bool:
    """Whether a loop that nobody knows tells the numbers of its steps, and a time or rate for each."""
    return series.tool.name == own_steps.NAME and series.first_step is not None


def _is_loop(series: Series, *, trains: bool = False) -> bool:
    """Whether the series of a known tool is a training loop."""
    least = _TRAINING_BAR_LEAST if trains else _BAR_LEAST
    return series.points >= (least if series.tool.name == BAR else 1)
