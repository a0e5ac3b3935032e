"""One series of step lines while it grows: repeated lines left out, neighbours folded when it gets long."""

import re

from nccl_doctor.common.robust import median
from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.formats.training.loss_scale import Losses
from nccl_doctor.formats.training.step_formats import Point, Tool

KEEP = 1_024  # rows that a long series keeps at least
BULK = 8  # lines that become one row from which on they need not be read each
_BACK = 64  # a step so far behind the last one is a line of another rank, not a new pass
_STAMP = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_STAMP_TEXT = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")
_BATCH = b"global batch size: "
Line = tuple[Point, int, bytes, float | None]  # point, line number, text, when


def stamp_span(prefix: bytes) -> tuple[int, int]:
    """Where the date and time is in a prefix; the rest of the prefix is the same on all lines of a rank."""
    match = _STAMP.search(prefix)
    return match.span() if match else (len(prefix), len(prefix))


def stamp_of(text: str) -> float | None:
    """Seconds since the epoch of the first date in a line, read as UTC."""
    match = _STAMP_TEXT.search(text[:200])
    return iso_seconds(match[0]) if match is not None else None


def _cost(point: Point) -> float:
    """Seconds of a step, or something proportional to it."""
    return point[2] if point[2] is not None else 1 / point[3] if point[3] else 0.0


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


class Row:
    """One line, or neighbours folded."""

    __slots__ = (
        "data",
        "last_step",
        "line",
        "n",
        "number",
        "rate",
        "seconds",
        "slowest",
        "slowest_step",
        "step",
        "when",
    )

    def __init__(self, lines: list[Line], count: int = 0) -> None:
        """Fold lines, which may be a sample of `count`: medians of what they say, and the slowest of them."""
        points = [line[0] for line in lines]
        worst, self.number, self.line, self.when = (
            max(lines, key=lambda line: _cost(line[0])) if len(lines) > 1 else lines[0]
        )
        self.n = count or len(lines)
        self.step, self.last_step, self.slowest_step = points[0][1], points[-1][1], worst[1]
        self.seconds = _median([p[2] for p in points if p[2] is not None])
        self.rate = _median([p[3] for p in points if p[3] is not None])
        self.data = max((p[4] for p in points if p[4] is not None), default=None)
        self.slowest = max(_cost(worst) / self.cost, 1.0) if self.cost else 1.0

    @property
    def cost(self) -> float:
        return self.seconds if self.seconds is not None else 1 / self.rate if self.rate else 0.0

    def fold(self, other: "Row") -> None:
        """Take in the row that follows."""
        mine, its = self.cost * self.slowest, other.cost * other.slowest
        if its > mine:
            self.slowest_step, self.line, self.number, self.when = (
                other.slowest_step,
                other.line,
                other.number,
                other.when,
            )
        self.seconds = _typical(self.seconds, other.seconds, faster_is_less=True)
        self.rate = _typical(self.rate, other.rate, faster_is_less=False)
        self.slowest = max(mine / self.cost, its / self.cost, 1.0) if self.cost else 1.0
        self.data = max((d for d in (self.data, other.data) if d is not None), default=None)
        self.last_step = other.last_step
        self.n += other.n


def _typical(a: float | None, b: float | None, *, faster_is_less: bool) -> float | None:
    """The mean of two neighbours; the faster one where they differ by more than half, so that stalls do not smear."""
    if a is None or b is None:
        return a if b is None else b
    if max(a, b) > 1.5 * min(a, b):
        return min(a, b) if faster_is_less else max(a, b)
    return (a + b) / 2


class Series:
    """Steps that one process printed with one tool."""

    def __init__(self, tool: Tool, host: str | None, rank: int | None) -> None:
        self.tool = tool
        self.host = host
        self.rank = rank
        self.rows: list[Row] = []
        self.points = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.batch: int | None = None
        self.total: float | None = None
        self.losses = Losses()
        self._waiting: list[Line] = []
        self.chunk = 1  # lines that become one row
        self._batch_text = b""
        self._bars: dict[tuple[bytes | None, bytes, bytes], int] = {}

    def add(self, point: Point, line: bytes, number: int, when: float | None = None) -> bool:
        """Append a step; False where another rank has printed the same one."""
        step = point[1]
        if step is not None:
            last = self.last_step
            if last is None:
                self.first_step = step
            elif last - _BACK < step <= last and self.tool.name != "tqdm":
                return False
            self.last_step = step
        self.points += 1
        waiting = self._waiting
        waiting.append((point, number, line, when))
        if len(waiting) >= self.chunk:
            row = Row(waiting)
            waiting.clear()
            self._append(row)
        return True

    def follows(self, step: int | None) -> bool:
        """True where a step goes on from the last one."""
        return step is not None and (self.last_step is None or step > self.last_step)

    def add_many(self, first: Line, middle: Line, slowest: Line, last: Line, count: int) -> None:
        """Append a row of `count` lines, of which these were read."""
        if self._waiting:
            self.rows.append(Row(self._waiting))
            self._waiting = []
        row = Row([slowest, middle, middle], count)
        row.step, row.last_step = first[0][1], last[0][1]
        row.seconds, row.rate = middle[0][2], middle[0][3]
        self.last_step = row.last_step
        self.points += count
        self._append(row)

    def _append(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) >= 2 * KEEP:
            self._halve()
            self.chunk *= 2

    def same_batch(self, block: bytes, start: int, stop: int, count: int) -> bool:
        """True where all lines of `block[start:stop]` have the batch of the last line read."""
        return not self._batch_text or block.count(_BATCH + self._batch_text, start, stop) == count

    def repeated(self, identity: tuple[bytes | None, bytes, bytes], elapsed: int) -> bool:
        """True where the same bar showed this step at the same time: another rank's bar, or a redraw."""
        before = self._bars.get(identity)
        if before is not None and abs(before - elapsed) <= max(2, before // 50):
            return True
        if len(self._bars) < 50_000:
            self._bars[identity] = elapsed
        return False

    def end(self, most: int) -> None:
        """Close the series: fold neighbours until there are at most `most` rows."""
        if self._waiting:
            self.rows.append(Row(self._waiting))
            self._waiting = []
        while len(self.rows) > most:
            self._halve()

    def _halve(self) -> None:
        for first, second in zip(self.rows[::2], self.rows[1::2], strict=False):
            first.fold(second)
        self.rows = self.rows[::2]

    def batch_of(self, line: bytes) -> int | None:
        """The batch that Megatron prints in each line; it grows during a ramp-up."""
        at = line.find(_BATCH)
        if at >= 0:
            text = line[at + 19 : at + 29]
            if text != self._batch_text:
                self._batch_text = text
                digits = text.split()[:1]
                self.batch = int(digits[0]) if digits and digits[0].isdigit() else None
        return self.batch

    def scope(self, gpus: int | None) -> str:
        """What one rate counts. tf_cnn_benchmarks under Horovod prints that of its process and the total of all at the end."""
        if self.tool.name == "tf-cnn-benchmarks" and self.total and gpus and gpus > 1:
            rates = sorted(row.rate for row in self.rows if row.rate)
            if rates and self.total > 1.5 * rates[len(rates) // 2]:
                return "process"
        return self.tool.scope
