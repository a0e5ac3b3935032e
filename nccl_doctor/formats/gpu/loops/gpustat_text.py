"""Samples of GPUs as `gpustat` prints them without `--json`."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nccl_doctor.common.timestamps import asctime_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import MANY, Batch, Floats, Gpu, Place, Waiting
from nccl_doctor.formats.line_forms import LineForms, Span
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import line_lists

_CLOCK = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d"
HEAD = re.compile(
    rf"\A\s{{0,20}}[\w.-]{{1,253}} {{1,60}}{_CLOCK}[^\n]{{0,60}}\n\[\d{{1,3}}\] [^\n|]{{1,100}}\|".encode()
)
_TIME = re.compile(rf"([\w.-]{{1,253}}) {{1,60}}({_CLOCK})\b")
_GPU = re.compile(r"\[(\d{1,3})\] (\S.{0,80}?) {0,40}")
_MEMORY = re.compile(r" {0,8}(\d{1,8}) {0,4}/ {0,4}(\d{1,8}) MB\b")
_ROW = re.compile(rf"({_GPU.pattern.replace('(', '(?:')})\|(.{{3,60}}?)\|({_MEMORY.pattern.replace('(', '(?:')})")
_DEGREES = re.compile(r"(\d{1,3})(?:°|')C")
_SHARE = re.compile(r" {0,8}(\d{1,3}) % {0,8}")  # behind the speed of a fan, where that is shown: the load
_WATTS = re.compile(r"(\d{1,4}) {0,4}/ {0,4}(\d{1,4}) W")


class _Form(NamedTuple):
    """Where lines that differ in digits only say what of a GPU."""

    gpu: Span  # its index, and its model
    model: Span
    columns: dict[str, Span]


class _Reader:
    """Sums up the lines of GPUs, which the host and the time are above."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.used = 0
        self._waiting = Waiting(self.samples.add)
        self._forms = LineForms(_parse)
        self._slots: dict[tuple[str | None, str], int] = {}
        self._host: str | None = None
        self._time = math.nan

    def take(self, lines: Sequence[str], first: int) -> None:
        """Use lines, of which the first has this number."""
        groups, others = self._forms.groups(lines)
        heads = [(at, head) for at in others if (head := _TIME.match(lines[at].strip())) is not None]
        hosts = [self._host, *(head[1] for _, head in heads)]
        moments = [asctime_seconds(head[2]) for _, head in heads]
        times = np.array([self._time, *(math.nan if when is None else when for when in moments)])
        self._host, self._time = hosts[-1], float(times[-1])
        rows = np.array([at for group in groups for at in group.rows], np.int64)
        if not len(rows):
            return
        self.used += len(rows)
        order = np.argsort(rows)
        under = np.searchsorted([at for at, _ in heads], rows[order])  # the head above each row
        who = [line[group.form.gpu[0] : group.form.model[1]] for group in groups for line in group.lines]
        slots = [self._slot(hosts[head], who[at]) for head, at in zip(under.tolist(), order.tolist(), strict=True)]
        columns: dict[str, Floats] = {}
        begin = 0
        for group in groups:
            end = begin + len(group.rows)
            read = group.whole_numbers(list(group.form.columns.values()))
            for name, values in zip(group.form.columns, read, strict=True):
                columns.setdefault(name, np.full(len(rows), np.nan))[begin:end] = values
            begin = end

        def place(row: int) -> Place:
            at = int(rows[order[row]])
            return first + at, lines[at].strip()

        in_order = {name: values[order] for name, values in columns.items()}
        self._waiting.add(Batch(np.array(slots, np.int64), in_order, times[under], place))

    def _slot(self, host: str | None, who: str) -> int:
        """The number of a GPU that a line shows as `3] NVIDIA A100-SXM4-80GB`."""
        slot = self._slots.get((host, who))
        if slot is None:
            if len(self._slots) >= MANY:
                self._slots.clear()
            index, _, model = who.partition("] ")
            gpu = Gpu(host, int(index), None, model)
            slot = self._slots[host, who] = self.samples.slot((gpu.host, gpu.number), lambda: gpu)
        return slot

    def finish(self) -> None:
        """Sum up what waits."""
        self._waiting.flush()


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up what each line of a GPU says whose load is known.

    Source: `gpustat/core.py` of wookayin/gpustat (0.4 to 1.1), without colours::

        [3] NVIDIA A100-SXM4-80GB | 88°C,  12 %,  310 / 400 W | 70215 / 81920 MB | ada(70000M)
    """
    reader = _Reader()
    lines = 0
    for first, texts in line_lists(stream):
        reader.take(texts, first)
        lines = first + len(texts) - 1
    reader.finish()
    if reader.samples.gpus:
        reader.samples.write(facts, name, "json")
    return Reading(lines, reader.used)


def _parse(line: str) -> _Form | None:
    """The form of a line; None where it is not of a GPU, or says nothing of its load."""
    cells = line.split("|", 3)
    if len(cells) > 2 and (gpu := _GPU.fullmatch(cells[0])) is not None and _MEMORY.match(cells[2]) is not None:
        state, begin = cells[1], len(cells[0]) + 1
    elif (row := _ROW.match(line)) is not None and (gpu := _GPU.fullmatch(row[1])) is not None:
        state, begin = row[2], row.start(2)  # of a model with a bar in its name
    else:
        return None
    memory = _MEMORY.match(line, begin + len(state) + 1)
    found = _state(state)
    if memory is None or found is None:
        return None
    state_columns = {name: (begin + start, begin + stop) for name, (start, stop) in found.items()}
    columns = {"memory": memory.span(1), "memory_total": memory.span(2), **state_columns}
    return _Form(gpu.span(1), gpu.span(2), columns)


def _state(cell: str) -> dict[str, Span] | None:
    """Where a cell has the values of which columns; None where the load is not among them."""
    found: dict[str, Span] = {}
    if (degrees := _DEGREES.search(cell)) is not None:
        found["temperature"] = degrees.span(1)
    share = None
    at = 0
    for part in cell.split(","):
        if (match := _SHARE.fullmatch(part)) is not None:
            share = at + match.start(1), at + match.end(1)
        at += len(part) + 1
    if share is None or not 3 <= len(cell) <= 60:
        return None
    found["util"] = share
    if (watts := _WATTS.search(cell)) is not None:
        found |= {"power": watts.span(1), "power_limit": watts.span(2)}
    return found
