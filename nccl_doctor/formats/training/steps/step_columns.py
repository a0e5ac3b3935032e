"""Numbers of many step lines in columns.

Lines of one form differ in their digits only. numpy hashes all lines with each number as one digit, so that a program's expressions
are tried with one line of each form; where that line has its numbers, all lines of the form have theirs.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.formats.training.lines.block_lines import LONGEST
from nccl_doctor.formats.training.lines.line_numbers import Floats, LineNumbers, Texts
from nccl_doctor.formats.training.steps.step_formats import Fields, Tool, colour_spans, uncoloured
from nccl_doctor.formats.training.steps.step_writers import meet, writer_runs

_LARGEST = 1e15  # a step beyond is none
_DECIMALS = frozenset(
    (b"0.0", *(number + b"e" + sign + b"0" for number in (b"0", b"0.0") for sign in (b"", b"+", b"-")))
)
_LEAST, _MOST = 1e-6, 1e12  # of a rate or a time in a loop that nobody knows; 1e999 is no number
_LEAST_LEFT = 20  # seconds, shown without decimals, from which on they tell the time of a step
_LEAST_COARSE = 5e-3  # of a step by an epoch's whole seconds; below, samples were counted
_SLOWEST_ROUNDED = 0.05  # steps a second: printed with three decimals, 0.005 stands for 180 to 220 s
_RUN = compiled(rb"\d+")


Name = Literal[
    "step",
    "seconds",  # of a step
    "rate",
    "data",  # seconds of the step that waited for data
    "batch",
    "scale",  # of the loss
    "lost",  # steps that were skipped or whose loss was no number
    "elapsed",  # seconds, of a progress bar
    "total",  # steps of an epoch or a bar
    "label",  # number of the text in front of a bar
    "pass",  # the epoch of a bar
    "since",  # seconds since the line before
    "clock",  # seconds of training so far
    "when",  # seconds since the epoch, where it is known without the line
]
NAMES: tuple[Name, ...] = get_args(Name)


class Steps:
    """Step lines in columns, one entry a line. A column is NaN where a line does not say, and left out where none does."""

    def __init__(self, count: int, columns: "dict[Name, Floats]") -> None:
        self.count = count  # lines
        self._columns = columns

    def __contains__(self, name: Name) -> bool:
        return name in self._columns

    def __getitem__(self, name: Name) -> Floats:
        """A column, which is not to be changed."""
        column = self._columns.get(name)
        return np.full(self.count, np.nan) if column is None else column

    def put(self, name: Name, rows: "Numbers | Flags", values: "Floats | float") -> None:
        """Fill a column in some of the lines."""
        if name not in self._columns:
            self._columns[name] = np.full(self.count, np.nan)
        self._columns[name][rows] = values

    def put_all(self, rows: Numbers, of: "Steps") -> None:
        """Fill some of the lines with what others say."""
        for name, column in of._columns.items():
            self.put(name, rows, column)

    def chosen(self, which: "Numbers | Flags", count: int) -> "Steps":
        """Some of the lines, `count` of them."""
        return Steps(count, {name: column[which] for name, column in self._columns.items()})

    def cut(self, start: int, end: int) -> "Steps":
        """The lines from one to another."""
        return Steps(end - start, {name: column[start:end] for name, column in self._columns.items()})

    @classmethod
    def joined(cls, parts: "Sequence[Steps]") -> "Steps":
        """All lines of all parts."""
        names = dict.fromkeys(name for part in parts for name in part._columns)
        return cls(
            sum(part.count for part in parts), {name: np.concatenate([part[name] for part in parts]) for name in names}
        )


class Column(NamedTuple):
    """A number of all lines of one form: in which runs of digits it is."""

    name: str
    first: int
    last: int
    form: bytes  # its text, each run of digits as 0
    factor: float = 1.0

    @classmethod
    def of(
        cls, name: str, line: bytes, span: tuple[int, int], runs: list[tuple[int, int]], begins: Mapping[int, int]
    ) -> "Column | None":
        """The number that lies there in a line; None where it does not begin with one of the runs of digits."""
        begin, end = span[0], span[0] + len(line[slice(*span)].rstrip(b","))
        first = begins.get(begin)
        if first is None:
            return None
        last = next(at for at in range(first, len(runs)) if runs[at][1] >= end)
        return cls(name, first, last, _RUN.sub(b"0", line[begin : runs[last][1]]))

    def read(self, numbers: LineNumbers) -> Floats:
        """Its values in lines of the form."""
        if self.form == b"0":
            value = numbers.whole(self.first)
        elif self.form in _DECIMALS:
            value = numbers.decimal(self.first, self.form)
        else:
            value = numbers.parsed(self.first, self.last)
        return value if self.factor == 1 else value * self.factor if self.factor > 1 else value / (1 / self.factor)


class Form(NamedTuple):
    """What all lines of one form are: lines that differ in their numbers only."""

    tool: Tool
    fields: Fields
    columns: tuple[Column, ...]
    who: tuple[int, ...]  # runs of digits that say who wrote a line

    def read(self, numbers: LineNumbers) -> tuple[Steps, Flags]:
        """The steps of lines, and which of the lines are none."""
        found = {column.name: column.read(numbers) for column in self.columns}
        return _steps(found, numbers.count, self.tool.is_guess, self.fields.lost)


def form_of(line: bytes, tools: list[Tool]) -> Form | None:
    """The form of a line, for the first of the tools whose line it is."""
    plain = uncoloured(line)
    fields = tool = None
    for tool in tools:
        fields = tool.find(plain)
        if fields is not None:
            break
    if fields is None or tool is None:
        return None
    runs, every = runs_of(plain), runs_of(line)
    if plain != line:
        spans = colour_spans(line)
        index = [at for at, run in enumerate(every) if not any(meet(run, span) for span in spans)]
        if len(index) != len(runs):
            return None
    else:
        index = list(range(len(runs)))
    begins = {begin: at for at, (begin, _) in enumerate(runs)}
    columns = []
    for name, begin, end, factor in fields.places:
        column = Column.of(name, plain, (begin, end), runs, begins)
        if column is None:
            return None
        columns.append(column._replace(first=index[column.first], last=index[column.last], factor=factor))
    who = writer_runs(plain, fields.start, runs, anywhere=tool.is_guess)
    return Form(tool, fields, tuple(columns), tuple(index[at] for at in who))


def runs_of(line: bytes) -> list[tuple[int, int]]:
    """Where runs of digits begin and end."""
    return [match.span() for match in _RUN.finditer(line)]


def _steps(found: Mapping[str, Floats], size: int, is_guess: bool, lost: bool) -> tuple[Steps, Flags]:
    """Steps from the numbers of lines, and which lines are none."""
    columns: dict[Name, Floats] = {name: found[name] for name in NAMES if name in found}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if "epoch" in found:
            columns["step"] = _in_all_epochs(found["epoch"], found["step"], found["total"])
        if "first" in found:
            count = columns["step"] - found["first"]
            columns["seconds"] = np.where(count > 0, found["seconds"] / count, np.nan)
        if "left" in found:
            left = found.get("left_hours", 0.0) * 3600 + found.get("left_minutes", 0.0) * 60 + found["left"]
            columns["seconds"] = np.where(left >= _LEAST_LEFT, left / (found["total"] - found["step"]), np.nan)
        if "shown" in found and "seconds" not in found:
            seconds = found["shown"] / found["of"]
            columns["seconds"] = np.where(seconds >= _LEAST_COARSE, seconds, np.nan)
        if "took" in found:
            columns["seconds"] = 3600 * found["took_hours"] + 60 * found["took_minutes"] + found["took"]
        if "per_sample" in found:
            columns["rate"] = np.where(found["per_sample"] > 0, 1 / found["per_sample"], np.nan)
        if "backward" in found:
            columns["seconds"] = found["forward"] + found["backward"] + found["update"]
        for name, least in (("speed", 0.0), ("rounded_speed", _SLOWEST_ROUNDED)):
            if name in found:
                columns["seconds"] = np.where((found[name] > 0) & (found[name] >= least), 1 / found[name], np.nan)
        if "batch" in found and "seconds" in columns:
            columns["rate"] = np.where(columns["seconds"] > 0, found["batch"] / columns["seconds"], np.nan)
        steps = Steps(size, columns)
        step, seconds, rate = steps["step"], steps["seconds"], steps["rate"]
        known = np.isfinite(seconds) | np.isfinite(rate) | np.isfinite(steps["since"])
        if is_guess:
            number = np.where(np.isnan(rate), seconds, rate)
            known &= (number >= _LEAST) & (number <= _MOST)
            if "data" in found:
                columns["data"] = np.where((found["data"] > 0) & (found["data"] <= seconds), found["data"], np.nan)
        if "minutes" in found:
            known &= step > 0
            if "rest" in found:
                columns["elapsed"] = found.get("hours", 0.0) * 3600 + found["minutes"] * 60 + found["rest"]
        if "done" in found:
            known &= found["done"] == found["of"]
        if "shown" in found:  # 0 s of many steps is what is left, of a bar that will be drawn again
            known &= (found["shown"] > 0) | (found["of"] * seconds < 1)
        if "of" in found and "per_sample" not in found:
            columns["total"] = found["of"]
        if lost or "skipped" in found or "nan" in found:
            columns["lost"] = found.get("skipped", np.zeros(size)) + found.get("nan", 0.0) + lost
        none = ~known | (step >= _LARGEST) | np.isinf(seconds) | np.isinf(rate)
    return steps, none


def _in_all_epochs(epoch: Floats, step: Floats, total: Floats) -> Floats:
    """The steps of all epochs; some programs count on where an epoch begins, and tell all of them as the total."""
    begins = np.flatnonzero(np.diff(epoch) > 0)
    if len(begins) and (np.diff(step)[begins] > 0).all() and (np.diff(total)[begins] == 0).all():
        return step
    return epoch * total + step


def read_step(tool: Tool, line: bytes) -> tuple[int | None, float | None, float | None] | None:
    """Step, seconds and rate of one line of a tool; None where it is no step."""
    form = form_of(line[:LONGEST], [tool])
    if form is None:
        return None
    (group,) = Texts([line[:LONGEST]]).groups()
    steps, none = form.read(group.numbers)
    if none[0]:
        return None
    values = (float(steps[name][0]) for name in ("step", "seconds", "rate"))
    step, seconds, rate = (None if np.isnan(value) else value for value in values)
    return None if step is None else int(step), seconds, rate
