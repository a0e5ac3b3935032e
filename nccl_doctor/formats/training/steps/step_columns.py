"""Numbers of many step lines in columns.

Lines of one form differ in their digits only. numpy hashes all lines with each number as one digit, so that a program's expressions
are tried with one line of each form; where that line has its numbers, all lines of the form have theirs.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import MIX, ROW, Flags, Keys, Numbers, mix, rows_of
from nccl_doctor.formats.training.steps.step_formats import Fields, Tool, colour_spans, uncoloured
from nccl_doctor.inputs import prefixes

Floats = npt.NDArray[np.float64]

LONGEST = 4_000  # bytes of a line that are looked at
_DIGITS = 15  # of a number that is exact as a float
_MOST_DIGITS = 18
_LARGEST = 10.0**_DIGITS  # a step beyond is none
_TENS_EXACT = 22  # the largest power of ten that is exact as a float
_TENS = np.array([float(10**power) for power in range(_TENS_EXACT + 1)])
_DECIMALS = frozenset(
    (b"0.0", *(number + b"e" + sign + b"0" for number in (b"0", b"0.0") for sign in (b"", b"+", b"-")))
)
_LEAST, _MOST = 1e-6, 1e12  # of a rate or a time in a loop that nobody knows; 1e999 is no number
_SLOWEST_ROUNDED = 0.05  # steps a second: printed with three decimals, 0.005 stands for 180 to 220 s
_ZERO, _NINE, _RETURN, _NEWLINE = b"09\r\n"
_STAMP = compiled(rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_DEVICE = compiled(r"(?i)gpu\d{1,2}: ")  # a node or a device: either way lines of one writer
_RUN = compiled(rb"\d+")
_THOUSANDS = compiled(rb"[1-9]\d{0,2}(?:,\d{3}){1,6}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?")


class Steps(NamedTuple):
    """Step lines in columns, one entry a line; NaN where a line does not say."""

    step: Floats
    seconds: Floats  # of a step
    rate: Floats
    data: Floats  # seconds of the step that waited for data
    batch: Floats
    scale: Floats  # of the loss
    lost: Floats  # steps that were skipped or whose loss was no number
    elapsed: Floats  # seconds, of a progress bar
    total: Floats  # steps of an epoch or a bar
    label: Floats  # number of the text in front of a bar

    @classmethod
    def empty(cls, size: int) -> "Steps":
        return cls(*(np.full(size, np.nan) for _ in cls._fields))


class Pieces(NamedTuple):
    """The parts of lines that hold places of a block; a carriage return ends a part too."""

    start: Numbers
    end: Numbers
    number: Numbers  # of the line, counted from 0 in the block
    first: Numbers  # of its places

    def texts(self, block: bytes) -> list[bytes]:
        ends = np.minimum(self.end, self.start + LONGEST)
        return [block[start:end] for start, end in zip(self.start.tolist(), ends.tolist(), strict=True)]


def pieces(block: bytes, at: Numbers) -> Pieces:
    """The parts of lines that hold these ascending places."""
    data = np.frombuffer(block, np.uint8)
    is_stop = data == _NEWLINE
    newlines = np.flatnonzero(is_stop)
    stops = np.flatnonzero(is_stop | (data == _RETURN)) if b"\r" in block else newlines
    piece, first = np.unique(np.searchsorted(stops, at), return_index=True)
    start = np.where(piece > 0, stops[piece - 1] + 1 if len(stops) else 0, 0)
    end = np.append(stops, len(block))[piece]
    return Pieces(start, end, np.searchsorted(newlines, start), first)


class Texts:
    """Lines, and the numbers in them: runs of digits."""

    def __init__(self, lines: list[bytes]) -> None:
        self.text = b"\n".join(lines) + b"\n"
        data = np.frombuffer(self.text + bytes(ROW), np.uint8)[: len(self.text)]
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        starts = np.cumsum(sizes + 1) - sizes - 1
        is_digit = (data - np.uint8(_ZERO)) < 10
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
        if is_digit[0]:
            edges = np.append(0, edges)
        self.begin, self.end = edges[::2], edges[1::2]  # each line ends with a line end, so each run ends
        self.first = np.searchsorted(self.begin, starts)  # runs of digits before each line
        self._data = data
        self.keys = self._keys(is_digit, starts, sizes)

    def _keys(self, is_digit: Flags, starts: Numbers, sizes: Numbers) -> Keys:
        """Keys of the lines with each run of digits as one 0."""
        kept = ~is_digit
        kept[self.begin] = True
        short = np.append(self._data[kept], np.zeros(ROW, np.uint8))
        short[(short - np.uint8(_ZERO)) < 10] = _ZERO
        dropped = np.append(0, np.cumsum(self.end - self.begin - 1))
        begin = starts - dropped[self.first]
        end = starts + sizes - dropped[np.append(self.first[1:], len(self.begin))]
        return mix((end - begin + 1).view(np.uint64) * MIX, rows_of(short.tobytes()), begin, end)

    def groups(self) -> list[tuple[int, Numbers]]:
        """Each key, and the lines that have it; in the order of their first lines."""
        order = np.argsort(self.keys, kind="stable")
        keys = self.keys[order]
        edges = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        found = [(int(keys[start]), order[start:end]) for start, end in pairwise(edges)]
        return sorted(found, key=lambda group: int(group[1][0]))

    def whole(self, run: Numbers) -> Floats:
        """The values of runs of digits; infinite where one is too long."""
        begin, size = self.begin[run], self.end[run] - self.begin[run]
        value = np.zeros(len(run), np.int64)
        longest = int(size.max(initial=0))
        shortest = int(size.min(initial=0))
        for place in range(min(longest, _MOST_DIGITS)):
            digit = self._data.take(begin + place, mode="clip") - np.uint8(_ZERO)
            more = value * 10 + digit
            value = more if place < shortest else np.where(place < size, more, value)
        return value.astype(float) if longest <= _MOST_DIGITS else np.where(size > _MOST_DIGITS, np.inf, value)

    def decimal(self, first: Numbers, form: bytes) -> Floats:
        """The values of numbers of a form as `float` would read them: `0.0`, `0e-0`, `0.0e+0`."""
        begin, end, exponent = self.begin, self.end, b"e" in form
        last = first + form.count(b"0") - 1
        point = first + 1
        places = (end[point] - begin[point]) if b"." in form else np.zeros(len(first), np.int64)
        digits = places + (end[first] - begin[first])
        shift = np.minimum(self.whole(last), 1000.0) if exponent else np.zeros(len(first))
        shift = places + shift if b"-" in form else places - shift
        exact = (digits <= _DIGITS) & (abs(shift) <= _TENS_EXACT)
        if not exact.all():
            values = np.empty(len(first))
            values[exact] = self.decimal(first[exact], form)
            values[~exact] = self.parsed(first[~exact], last[~exact])
            return values
        value = self.whole(first)
        if b"." in form:
            value = value * _TENS[places] + self.whole(point)
        tens = _TENS[abs(shift).astype(np.int64)]
        found: Floats = np.where(shift > 0, value / tens, value * tens)
        return found

    def parsed(self, first: Numbers, last: Numbers) -> Floats:
        """The values of numbers of any form from one run of digits to another."""
        places = zip(self.begin[first].tolist(), self.end[last].tolist(), strict=True)
        return np.array([_value(self.text[begin:end]) for begin, end in places], float)

    def writers(self, runs: list[Numbers]) -> Keys:
        """One key for equal numbers, and none for others, `01` and `1` being others."""
        key = np.zeros(len(runs[0]), np.uint64)
        for run in runs:
            size = (self.end[run] - self.begin[run]).view(np.uint64)
            value = self.whole(run).view(np.uint64)
            key = (key ^ (value + size)) * MIX
            key ^= key >> np.uint64(29)
        return key


def _value(text: bytes) -> float:
    """A number: `1,820` has its thousands apart; `0,51` and `12,5` have a comma as decimal sign."""
    if b"," in text:
        text = text.replace(b",", b"" if _THOUSANDS.fullmatch(text) else b".")
    try:
        return float(text)
    except ValueError:
        return float("nan")


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

    def read(self, texts: Texts, base: Numbers) -> Floats:
        """Its values in lines whose runs of digits begin at `base`."""
        run = base + self.first
        if self.form == b"0":
            value = texts.whole(run)
        elif self.form in _DECIMALS:
            value = texts.decimal(run, self.form)
        else:
            value = texts.parsed(run, base + self.last)
        return value if self.factor == 1 else value * self.factor if self.factor > 1 else value / (1 / self.factor)


class Form(NamedTuple):
    """What all lines of one form are: lines that differ in their numbers only."""

    tool: Tool
    fields: Fields
    columns: tuple[Column, ...]
    who: tuple[int, ...]  # runs of digits that say who wrote a line

    def read(self, texts: Texts, rows: Numbers) -> tuple[Steps, Flags]:
        """The steps of lines, and which of the lines are none."""
        base = texts.first[rows]
        found = {column.name: column.read(texts, base) for column in self.columns}
        return _steps(found, len(rows), self.tool.is_guess, self.fields.lost)


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
        index = [at for at, run in enumerate(every) if not any(_meet(run, span) for span in spans)]
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
    return Form(tool, fields, tuple(columns), tuple(index[at] for at in _who(plain, fields.start, runs)))


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _who(line: bytes, start: int, runs: list[tuple[int, int]]) -> list[int]:
    """Which runs of digits say who wrote a line; all in front of the program's own text but its date, where its form is unknown."""
    prefix = line[:start]
    text = prefix.decode("utf-8", "replace").rstrip() + " x"
    before = [(at, run) for at, run in enumerate(runs) if run[1] <= start]
    if not before:
        return []
    found = prefixes.layout(text) if text.isascii() else None
    if found is None:
        date = _STAMP.search(prefix)
        return [at for at, run in before if date is None or not _meet(run, date.span())]
    spans = [*((begin, end) for name, begin, end in found.fields if name in prefixes.NAMES), *found.words]
    if (device := _DEVICE.match(text)) is not None:
        spans.append(device.span())
    return [at for at, run in before if any(_meet(run, span) for span in spans)]


def writer_of(prefix: bytes) -> tuple[str | None, int | None, str]:
    """Host, rank and device that a launcher prefix names; the time stamp in it is ignored."""
    text = prefixes.clean(_STAMP.sub(b"", prefix, count=1).decode("utf-8", "replace"))
    label = prefixes.split(f"{text.rstrip()} x")[0]
    device = _DEVICE.match(text) if label.host is None and label.rank is None else None
    return label.host, label.rank, device[0] if device else ""


def runs_of(line: bytes) -> list[tuple[int, int]]:
    """Where runs of digits begin and end."""
    return [match.span() for match in _RUN.finditer(line)]


def _steps(found: Mapping[str, Floats], size: int, is_guess: bool, lost: bool) -> tuple[Steps, Flags]:
    """Steps from the numbers of lines, and which lines are none."""
    unknown = np.full(size, np.nan)
    get: Callable[[str], Floats] = lambda name: found.get(name, unknown)  # noqa: E731
    step, seconds, rate, data = get("step"), get("seconds"), get("rate"), get("data")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if "epoch" in found:
            step = found["epoch"] * found["total"] + step
        if "first" in found:
            count = step - found["first"]
            seconds = np.where(count > 0, seconds / count, np.nan)
        if "backward" in found:
            seconds = found["forward"] + found["backward"] + found["update"]
        for name, least in (("speed", 0.0), ("rounded_speed", _SLOWEST_ROUNDED)):
            if name in found:
                seconds = np.where((found[name] > 0) & (found[name] >= least), 1 / found[name], np.nan)
        if "batch" in found:
            rate = np.where(seconds > 0, found["batch"] / seconds, np.nan)
        known = np.isfinite(seconds) | np.isfinite(rate)
        if is_guess:
            number = np.where(np.isnan(rate), seconds, rate)
            known &= (number >= _LEAST) & (number <= _MOST)
            data = np.where((data > 0) & (data <= seconds), data, np.nan)
        if "minutes" in found:
            known &= step > 0
        if "done" in found:
            known &= found["done"] == found["of"]
        none = ~known | (step >= _LARGEST) | np.isinf(seconds) | np.isinf(rate)
        elapsed = found.get("hours", 0.0) * 3600 + get("minutes") * 60 + get("rest")
        counts = found.get("skipped", np.zeros(size)) + found.get("nan", 0.0) + lost
    return Steps(
        step, seconds, rate, data, get("batch"), get("scale"), counts, elapsed, found.get("of", get("total")), unknown
    ), none


def read_step(tool: Tool, line: bytes) -> tuple[int | None, float | None, float | None] | None:
    """Step, seconds and rate of one line of a tool; None where it is no step."""
    form = form_of(line[:LONGEST], [tool])
    if form is None:
        return None
    steps, none = form.read(Texts([line[:LONGEST]]), np.zeros(1, np.int64))
    if none[0]:
        return None
    step, seconds, rate = (None if np.isnan(column[0]) else float(column[0]) for column in steps[:3])
    return None if step is None else int(step), seconds, rate
