"""Step lines of training programs inside a log: series of seconds and rates per run.

Lines are found by literals (see `step_formats`), so that text without steps costs one scan. A series keeps some thousand rows:
when it grows, neighbours are folded into one row that still shows its slowest line.
"""

import gc
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TrainingEvent
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training import all_reduce_bench, layout, own_steps
from nccl_doctor.formats.training.deepspeed_comms import CommOps
from nccl_doctor.formats.training.layout import Layout
from nccl_doctor.formats.training.loss_scale import Losses
from nccl_doctor.formats.training.official_stamps import stamps
from nccl_doctor.formats.training.record_series import LossValues
from nccl_doctor.formats.training.run_settings import LITERALS, Settings
from nccl_doctor.formats.training.step_formats import TOOLS, Point, Tool, quick_values, read_bar
from nccl_doctor.formats.training.step_rows import run_rows, text_of
from nccl_doctor.formats.training.step_series import BULK, Line, Series, stamp_span
from nccl_doctor.inputs import prefixes
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
_TOTAL = b"total images/sec: "
_TOOLS = {tool.literal: tool for tool in (*own_steps.TOOLS, *TOOLS)}
_OWN = frozenset(tool.literal for tool in own_steps.TOOLS)
_KINDS = dict(_EVENTS)
_SETTINGS = frozenset((*LITERALS, *layout.LITERALS))
_MAX_EVENTS = 5_000
_MAX_RUNS = 64  # of one log; ranks that print the same steps tell nothing new
_WRITER = re.compile(r"(?i)gpu\d{1,2}: ")  # a node or a device: either way lines of one writer
_LOOK_AGAIN = 256  # places after which it is asked whether all literals still matter
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
    collecting = gc.isenabled()
    gc.disable()  # many small tuples, no cycles
    try:
        for block in blocks(stream):
            reader.block(block.data, block.first)
            lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
    finally:
        if collecting:
            gc.enable()
    reader.launch_ends()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(reader.rows(facts, first))
    return Reading(lines, reader.understood)


@cache
def _gate() -> Prefilter:
    literals = [
        *_TOOLS,
        *_KINDS,
        *_SETTINGS,
        _STAMPS,
        _COMM,
        _TOTAL,
        LossValues.LITERAL,
        *all_reduce_bench.LITERALS,
        *Losses.LITERALS,
    ]
    return prefilter(frozenset(literals), name="steps")


class _Reader:
    """One log while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.understood = 0
        self.settings = Settings()
        self.series: dict[tuple[str, bytes], Series] = {}
        self.done: list[tuple[Series, Settings]] = []
        self.events: list[tuple[int, str, bytes]] = []
        self.comm = CommOps()
        self.values = LossValues()
        self.bench = all_reduce_bench.AllReduceBench()
        self._gate = _gate()
        self._named: dict[tuple[str, str], Series] = {}
        # of the last line of a tool: prefix, where its time stamp is, series
        self._last: dict[str, tuple[bytes, int, int, Series]] = {}
        self._last_bulk: Series | None = None
        self._own_line = 0  # the last that a loop of its own kind printed

    def block(self, block: bytes, number: int) -> None:
        """Take all lines of a block that hold a literal."""
        places = self._gate.scan(block)[0]
        literals = self._gate.literals
        losses = literals.index(LossValues.LITERAL)
        if self.values.many(block, offsets := [at for at, which in places if which == losses], number):
            self.understood += len(offsets)
            places = [place for place in places if place[1] != losses]
        tools = [_TOOLS.get(literal) for literal in literals]
        cursor = Cursor(block, number)
        launches = max((at for at, which in places if literals[which] in _SETTINGS), default=-1)
        index = passed = 0  # places before `passed` were looked at together and need a look each
        needed: set[int] | None = None  # literals that still matter
        while index < len(places):
            at, which = places[index]
            if needed is None and at > launches and not index % _LOOK_AGAIN:
                needed = self._needed(literals)
                if needed is not None:
                    places = [place for place in places[index:] if place[1] in needed]
                    index = passed = 0
                    continue
            tool = tools[which]
            index += 1
            if at <= cursor.used:
                continue
            if tool is None:
                line, number = cursor.line(at)
                if self._other(literals[which], line, number):
                    cursor.done()
                continue
            if (
                tool.quick is not None
                and index > passed
                and (known := self._last.get(tool.name))
                and known[3].chunk >= BULK
            ):
                passed = index - 1 + known[3].chunk
                many = places[index - 1 : passed]
                if len(many) == known[3].chunk and self._many(tool, which, many, cursor):
                    index = passed
                    continue
            line, number = cursor.line(at)
            if tool.name == "tqdm":
                taken = self._bar(tool, line, number)
            elif tool.name == own_steps.NAME:
                taken = self._own(tool, line, number)
            else:
                point = tool.read(line)
                taken = point is not None
                if point is not None:
                    self._point(tool, point, line, number)
            if taken:
                cursor.done()

    def _needed(self, literals: list[bytes]) -> set[int] | None:
        """The literals that matter until the next launch once its step lines are known; None as long as all of them do.

        Lines of a known program make those of a loop of its own kind unneeded. Of a long series of such a loop one literal is enough.
        """
        if any(_is_loop(one) for one in self._named.values() if one.tool.name != own_steps.NAME):
            return {which for which, literal in enumerate(literals) if literal not in _OWN}
        own = [one for one in self._named.values() if one.tool.name == own_steps.NAME]
        if own and all(one.chunk >= BULK for one in own):
            used = {one.tool.literal for one in own}
            return {which for which, literal in enumerate(literals) if literal not in _OWN or literal in used}
        return None

    def _many(self, tool: Tool, which: int, places: list[tuple[int, int]], cursor: Cursor) -> bool:
        """Fold neighbouring lines of a long series without reading each; False where they are not all of one kind.

        Read in full are the first two, the median, the slowest and the last; their steps must lie as far apart as the number
        of lines says, and batch and loss scale must be the same on all.
        """
        values = quick_values(tool, which, places, cursor.block)
        if values is None:
            return False
        count = len(places)
        order = sorted(range(count), key=values.__getitem__, reverse=tool.quick_is_rate)
        look = cursor.copy()
        chosen = sorted({0, 1, order[count // 2], order[-1], count - 1})
        lines, start = self._chosen(tool, [places[index][0] for index in chosen], look)
        if lines is None:
            return False
        by_index = dict(zip(chosen, lines, strict=True))
        series = self._last[tool.name][3]
        if not _in_order(series, by_index[0][0][1], by_index[1][0][1], by_index[count - 1][0][1], count):
            return False
        if tool.name in ("megatron", "fairseq") and not series.losses.same(
            tool.name, cursor.block, start, look.stop, count
        ):
            return False
        if tool.name == "megatron":
            if not series.same_batch(cursor.block, start, look.stop, count):
                return False
            by_index = {index: (_with_rate(line[0], series.batch), *line[1:]) for index, line in by_index.items()}
        series.add_many(by_index[0], by_index[order[count // 2]], by_index[order[-1]], by_index[count - 1], count)
        self.understood += count
        cursor.move_to(look)
        return True

    def _chosen(self, tool: Tool, offsets: list[int], look: Cursor) -> tuple[list[Line] | None, int]:
        """The lines at these offsets, and where the first starts; None unless all are steps of the tool's last series."""
        lines: list[Line] = []
        start = 0
        for offset in offsets:
            line, number = look.line(offset)
            point = tool.read(line)
            if point is None:
                return None, start
            start = start or look.piece
            series = self._of(tool, line[: point[0]])
            if series is not self._last[tool.name][3] or (lines and series is not self._last_bulk):
                return None, start
            self._last_bulk = series
            lines.append((point, number, line, None))
        return lines, start

    def _other(self, literal: bytes, line: bytes, number: int) -> bool:
        """Take a line that is not a step; True where no other literal of the line matters."""
        if literal in _KINDS:
            if len(self.events) < _MAX_EVENTS:
                self.events.append((number, _KINDS[literal], line))
            return True
        if literal in _SETTINGS:
            started = self.settings.note(line)
            if started and any(series.points for series in self._named.values()):
                settings = self.settings
                self.settings = _before(settings)
                self.launch_ends()
                self.settings = settings
                settings.layout = Layout()
            self.settings.layout.note(line, number)
            return False
        if literal == LossValues.LITERAL:
            self.values.line(line, number)
            self.understood += 1
            return False
        if literal == _STAMPS:
            self._stamps(line, number)
        elif literal == _COMM:
            self.understood += self.comm.note(line, number)
        elif literal in all_reduce_bench.LITERALS:
            self.understood += self.bench.note(line, number)
        elif literal == _TOTAL:
            self._total(line)
        else:
            self._overflow(line, number)
        return True

    def _of(self, tool: Tool, prefix: bytes) -> Series:
        """The series of a tool and a launcher prefix; the time stamp in the prefix is ignored."""
        known = self._last.get(tool.name)
        if known is not None:
            last, start, behind, series = known
            if prefix == last or (
                len(prefix) == len(last) and prefix[:start] == last[:start] and prefix[behind:] == last[behind:]
            ):
                return series
        start, behind = stamp_span(prefix)
        key = prefix[:start] + prefix[behind:]
        found = self.series.get((tool.name, key))
        if found is None:
            text = prefixes.clean(key.decode("utf-8", "replace"))
            label = prefixes.split(f"{text.rstrip()} x")[0]
            device = _WRITER.match(text) if label.host is None and label.rank is None else None
            who = f"{label.rank} {label.host} {device[0] if device else ''}"
            found = self._named.setdefault((tool.name, who), Series(tool, label.host, label.rank))
            if len(self.series) < 100_000:
                self.series[tool.name, key] = found
        self._last[tool.name] = prefix, start, behind, found
        return found

    def _point(self, tool: Tool, point: Point, line: bytes, number: int) -> None:
        name = tool.name
        series = self._of(tool, line[: point[0]])
        self.understood += 1
        if name == "megatron":
            point = _with_rate(point, series.batch_of(line))
        if series.add(point, line, number) and (name == "megatron" or name == "fairseq"):
            series.losses.line(name, point[1], line, number)

    def _own(self, tool: Tool, line: bytes, number: int) -> bool:
        """A line of a loop that nobody knows; always False, because a tool that is known may have a literal behind."""
        if number != self._own_line and (point := tool.read(line)) is not None:
            self._own_line = number
            self._of(tool, line[: point[0]]).add(point, line, number)
            self.understood += 1
        return False

    def _bar(self, tool: Tool, line: bytes, number: int) -> bool:
        found = read_bar(line)
        if found is None:
            return False
        series = self._of(tool, line[: found.point[0]])
        self.understood += 1
        if not series.repeated(found.identity, found.elapsed):
            series.add(found.point, line, number)
        return True

    def _stamps(self, line: bytes, number: int) -> None:
        found = stamps(line)
        if found is None:
            return
        tool = Tool(_STAMPS, "tf-official", "samples/s", "job", lambda _: None)
        series = self._of(tool, b"")
        if series.points:  # the same steps were printed as they ran
            return
        series.batch, series.total = found.batch, found.overall
        for step, seconds, when in found.points:
            series.add((0, step, seconds, None, None), line, number, when)
        self.understood += 1

    def _total(self, line: bytes) -> None:
        text = line.rsplit(_TOTAL, 1)[1].split()
        for series in self._named.values():
            if series.tool.name == "tf-cnn-benchmarks" and text:
                try:
                    series.total = float(text[0])
                except ValueError:
                    return

    def _overflow(self, line: bytes, number: int) -> None:
        """Take a lowered loss scale, which DeepSpeed and Apex print beside the step lines."""
        for series in self._named.values():
            series.losses.overflow(line, number)
            return
        self.settings.early_overflows.append((line, number))

    def launch_ends(self) -> None:
        """Close the series that belong to one world size."""
        named, own = [], []
        for one in self._named.values():
            if one.tool.name == own_steps.NAME:
                own += [one] if own_steps.is_loop(one) else []
            elif _is_loop(one):
                named.append(one)
        kept = named or own  # lines of a known tool are also of a loop that nobody knows
        kept.sort(key=lambda one: (one.tool.name, one.rank if one.rank is not None else -1))
        for series in kept:
            for line, number in self.settings.early_overflows:
                series.losses.overflow(line, number)
        self.done += [(one, self.settings) for one in kept[:_MAX_RUNS]]
        self.series.clear()
        self._named.clear()
        self._last.clear()

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
        yield from self.values.rows(facts, self.name, run)


def _is_loop(series: Series) -> bool:
    """Whether the series of a known tool is a training loop."""
    return series.points >= (_BAR_LEAST if series.tool.name == "tqdm" else 1)


def _in_order(series: Series, first: int | None, second: int | None, last: int | None, count: int) -> bool:
    """Whether so many lines go on from the last one of a series, one step after another; lines without a step always do."""
    if first is None or second is None or last is None:
        return first is None and second is None and last is None
    stride = second - first
    return stride > 0 and last - first == stride * (count - 1) and series.follows(first)


def _with_rate(point: Point, batch: int | None) -> Point:
    return (point[0], point[1], point[2], batch / point[2], point[4]) if batch and point[2] else point


def _before(settings: Settings) -> Settings:
    """The settings of the launch that ends, whose world size was just replaced."""
    old = Settings()
    old.__dict__.update(settings.__dict__)
    old.world = settings.previous
    settings.early_overflows = []
    return old
