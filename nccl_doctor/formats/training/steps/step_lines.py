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
from nccl_doctor.formats.training.lines.block_lines import newlines
from nccl_doctor.formats.training.lines.recent_lines import RecentLines
from nccl_doctor.formats.training.official_stamps import stamps
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.last_loss import LINES, LastLoss
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.loss_values import LossValues
from nccl_doctor.formats.training.steps.programs.step_numbers import StepNumbers
from nccl_doctor.formats.training.steps.programs.trainer_dicts import TrainerDicts
from nccl_doctor.formats.training.steps.step_blocks import BlockSteps, Forms
from nccl_doctor.formats.training.steps.step_columns import Steps
from nccl_doctor.formats.training.steps.step_formats import BAR, Tool
from nccl_doctor.formats.training.steps.step_launch import Launch
from nccl_doctor.formats.training.steps.step_places import (
    COMM,
    KINDS,
    NUMBERED,
    REDUCED,
    SETTINGS,
    STAMPS,
    TOTAL,
    Other,
    Places,
    places_of,
)  # fmt: skip
from nccl_doctor.formats.training.steps.step_rows import run_rows, text_of
from nccl_doctor.formats.training.steps.step_series import Series
from nccl_doctor.inputs.blocks import Block, blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 21  # bytes: the numbers of their lines fit the cache
_MAX_EVENTS = 5_000
_MAX_RUNS = 64  # of one log; ranks that print the same steps tell nothing new


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the step lines of a log.

    Source: the programs of `step_formats` and `tensorflow_steps`, each with what it prints (Megatron-LM `training.py`, …)::

         iteration       20/     100 | consumed samples:          640 | elapsed time per iteration (ms): 812.4 | learning rate: ...
        [2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop] 0/20, SamplesPerSec=157.3, MemAllocated=11.2GB
    """
    facts.mark_covered("throughput_run", "step", "run_setting", "loss_scale", "training_event", "comm_op", "scalar")
    reader = _Reader(name)
    block = Block(b"", 1)
    for block in blocks(stream, _BLOCK, reader.line_ends):
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
        self._dicts = TrainerDicts()
        self._has_dicts = False  # `{'loss': 1.9, …}` was printed
        self.last_loss = LastLoss()
        self.bench = all_reduce_bench.AllReduceBench()
        self._labels: dict[bytes, int] = {}  # of progress bars
        self._forms = Forms()
        self._recent = RecentLines()
        self._ends = 0  # lines of the last block
        self._numbers = StepNumbers()
        self._overflows: list[tuple[bytes, int]] = []  # lowered loss scales that were not taken yet
        # of one launch
        self._launch = Launch(self._recent)
        self._total_line = b""

    def block(self, block: bytes, number: int) -> None:
        """Take all lines of a block that hold a literal."""
        self._recent.add(block)
        places = places_of(block, number, self._forms.layouts, with_guesses=not self._launch.is_known())
        self._ends = places.lines.ends if places is not None else newlines(block)
        if places is not None:
            self._read(places)
        for end in self._recent.leaving():
            self._launch.keep(end)

    def line_ends(self, _: bytes) -> int:
        """How many line ends the last block has."""
        return self._ends

    def _read(self, places: Places) -> None:
        others = places.other_lines()
        places = places.without(others)
        every: Places | None = None  # found once for all launches that begin in this block
        noted = -1  # piece
        for other in others:
            if other.word in SETTINGS:
                if other.piece != noted:  # all settings of a piece are taken at once
                    begins, places = self._setting(other, places)
                    if begins:
                        every = every or places.with_guesses().without(others)
                        places = every.before(other.place)[1]
                noted = other.piece
            elif other.word == STAMPS:
                places = self._take(places, other.place)
                self._stamps(other.line, other.number)
            else:
                self._other(other)
        self._take(places, len(places.lines.block))

    def _setting(self, other: Other, places: Places) -> tuple[bool, Places]:
        """Take a setting. Returns whether it begins a launch, which another world size does, and the places that are left."""
        begins = False
        if self.settings.note(other.line):
            places = self._take(places, other.place)
            if any(series.points for series in self._launch.series):
                begins = True
                settings = self.settings
                self.settings = _before(settings)
                self.launch_ends()
                self.settings = settings
                settings.layout = Layout()
        self.settings.layout.note(other.line, other.number)
        return begins, places

    def _take(self, places: Places, end: int) -> Places:
        """Take the steps up to a place, and what was printed beside them. Returns the others."""
        these, rest = places.before(end)
        self._put(self._forms.read(these.known() if self._launch.is_known() else these))
        self._take_overflows()
        return rest

    def _take_overflows(self) -> None:
        for line, number in self._overflows:
            if self._launch.series:  # DeepSpeed and Apex print them beside the step lines
                self._launch.series[0].overflow(line, number)
            else:
                self.settings.early_overflows.append((line, number))
        self._overflows = []

    def _put(self, read: BlockSteps) -> None:
        """Take steps of one launch."""
        steps = Steps(len(read.batch.start), {})
        for written in read.written:
            self.understood += len(written.rows)
            steps.put_all(written.rows, written.steps)
            if written.form.tool.name == BAR:
                label = self._labels.setdefault(written.form.fields.label, len(self._labels))
                steps.put("label", written.rows, label)
            elif "step" not in written.steps:
                self._numbers.fill(steps, written.rows, read.batch.numbers)
        self.understood += sum(len(rows) for _, rows, _ in read.losses)
        self._has_dicts = self._has_dicts or bool(read.losses)
        self.values.take(read.losses, read.batch.text, read.batch.numbers)
        if read.losses and not self._dicts.is_full:
            for row in sorted(row for _, rows, _ in read.losses for row in rows.tolist()):
                self._dicts.take(read.batch.text(row), int(read.batch.numbers[row]))
        if read.written:
            last = sorted(row for written in read.written for row in written.rows[-LINES:].tolist())[-LINES:]
            self.last_loss.take(last, read.batch.text, read.batch.numbers)
        if read.written:
            self._launch.put(read.batch, steps, read.written)

    def _other(self, other: Other) -> None:
        """Take a line that is not a step."""
        literal, line, number = other.word, other.line, other.number
        if literal == COMM:
            self.understood += self.comm.note(line, number)
        elif literal in KINDS:
            if len(self.events) < _MAX_EVENTS:
                self.events.append((number, KINDS[literal], line))
        elif literal in NUMBERED:
            self._numbers.note(line, number)
        elif literal in Losses.LITERALS:
            self._overflows.append((line, number))
        elif literal in REDUCED:
            self.comm.note_gradients(line, number)
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
        loops = self._launch.loops(has_losses=self._has_dicts)
        for series in loops:
            for line, number in self.settings.early_overflows:
                series.overflow(line, number)
            series.keep()
        self.done += [(one, self.settings) for one in loops[:_MAX_RUNS]]
        self._launch = Launch(self._recent)
        self._forms.clear()

    def rows(self, facts: Facts, run: int) -> Iterator[Any]:
        """All rows, once the log has been read."""
        share = max(128, 32_768 // max(len(self.done), 8))
        for series, settings in self.done:
            series.end(share)
            yield from run_rows(facts, self.name, run, series, settings)
            yield from settings.layout.rows(facts, self.name, run)
            run += 1
        if not self.done:
            yield from self._dicts.rows(facts, self.name, run, self.settings)
        for number, kind, line in self.events:
            yield TrainingEvent(self.name, number, kind, facts.evidence(self.name, number, text_of(line)))
        yield from self.comm.rows(facts, self.name)
        yield from self.bench.rows(facts, self.name)
        told = list(self.values.rows(facts, self.name))
        yield from told
        if self.done and not told:
            yield from self.last_loss.rows(facts, self.name)


def _before(settings: Settings) -> Settings:
    """The settings of the launch that ends, whose world size was just replaced."""
    old = Settings()
    old.__dict__.update(settings.__dict__)
    old.world = settings.previous
    settings.early_overflows = []
    return old
