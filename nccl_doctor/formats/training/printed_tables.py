"""Tables that training libraries draw on the terminal: Stable-Baselines3's blocks, and the rows of epochs of skorch and fastai."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.epoch_lines import NAME, UNIT
from nccl_doctor.formats.training.steps.step_formats import Tool
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import Series
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"\| {4}fps  |^ {2}epoch {2,}\S[^\n]{0,400} dur(?:\s|$)|^epoch {2,}train_loss [^\n]{0,400} time", re.MULTILINE
)
_CELL = re.compile(r"\| {4}(fps|time_elapsed|total_timesteps) {1,60}\| (\d{1,15}(?:\.\d{1,6})?(?:e\+\d\d)?) {0,40}\|")
_TITLES = re.compile(r"(?: {2})?epoch(?: {1,40}\S{1,60}){2,30}\s*$")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d\d)$")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?$")
_FRAMES = Tool(b"", "stable-baselines3", "samples/s", "job")
_EPOCHS = Tool(b"", NAME, UNIT, "job")
_KEEP = 60
_MOST = 1024  # rows of a run


class _Block(NamedTuple):
    """A block of Stable-Baselines3 that is open."""

    fps: float | None = None
    elapsed: float | None = None


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each table: steps of the environment a second, or seconds an epoch.

    Source: Stable-Baselines3 2 `common/logger.py`, skorch 1 `callbacks/logging.py`, fastai 2 `callback/progress.py`. `fps` is an
    average since the start, so the whole seconds beside it count from row to row where they grew::

        |    fps             | 915      |
        |    total_timesteps | 256      |
          epoch    train_loss    valid_loss     dur
              1        0.3502        0.2248  1.2781
    """
    facts.mark_covered("throughput_run", "step")
    sections = Sections(stream, _HEADS, _KEEP)
    writers: dict[str | None, _Writer] = {}
    used = 0
    for number, label, text in sections:
        writer = writers.get(label.host)
        if writer is None:
            writer = writers[label.host] = _Writer(label.host, label.rank)
        if writer.take(text, number):
            used += 1
            sections.used()
    run = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    for writer in writers.values():
        for series in writer.series():
            series.end(_MOST)
            facts.add(run_rows(facts, name, run, series, Settings()))
            run += 1
    return Reading(sections.lines, used)


class _Writer:
    """The tables of one process."""

    def __init__(self, host: str | None, rank: int | None) -> None:
        self._frames = Series(_FRAMES, host, rank)
        self._epochs = Series(_EPOCHS, host, rank)
        self._block = _Block()
        self._before: tuple[float, float] | None = None  # seconds and steps of the environment
        self._titles: list[str] = []

    def series(self) -> Iterator[Series]:
        """Those that hold something."""
        yield from (series for series in (self._frames, self._epochs) if series.points)

    def take(self, text: str, number: int) -> bool:
        """Take a line; False for one of no table."""
        if (cell := _CELL.search(text)) is not None:
            self._cell(cell[1], float(cell[2]), text, number)
            return True
        if _TITLES.match(text) is not None:
            self._titles = text.split()
            return True
        return bool(self._titles) and self._row(text, number)

    def _cell(self, name: str, value: float, text: str, number: int) -> None:
        if name == "fps":
            self._block = _Block(value)
        elif name == "time_elapsed":
            self._block = self._block._replace(elapsed=value)
        elif self._block.fps is not None:
            rate, elapsed = self._block.fps, self._block.elapsed
            if elapsed is not None:
                before, self._before = self._before, (elapsed, value)
                if before is not None and elapsed - before[0] >= 1 and value > before[1]:
                    rate = (value - before[1]) / (elapsed - before[0])
                elif before is not None and value > before[1]:
                    self._before = before  # less than a second passed: a later row tells
            if rate > 0:
                self._frames.add((int(value), None, rate, None), text.strip().encode(), number, None)
            self._block = _Block()

    def _row(self, text: str, number: int) -> bool:
        """A row of epochs; the last number of skorch and the clock of fastai are its time."""
        cells = text.split()
        if cells and set(text) <= set("- "):
            return True
        if len(cells) < 3 or not cells[0].isdecimal() or len(cells[0]) > 9:
            return False
        times = [at for at, title in enumerate(self._titles) if title in ("dur", "time")]
        last = cells[-1] if len(cells) < len(self._titles) or not times else cells[times[0]]
        seconds = _seconds(last)
        if seconds:
            self._epochs.add((int(cells[0]), seconds, None, None), text.strip().encode(), number, None)
        return seconds is not None


def _seconds(text: str) -> float | None:
    if (clock := _CLOCK.match(text)) is not None:
        return int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60 + int(clock[3])
    return float(text) if _NUMBER.match(text) else None
