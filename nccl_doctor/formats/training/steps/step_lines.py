"""Step lines of training programs inside a log: series of seconds and rates per run.

Lines are found by literals (see `step_formats`), so that text without steps costs one scan, and their numbers are read in columns
(`step_columns`). A series keeps some thousand rows: when it grows, neighbours are folded into one row that still shows its slowest line.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TrainingEvent
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training import all_reduce_bench, layout
from nccl_doctor.formats.training.deepspeed_comms import CommOps
from nccl_doctor.formats.training.layout import Layout
from nccl_doctor.formats.training.official_stamps import stamps
from nccl_doctor.formats.training.run_settings import LITERALS, Settings
from nccl_doctor.formats.training.steps import loss_values, own_steps
from nccl_doctor.formats.training.steps.loss_scale import Losses
from nccl_doctor.formats.training.steps.loss_values import LossValues
from nccl_doctor.formats.training.steps.step_columns import Form, Pieces, Steps, Texts, form_of, pieces, writer_of
from nccl_doctor.formats.training.steps.step_formats import TOOLS, Tool, uncoloured
from nccl_doctor.formats.training.steps.step_rows import run_rows, text_of
from nccl_doctor.formats.training.steps.step_series import Series
from nccl_doctor.inputs.blocks import Cursor, blocks
from nccl_doctor.inputs.prefilter import Prefilter, prefilter
from nccl_doctor.inputs.streams import Readable

_EVENTS = (
    (b"aving checkpoint", "checkpoint"),
    (b"aved checkpoint", "checkpoint"),
    (b"aving model checkpoint", "checkpoint"),
    (b"alidation loss at iteration", "evaluation"),
    (b"Running Evaluation", "evaluation"),
    (b" | valid | ", "evaluation"),
)
_STAMPS = b"BatchTimestamp<batch_index: "
_COMM = b"| comm op: "
_REDUCED = b"ward_allreduce: ", b" bwd_allreduce: "
_TOTAL = b"total images/sec: "
_TOOLS = {tool.literal: tool for tool in (*own_steps.TOOLS, *TOOLS)}
_KINDS = dict(_EVENTS)
_SETTINGS = frozenset((*LITERALS, *layout.LITERALS))
_MAX_EVENTS = 5_000
_MAX_RUNS = 64  # of one log; ranks that print the same steps tell nothing new
_TOGETHER = 1 << 14  # lines of which numbers are read together
_MEMO = 50_000  # forms and writers remembered
_BAR_LEAST = 8  # points from which a progress bar is taken for a training loop


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the step lines of a log.

    Source: the programs of `step_formats.TOOLS`, each with what it prints (Megatron-LM `training.py`, DeepSpeed `timer.py`, …)::

         iteration       20/     100 | consumed samples:          640 | elapsed time per iteration (ms): 812.4 | learning rate: ...
        [2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop] 0/20, SamplesPerSec=157.3, MemAllocated=11.2GB
    """
    facts.mark_covered("throughput_run", "step", "run_setting", "loss_scale", "training_event", "comm_op", "scalar")
    reader = _Reader(name)
    lines = 0
    for block in blocks(stream):
        reader.block(block.data, block.first)
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
    reader.launch_ends()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(reader.rows(facts, first))
    return Reading(lines, reader.understood)


_LITERALS = sorted(
    {
        *_TOOLS,
        *_KINDS,
        *_SETTINGS,
        _STAMPS,
        _COMM,
        *_REDUCED,
        _TOTAL,
        loss_values.LITERAL,
        *all_reduce_bench.LITERALS,
        *Losses.LITERALS,
    }
)
_OF_LITERAL = [_TOOLS.get(literal) for literal in _LITERALS]
_LOSSES = _LITERALS.index(loss_values.LITERAL)
_IS_TOOL = np.array([tool is not None or which == _LOSSES for which, tool in enumerate(_OF_LITERAL)])
_IS_GUESS = np.array([tool is not None and tool.is_guess for tool in _OF_LITERAL])


@cache
def _gate(with_guesses: bool) -> tuple[Prefilter, Numbers]:
    """Finds literals; and what the index of each is among all."""
    wanted = [index for index, is_guess in enumerate(_IS_GUESS) if with_guesses or not is_guess]
    found = prefilter(frozenset(_LITERALS[index] for index in wanted), name="steps" if with_guesses else "known-steps")
    return found, np.array(wanted)  # both in the order of their literals


def _places(block: bytes, with_guesses: bool) -> tuple[Numbers, Numbers]:
    """Where a block has literals, and which."""
    gate, indexes = _gate(with_guesses)
    at, which = gate.places(block)
    return at, indexes[which]


class _Places(NamedTuple):
    """Places of a block that hold a literal of a step line."""

    block: bytes
    number: int  # of the first line
    at: Numbers
    which: Numbers  # literal

    def with_guesses(self, start: int) -> "_Places":
        """These and the places behind a start that are of loops that nobody knows."""
        at, which = _places(self.block, with_guesses=True)
        more = (at > start) & _IS_GUESS[which]
        at, which = (np.append(*pair) for pair in ((self.at, at[more]), (self.which, which[more])))
        _, first = np.unique(at * len(_LITERALS) + which, return_index=True)
        return self._replace(at=at[first], which=which[first])

    def chosen(self, these: "Flags | slice") -> "_Places":
        return self._replace(at=self.at[these], which=self.which[these])


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
        # not taken yet: where lines are that are no steps, and lowered loss scales
        self._taken: list[tuple[int, int]] = []
        self._overflows: list[tuple[bytes, int]] = []
        # of one launch
        self._series: list[Series] = []
        self._of_writer: dict[tuple[int, int], int] = {}  # form and writer -> index of the series
        self._named: dict[tuple[str, str], int] = {}  # tool and writer -> index of the series
        self._total_line = b""

    def block(self, block: bytes, number: int) -> None:
        """Take all lines of a block that hold a literal."""
        at, which = _places(block, with_guesses=not self._is_known())
        if not len(at):
            return
        is_tool = _IS_TOOL[which]
        others = list(zip(at[~is_tool].tolist(), which[~is_tool].tolist(), strict=True))
        steps = _Places(block, number, at[is_tool], which[is_tool])
        cursor = Cursor(block, number)
        for place, literal in others:
            if place <= cursor.used:
                continue
            line, line_number = cursor.line(place)
            word = _LITERALS[literal]
            if word in _SETTINGS:
                steps = self._setting(line, line_number, steps, place)
            elif word in Losses.LITERALS:
                self._overflows.append((line, line_number))
                cursor.done()
            elif word == _STAMPS:
                steps = self._take(steps, place)
                self._stamps(line, line_number)
                cursor.done()
            elif word in _REDUCED:
                self.comm.note_gradients(line, line_number)
            else:
                self._other(word, line, line_number)
                self._taken.append((cursor.piece, cursor.end))
                cursor.done()
        self._take(steps, len(block))

    def _setting(self, line: bytes, number: int, steps: "_Places", place: int) -> "_Places":
        """Take a setting; another world size begins a launch. Returns the steps that are left."""
        if self.settings.note(line):
            steps = self._take(steps, place)
            if any(series.points for series in self._series):
                settings = self.settings
                self.settings = _before(settings)
                self.launch_ends()
                self.settings = settings
                settings.layout = Layout()
                steps = steps.with_guesses(place)
        self.settings.layout.note(line, number)
        return steps

    def _take(self, steps: "_Places", end: int) -> "_Places":
        """Take the steps up to a place, and what was printed beside them. Returns the others."""
        cut = int(np.searchsorted(steps.at, end))
        these = steps.chosen(slice(cut))
        if self._taken:
            start, stop = (np.array(column) for column in zip(*self._taken, strict=True))
            of = np.searchsorted(start, these.at, side="right") - 1
            these = these.chosen((of < 0) | (these.at >= stop[of]))
        self._steps(these)
        for line, number in self._overflows:
            if self._series:  # DeepSpeed and Apex print them beside the step lines
                self._series[0].overflow(line, number)
            else:
                self.settings.early_overflows.append((line, number))
        self._taken, self._overflows = [], []
        return steps.chosen(slice(cut, None))

    def _is_known(self) -> bool:
        """Whether a program was recognised: then its lines are those of the loop, and no others."""
        return any(_is_loop(one) for one in self._series if not one.tool.is_guess)

    def _steps(self, places: "_Places") -> None:
        """Take step lines of one launch."""
        if not len(places.at):
            return
        if self._is_known():
            places = places.chosen(~_IS_GUESS[places.which])
        if not len(places.at):
            return
        found = pieces(places.block, places.at)
        last = np.append(found.first[1:], len(places.at))
        for start in range(0, len(found.start), _TOGETHER):
            part = Pieces(*(column[start : start + _TOGETHER] for column in found))
            self._together(part, places, last[start : start + _TOGETHER])

    def _together(self, found: Pieces, places: "_Places", last: Numbers) -> None:
        lines = found.texts(places.block)
        texts = Texts(lines)
        steps = Steps.empty(len(lines))
        of = np.full(len(lines), -1)
        if len(self._forms) > _MEMO:
            self._forms.clear()
        numbers = found.number + places.number
        losses, written = [], []
        for key, rows in texts.groups():
            row = int(rows[0])
            of_line = places.which[found.first[row] : last[row]].tolist()
            if _LOSSES in of_line:
                losses.append((key, rows))
                self.understood += len(rows)
            if key not in self._forms:
                tools = [tool for which in dict.fromkeys(of_line) if (tool := _OF_LITERAL[which]) is not None]
                tools.sort(key=lambda tool: tool.is_guess)
                self._forms[key] = form_of(lines[row], tools)
            form = self._forms[key]
            if form is None:
                continue
            read, none = form.read(texts, rows)
            if none.any():
                rows = rows[~none]
                if not len(rows):
                    continue
                read = Steps(*(column[~none] for column in read))
            self.understood += len(rows)
            written.append((key, form, rows))
            for column, values in zip(steps, read, strict=True):
                column[rows] = values
            steps.label[rows] = self._labels.setdefault(form.fields.label, len(self._labels))
        self.values.take(texts, losses, lines, numbers)
        self._name(written, texts, lines, of)
        self._put(steps, of, lines, numbers)

    def _name(self, written: list[tuple[int, Form, Numbers]], texts: Texts, lines: list[bytes], of: Numbers) -> None:
        """Find the series of lines by who wrote them. Series are numbered as they come in the log."""
        if len(self._of_writer) > _MEMO:
            self._of_writer.clear()
        firsts, parts = [], []
        for key, form, rows in written:
            runs = [texts.first[rows] + run for run in form.who]
            keys = texts.writers(runs) if runs else np.zeros(len(rows), np.uint64)
            writers, first, which = np.unique(keys, return_index=True, return_inverse=True)
            firsts += [(int(row), key, int(writer), form) for writer, row in zip(writers, rows[first], strict=True)]
            parts.append((key, writers.tolist(), rows, which))
        for row, key, writer, form in sorted(firsts, key=lambda first: first[0]):
            if (key, writer) not in self._of_writer:
                self._of_writer[key, writer] = self._of_line(form, lines[row])
        for key, known, rows, which in parts:
            of[rows] = np.array([self._of_writer[key, writer] for writer in known])[which]

    def _of_line(self, form: Form, line: bytes) -> int:
        fields = form.tool.find(plain := uncoloured(line))
        return self._of(form.tool, plain[: fields.start] if fields is not None else b"")

    def _put(self, steps: Steps, of: Numbers, lines: list[bytes], numbers: Numbers) -> None:
        """Give each series its lines."""
        order = np.argsort(of, kind="stable")
        order = order[np.searchsorted(of[order], 0) :]
        if not len(order):
            return
        texts = np.empty(len(lines), object)
        texts[:] = lines
        series = of[order]
        edges = [0, *(np.flatnonzero(series[1:] != series[:-1]) + 1).tolist(), len(order)]
        steps = Steps(*(column[order] for column in steps))
        texts, places = texts[order], numbers[order].astype(float)
        for start, end in pairwise(edges):
            part = Steps(*(column[start:end] for column in steps))
            self._series[int(series[start])].put(part, places[start:end], texts[start:end])

    def _of(self, tool: Tool, prefix: bytes) -> int:
        """The index of the series of a tool and a launcher prefix."""
        host, rank, device = writer_of(prefix)
        found = self._named.setdefault((tool.name, f"{rank} {host} {device}"), len(self._series))
        if found == len(self._series):
            self._series.append(Series(tool, host, rank))
        return found

    def _other(self, literal: bytes, line: bytes, number: int) -> None:
        """Take a line that is not a step."""
        if literal in _KINDS:
            if len(self.events) < _MAX_EVENTS:
                self.events.append((number, _KINDS[literal], line))
        elif literal == _COMM:
            self.understood += self.comm.note(line, number)
        elif literal in all_reduce_bench.LITERALS:
            self.understood += self.bench.note(line, number)
        else:
            self._total_line = line

    def _stamps(self, line: bytes, number: int) -> None:
        found = stamps(line)
        if found is None:
            return
        series = self._series[self._of(Tool(_STAMPS, "tf-official", "samples/s", "job"), b"")]
        if series.points:  # the same steps were printed as they ran
            return
        series.batch, series.total = found.batch, found.overall
        for step, seconds, when in found.points:
            series.add((step, seconds, None, None), line, number, when)
        self.understood += 1

    def _take_total(self) -> None:
        """Take the rate of the whole run that tf_cnn_benchmarks prints at its end."""
        text = self._total_line.rpartition(_TOTAL)[2].split()
        with suppress(ValueError, IndexError):
            total = float(text[0])
            for series in self._series:
                if series.tool.name == "tf-cnn-benchmarks":
                    series.total = total
        self._total_line = b""

    def launch_ends(self) -> None:
        """Close the series that belong to one world size."""
        self._take_total()
        named, own = [], []
        for one in self._series:
            if one.tool.is_guess:
                own += [one] if own_steps.is_loop(one) else []
            elif _is_loop(one):
                named.append(one)
        if any(one.tool.name == "deepspeed" for one in named):  # whose lines tell the number of the step as well
            named = [one for one in named if one.tool.name != "deepspeed-timers"]
        kept = named or own  # lines of a known tool are also of a loop that nobody knows
        kept.sort(key=lambda one: (one.tool.name, one.rank if one.rank is not None else -1))
        for series in kept:
            for line, number in self.settings.early_overflows:
                series.overflow(line, number)
        self.done += [(one, self.settings) for one in kept[:_MAX_RUNS]]
        self._series = []
        self._forms.clear()
        self._of_writer.clear()
        self._named.clear()

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


def _is_loop(series: Series) -> bool:
    """Whether the series of a known tool is a training loop."""
    return series.points >= (_BAR_LEAST if series.tool.name == "tqdm" else 1)


def _before(settings: Settings) -> Settings:
    """The settings of the launch that ends, whose world size was just replaced."""
    old = Settings()
    old.__dict__.update(settings.__dict__)
    old.world = settings.previous
    settings.early_overflows = []
    return old
