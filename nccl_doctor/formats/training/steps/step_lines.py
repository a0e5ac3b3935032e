"""Step lines of training programs inside a log: series of seconds and rates per run.

Lines are found by literals (see `step_formats`), so that text without steps costs one scan, and their numbers are read in columns
(`step_columns`). A series keeps some thousand rows: when it grows, neighbours are folded into one row that still shows its slowest line.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TrainingEvent
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training import all_reduce_bench
from nccl_doctor.formats.training.deepspeed_comms import CommOps
from nccl_doctor.formats.training.layout import Layout
from nccl_doctor.formats.training.official_stamps import stamps
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.block_lines import newlines
from nccl_doctor.formats.training.steps.line_layouts import Layouts
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.loss_values import LossValues
from nccl_doctor.formats.training.steps.recent_lines import RecentLines
from nccl_doctor.formats.training.steps.step_columns import Form, Steps, form_of
from nccl_doctor.formats.training.steps.step_formats import BAR, Tool
from nccl_doctor.formats.training.steps.step_launch import Launch, Written
from nccl_doctor.formats.training.steps.step_places import (
    COMM,
    KINDS,
    LITERALS,
    LOSSES,
    REDUCED,
    SETTINGS,
    STAMPS,
    TOOL_OF,
    TOTAL,
    Batch,
    Places,
    StepGroup,
    places_of,
)  # fmt: skip
from nccl_doctor.formats.training.steps.step_rows import run_rows, text_of
from nccl_doctor.formats.training.steps.step_series import Series
from nccl_doctor.inputs.blocks import Block, Cursor, blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 21  # bytes: the numbers of their lines fit the cache
_MAX_EVENTS = 5_000
_MAX_RUNS = 64  # of one log; ranks that print the same steps tell nothing new
_MEMO = 50_000  # forms remembered


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the step lines of a log.

    Source: the programs of `step_formats.TOOLS`, each with what it prints (Megatron-LM `training.py`, DeepSpeed `timer.py`, …)::

         iteration       20/     100 | consumed samples:          640 | elapsed time per iteration (ms): 812.4 | learning rate: ...
        [2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop] 0/20, SamplesPerSec=157.3, MemAllocated=11.2GB
    """
    facts.mark_covered("throughput_run", "step", "run_setting", "loss_scale", "training_event", "comm_op", "scalar")
    reader = _Reader(name)
    block = Block(b"", 1)
    for block in blocks(stream, _BLOCK, newlines):
        reader.block(block.data, block.first)
    lines = block.first + newlines(block.data) - (block.data.endswith(b"\n") or not block.data)
    reader.launch_ends()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(reader.rows(facts, first))
    return Reading(lines, reader.understood)


class _Reader:
    """One log while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.understood = 0
        self.settings = Settings()
        self.done: list[tuple[Series, Settings]] = []
        self.events: list[tuple[int, str, bytes]] = []
        self.comm = CommOps()
        self.values = LossValues()
        self.bench = all_reduce_bench.AllReduceBench()
        self._labels: dict[bytes, int] = {}  # of progress bars
        self._forms: dict[int, Form | None] = {}  # by the key of the lines
        self._layouts = Layouts()
        self._recent = RecentLines()
        # not taken yet: where lines are that are no steps, and lowered loss scales
        self._taken: list[tuple[int, int]] = []
        self._overflows: list[tuple[bytes, int]] = []
        # of one launch
        self._launch = Launch(self._recent)
        self._total_line = b""

    def block(self, block: bytes, number: int) -> None:
        """Take all lines of a block that hold a literal."""
        self._recent.add(block)
        steps = places_of(block, number, self._layouts, with_guesses=not self._launch.is_known())
        if steps is not None:
            self._read(steps)
        for end in self._recent.leaving():
            self._launch.keep(end)

    def _read(self, steps: Places) -> None:
        cursor = Cursor(steps.lines.block, steps.number)
        noted = -1  # piece
        for place, literal in zip(steps.others.tolist(), steps.of_others.tolist(), strict=True):
            if place <= cursor.used:
                continue
            line, line_number = cursor.line(place)
            word = LITERALS[literal]
            if word in SETTINGS:
                if cursor.piece != noted:  # all settings of a piece are taken at once
                    steps = self._setting(line, line_number, steps, place)
                noted = cursor.piece
            elif word in Losses.LITERALS:
                self._overflows.append((line, line_number))
                cursor.done()
            elif word == STAMPS:
                steps = self._take(steps, place)
                self._stamps(line, line_number)
                cursor.done()
            elif word in REDUCED:
                self.comm.note_gradients(line, line_number)
            else:
                self._other(word, line, line_number)
                self._taken.append((cursor.piece, cursor.end))
                cursor.done()
        self._take(steps, len(steps.lines.block))

    def _setting(self, line: bytes, number: int, steps: Places, place: int) -> Places:
        """Take a setting; another world size begins a launch. Returns the steps that are left."""
        if self.settings.note(line):
            steps = self._take(steps, place)
            if any(series.points for series in self._launch.series):
                settings = self.settings
                self.settings = _before(settings)
                self.launch_ends()
                self.settings = settings
                settings.layout = Layout()
                steps = steps.with_guesses(place)
        self.settings.layout.note(line, number)
        return steps

    def _take(self, steps: Places, end: int) -> Places:
        """Take the steps up to a place, and what was printed beside them. Returns the others."""
        these, rest = steps.before(end)
        these = these.without(self._taken)
        self._steps(these)
        for line, number in self._overflows:
            if self._launch.series:  # DeepSpeed and Apex print them beside the step lines
                self._launch.series[0].overflow(line, number)
            else:
                self.settings.early_overflows.append((line, number))
        self._taken, self._overflows = [], []
        return rest

    def _steps(self, places: Places) -> None:
        """Take step lines of one launch."""
        if self._launch.is_known():
            places = places.known()
        if len(self._forms) > _MEMO:
            self._forms.clear()
            self._layouts.clear()
        batch, groups = places.groups(self._layouts)
        if groups:
            self._together(batch, groups)

    def _together(self, batch: Batch, groups: list[StepGroup]) -> None:
        steps = Steps(len(batch.parts), {})
        losses, written = [], []
        for group, literals in groups:
            key, rows, numbers = group
            if LOSSES in literals:
                losses.append(group)
                self.understood += len(rows)
            if key not in self._forms:
                tools = [tool for which in dict.fromkeys(literals) if (tool := TOOL_OF[which]) is not None]
                tools.sort(key=lambda tool: tool.is_guess)
                self._forms[key] = form_of(batch.text(int(rows[0])), tools)
            form = self._forms[key]
            if form is None:
                continue
            read, none = form.read(numbers)
            writers = numbers.writers(form.who)
            if none.any():
                rows, writers = rows[~none], writers[~none]
                if not len(rows):
                    continue
                read = read.chosen(~none, len(rows))
            self.understood += len(rows)
            written.append(Written(key, form, rows, writers))
            steps.put_all(rows, read)
            if form.tool.name == BAR:
                steps.put("label", rows, self._labels.setdefault(form.fields.label, len(self._labels)))
        self.values.take(losses, batch.text, batch.numbers)
        self._launch.put(batch, steps, written)

    def _other(self, literal: bytes, line: bytes, number: int) -> None:
        """Take a line that is not a step."""
        if literal in KINDS:
            if len(self.events) < _MAX_EVENTS:
                self.events.append((number, KINDS[literal], line))
        elif literal == COMM:
            self.understood += self.comm.note(line, number)
        elif literal in all_reduce_bench.LITERALS:
            self.understood += self.bench.note(line, number)
        else:
            self._total_line = line

    def _stamps(self, line: bytes, number: int) -> None:
        found = stamps(line)
        if found is None:
            return
        series = self._launch.series[self._launch.of(Tool(STAMPS, "tf-official", "samples/s", "job"), b"")]
        if series.points:  # the same steps were printed as they ran
            return
        series.batch, series.total = found.batch, found.overall
        for step, seconds, when in found.points:
            series.add((step, seconds, None, None), line, number, when)
        self.understood += 1

    def _take_total(self) -> None:
        """Take the rate of the whole run that tf_cnn_benchmarks prints at its end."""
        text = self._total_line.rpartition(TOTAL)[2].split()
        with suppress(ValueError, IndexError):
            total = float(text[0])
            for series in self._launch.series:
                if series.tool.name == "tf-cnn-benchmarks":
                    series.total = total
        self._total_line = b""

    def launch_ends(self) -> None:
        """Close the series that belong to one world size."""
        self._take_total()
        loops = self._launch.loops()
        for series in loops:
            for line, number in self.settings.early_overflows:
                series.overflow(line, number)
            series.keep()
        self.done += [(one, self.settings) for one in loops[:_MAX_RUNS]]
        self._launch = Launch(self._recent)
        self._forms.clear()
        self._layouts.clear()

    def rows(self, facts: Facts, run: int) -> Iterator[Any]:
        """All rows, once the log has been read."""
        share = max(128, 32_768 // max(len(self.done), 8))
        for series, settings in self.done:
            series.end(share)
            yield from run_rows(facts, self.name, run, series, settings)
            yield from settings.layout.rows(facts, self.name, run)
            run += 1
        for number, kind, line in self.events:
            yield TrainingEvent(self.name, number, kind, facts.evidence(self.name, number, text_of(line)))
        yield from self.comm.rows(facts, self.name)
        yield from self.bench.rows(facts, self.name)
        yield from self.values.rows(facts, self.name)


def _before(settings: Settings) -> Settings:
    """The settings of the launch that ends, whose world size was just replaced."""
    old = Settings()
    old.__dict__.update(settings.__dict__)
    old.world = settings.previous
    settings.early_overflows = []
    return old
