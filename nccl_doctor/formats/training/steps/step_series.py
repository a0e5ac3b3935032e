"""One series of step lines while it grows: repeated lines left out, neighbours folded when it gets long."""

import re
from functools import lru_cache, reduce
from itertools import chain

import numpy as np

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.formats.training.lines.recent_lines import RecentLines
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.step_folds import (
    NONE,
    Line,
    Lines,
    Point,
    RowParts,
    Rows,
    folded,
    joined,
    lines_of,
    whole,
)
from nccl_doctor.formats.training.steps.step_formats import BAR, Tool
from nccl_doctor.formats.training.steps.step_repeats import StepRepeats

KEEP = 1_024  # rows that a long series keeps at least
BULK = 8  # lines that become one row from which on records need not be read each
SETTLE = 1_024  # lines that wait until they are folded together, at least
_TOGETHER = 64  # rows of `add_many` that are made at once
_MEDIAN = 256  # lines of which a median is taken; rows of more lines are folded from such rows
STAMP_TEXT = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")


def stamp_of(text: str) -> float | None:
    """Seconds since the epoch of the first date in a line, read as UTC."""
    match = STAMP_TEXT.search(text[:200])
    return seconds_of(match[0]) if match is not None else None


@lru_cache(1 << 15)  # ranks print the same times
def seconds_of(stamp: str) -> float | None:
    """The same of a date alone."""
    return iso_seconds(stamp)


class Series:
    """Steps that one process printed with one tool."""

    def __init__(
        self,
        tool: Tool,
        host: str | None,
        rank: int | None,
        recent: RecentLines | None = None,
        local_rank: int | None = None,
        task: int | None = None,
    ) -> None:
        """`recent` are the lines whose places `put` gets."""
        self._recent = recent or RecentLines()
        self.tool = tool
        self.host = host
        self.rank = rank
        self.local_rank = local_rank
        self.task = task  # which of the nodes, as srun numbers them
        self.batch: int | None = None
        self.total: float | None = None
        self.losses = Losses()
        self.chunk = 1  # lines that become one row
        self._points = 0
        self._rows = RowParts()
        self._few = NONE  # rows that are not as long yet
        self._waiting: list[Lines] = []  # what `put` gave
        self._single: list[Line] = []  # what `add` gave
        self._count = 0  # of both
        self._many: list[tuple[Line, Line, Line, Line, int]] = []  # what `add_many` gave
        self._rest: Lines | None = None  # fewer lines than a row has
        self._scale = np.nan  # of the last line
        self._overflows: list[tuple[int, bytes]] = []
        self._repeats = StepRepeats(tool.name == BAR)

    @property
    def first_step(self) -> int | None:
        """The step with which it began."""
        return self._repeats.first

    def begin(self, step: int) -> None:
        """Take the first step of a series of which only the last one is known."""
        self._repeats.first = step

    @property
    def last_step(self) -> int | None:
        """The step of the last line."""
        return self._repeats.last

    @property
    def points(self) -> int:
        """Steps so far."""
        self._settle()
        return self._points

    def rows(self) -> Rows:
        """The rows of a series that was ended."""
        return self._rows.whole()

    def add(self, point: Point, line: bytes, number: int, when: float | None = None) -> None:
        """Append a step."""
        self._single.append((point, number, line, when))
        self._count += 1
        if self._count >= SETTLE:
            self._settle()

    def put(self, lines: Lines, limit: int) -> None:
        """Append the steps of lines; fold them where so many of the series wait."""
        if self._single:
            self._settle()
        self._waiting.append(lines)
        self._count += len(lines.number)
        if self._count >= limit:
            self._settle()

    def keep(self, end: int | None = None) -> None:
        """Copy the lines that wait, of those in front of a place, because their block will be gone."""
        self._waiting = [self._kept(part, end) for part in self._waiting]
        self._rest = self._rest and self._kept(self._rest, end)

    def _kept(self, lines: Lines, end: int | None) -> Lines:
        is_leaving = lines.line.dtype != object and (end is None or lines.line[0] < end)
        return lines._replace(line=self._recent.copies(lines.line)) if is_leaving else lines

    def overflow(self, line: bytes, number: int) -> None:
        """Take a lowered loss scale, which some programs print beside the step lines."""
        self._overflows.append((number, line))
        if len(self._overflows) >= SETTLE:
            self._settle()

    def follows(self, step: int | None) -> bool:
        """True where a step goes on from the last one."""
        if self._count:
            self._settle()
        return step is not None and (self.last_step is None or step > self.last_step)

    def add_many(self, first: Line, middle: Line, slowest: Line, last: Line, count: int) -> None:
        """Append a row of `count` records, of which these were read."""
        if self._count or self._overflows or self._rest is not None or len(self._few.n):
            self._settle()
            self._finish()
        self._many.append((first, middle, slowest, last, count))
        self._repeats.last = last[0][0]
        self._points += count
        if len(self._many) >= _TOGETHER or self._rows.count + len(self._many) >= 2 * KEEP:
            self._append_many()

    def _append_many(self) -> None:
        """Append the rows of `add_many` that wait."""
        if not self._many:
            return
        firsts, middles, slowest, lasts, counts = zip(*self._many, strict=True)
        self._many = []
        threes = zip(slowest, middles, middles, strict=True)
        rows = folded(lines_of(list(chain.from_iterable(threes))), 3)
        begin, end = (np.array([step for (step, *_), *_ in lines], float) for lines in (firsts, lasts))
        values = lines_of(list(middles)).steps
        n = np.array(counts, float)
        self._append(rows._replace(step=begin, last_step=end, n=n, seconds=values["seconds"], rate=values["rate"]))

    def _settle(self) -> None:
        """Fold the lines that wait."""
        self._append_many()
        lines = self._new()
        if lines is not None:
            if self._rest is not None:
                lines = joined([self._rest, lines])
                self._rest = None
            while lines is not None and len(lines.number) >= (size := min(self.chunk, _MEDIAN)):
                ratio = self.chunk // size
                room = (2 * KEEP - self._rows.count) * self.chunk - len(self._few.n) * size
                count = min(len(lines.number), room) // size * size
                self._few = self._few.joined(self._fold(lines.cut(0, count), size))
                lines = lines.cut(count, len(lines.number)) if count < len(lines.number) else None
                full = len(self._few.n) // ratio * ratio
                if full:
                    rows = reduce(lambda rows, _: rows.folded(), range(ratio.bit_length() - 1), self._few.cut(0, full))
                    self._few = self._few.cut(full)
                    self._append(rows)
            if lines is not None and lines.line.dtype == object:  # some were copied, and others are places
                lines = lines._replace(line=self._recent.copies(lines.line))
            self._rest = lines

    def _fold(self, lines: Lines, size: int) -> Rows:
        rows = folded(lines, size)
        return rows._replace(line=self._recent.copies(rows.line))

    def _new(self) -> Lines | None:
        """The lines that wait, without those that another rank has printed too; takes what they say of losses."""
        if self._single:
            self._waiting.append(lines_of(self._single))
            self._single = []
        overflows, self._overflows = self._overflows, []
        if not self._waiting:
            self._note_losses([], overflows)
            return None
        lines = joined(self._waiting)
        self._waiting, self._count = [], 0
        kept = self._repeats.new(lines.steps)
        if kept is not None:
            lines = lines.chosen(kept)
        self._points += len(lines.number)
        steps = lines.steps
        if "batch" in steps and not np.isnan(steps["batch"]).all():
            self.batch = int(steps["batch"][~np.isnan(steps["batch"])][-1])
        if "scale" in steps or "lost" in steps:
            self._note_scales(lines, overflows)
        else:
            self._note_losses([], overflows)
        return lines if len(lines.number) else None

    def _note_scales(self, lines: Lines, overflows: list[tuple[int, bytes]]) -> None:
        """Take what lines, and those beside them, say of losses."""
        scale = lines.steps["scale"]
        said = np.flatnonzero(~np.isnan(scale))
        scales = np.append(self._scale, scale[said])
        changed = np.zeros(len(lines.number), bool)
        changed[said[scales[1:] != scales[:-1]]] = True
        self._scale = scales[-1]
        which = np.flatnonzero(changed | (lines.steps["lost"] > 0))
        of = lines.chosen(which)
        steps_said = whole(of.steps["step"])
        self._note_losses(
            list(zip(of.number.tolist(), self._recent.copies(of.line).tolist(), steps_said, strict=True)), overflows
        )

    def _note_losses(self, lines: list[tuple[float, bytes, int | None]], overflows: list[tuple[int, bytes]]) -> None:
        events = [
            *((number, line, True, step) for number, line, step in lines),
            *((*one, False, None) for one in overflows),
        ]
        for number, line, is_step, step in sorted(events, key=lambda event: event[0]):
            if is_step:
                self.losses.line(self.tool.name, step, line, int(number))
            else:
                self.losses.overflow(line, int(number))

    def _append(self, rows: Rows) -> None:
        self._rows.add(rows)
        if self._rows.count >= 2 * KEEP:
            self._rows.fold()
            self.chunk *= 2

    def _finish(self) -> None:
        """Make rows of what is left, though they are shorter."""
        few = self._few
        self._few = NONE
        if self._rest is not None:
            few = few.joined(self._fold(self._rest, len(self._rest.number)))
            self._rest = None
        while len(few.n) > 1:
            few = few.folded()
        if len(few.n):
            self._rows.add(few)

    def end(self, most: int) -> None:
        """Close the series: fold neighbours until there are at most `most` rows."""
        self._settle()
        self._finish()
        while self._rows.count > most:
            self._rows.fold()

    def seconds(self) -> list[float]:
        """What the rows so far say of seconds."""
        self._settle()
        known = self._rows.whole().seconds
        return known[~np.isnan(known)].tolist()  # type: ignore[no-any-return]

    @property
    def has_rates(self) -> bool:
        """Whether any step has a rate."""
        self._settle()
        return bool((self._rows.whole().rate > 0).any())

    def scope(self, gpus: int | None) -> str:
        """What one rate counts. tf_cnn_benchmarks under Horovod prints that of its process and the total of all at the end."""
        if self.tool.name == "tf-cnn-benchmarks" and self.total and gpus and gpus > 1:
            rate = self._rows.whole().rate
            rates = sorted(rate[rate > 0].tolist())
            if rates and self.total > 1.5 * rates[len(rates) // 2]:
                return "process"
        return self.tool.scope
