"""Times of the parts of a step on each rank: Megatron-LM's timers over ranks, and lines of loops of people's own."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RankTime
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.line_forms import Group, LineForms, Span
from nccl_doctor.formats.training.steps.step_writers import named_rank, writer_of
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
_LINES = 400_000  # lines of parts that are read
_NAMES = 64  # parts of a file
_SERIES = 65_536  # of all parts and ranks
_VALUES = 256  # of one part of a rank, for its median
_HEAD = compiled(rb"(?:(?P<all>times)|\(min, max\) time|(?P<most>max time)) across ranks \(ms\):")
_NAME = compiled(rb"  ([a-z][\w-]{2,60}):\s*\Z")
_RANGE = compiled(rb"    ([a-z][\w-]{2,60}) \.{2,60}: (?:\((\d{1,12}\.\d{1,6}), (\d{1,12}\.\d{1,6})\))\s*\Z")
_LONGEST = 600  # bytes of a line
_TITLE = b" across ranks (ms):"
_H2D, _STANDS_FOR_IT = b"h2d", b"htd"  # the name of a part, whose digit is no number
_DIGITS = 15  # of a number that is exact as a float, whatever its point
_RANKS = 10**8
_PLACES = 128  # more than a line has parts
_RANK = compiled(rb"     rank {1,6}(\d{1,7}): (\d{1,12}(?:\.\d{1,6})?)\s*\Z")
_PART = compiled(
    rb"(?i)(?<![\w.-])(data(?:_?load(?:er|ing)?|_?wait)?|load(?:ing)?|fwd|forward|bwd|backward|opt|optim|optimizer|update|comm|all_?reduce|sync|h2d"
    rb"|compute|io|loss)(?:[_ ](?:time|pass))?(?:[_ ](ms|s))?[\"']?[ \t]{0,2}[:=]?[ \t]{0,3}(\d{1,12}\.\d{1,9})[ \t]?(ms|s|sec)?(?![\w.%/])"
)
_WORDS = b"fwd", b"bwd", b"orward", b"ackward", b"ompute"
_TELLS = frozenset((b"fwd", b"forward", b"bwd", b"backward", b"compute"))

_Key = tuple[str | None, int | None, str, str | None]  # host, rank, name, unit
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


class _Part(NamedTuple):
    """The time of one part in lines of a form."""

    name: str
    unit: str | None
    factor: float  # to seconds, where a unit is told
    span: Span


class _Form(NamedTuple):
    """What the lines of a form tell: times of parts, or that of one rank below the name of a timer. Others are read one by one."""

    parts: tuple[_Part, ...] = ()
    rank: Span | None = None  # of a line below a timer
    writer: int = 0  # where the text ends that says who wrote a line with parts


_ONE_BY_ONE = _Form()


def _line_forms() -> LineForms[_Form]:
    """Finds the forms of lines, given as `_texts_of` makes them."""
    return LineForms(lambda text: _form(_bytes_of(text)))


def _texts_of(data: bytes) -> list[str]:
    """The lines of a block, a character a byte."""
    return data.replace(_H2D, _STANDS_FOR_IT).decode("latin-1").split("\n")


def _bytes_of(text: str) -> bytes:
    return text.encode("latin-1").replace(_STANDS_FOR_IT, _H2D)


def _form(line: bytes) -> _Form | None:
    if len(line) > _LONGEST:
        return None
    rank = _RANK.search(line) if b" rank " in line else None
    has_words = any(word in line for word in _WORDS)
    if _TITLE in line or b" .." in line or line.rstrip().endswith(b":") or (rank is not None and has_words):
        return _ONE_BY_ONE
    if rank is not None:
        form = _Form((_Part("", "s", 1e-3, rank.span(2)),), rank.span(1))
    elif has_words and (found := _form_of_parts(line)) is not None:
        form = found
    else:
        return None
    return form if all(stop - start <= _DIGITS for start, stop in (part.span for part in form.parts)) else _ONE_BY_ONE


def _form_of_parts(line: bytes) -> _Form | None:
    """Two parts or more, and whose they are."""
    found = list(_PART.finditer(line))
    named = named_rank(line, 0, anywhere=True)
    if len(found) < 2 or named is None or not any(part[1].lower() in _TELLS for part in found):
        return None
    parts = []
    for part in found:
        unit = (part[4] or part[2] or b"").lower()
        if part[1].lower() != b"loss":
            factor = 1e-3 if unit == b"ms" else 1.0
            parts.append(_Part(part[1].decode().lower(), "s" if unit else None, factor, part.span(3)))
    return _Form(tuple(parts), None, named[1])


def _parts_of(line: bytes) -> Iterator[tuple[_Key, float]]:
    """The times that one line tells, in seconds; none of a line that tells fewer than two or not whose they are."""
    form = _form_of_parts(line) if any(word in line for word in _WORDS) else None
    if form is not None:
        host, rank = _writer(line[: form.writer])
        for name, unit, factor, (start, stop) in form.parts:
            yield (host, rank, name, unit), float(line[start:stop]) * factor


def _rank_of(line: bytes) -> tuple[int, float] | None:
    """The rank and the time in seconds of a line below the name of a timer."""
    found = _RANK.search(line)
    return None if found is None else (int(found[1]), float(found[2]) / 1000)


@lru_cache(1 << 14)
def _writer(text: bytes) -> tuple[str | None, int | None]:
    """Host and rank of a line that begins so."""
    return writer_of(text + b" ", len(text) + 1, anywhere=True)[:2]


class _Columns:
    """The times that the lines of one block tell."""

    def __init__(self) -> None:
        self._keys: dict[_Key, int] = {}
        self._columns: list[tuple[_Ints, _Ints, _Floats]] = []  # key, line and place in it, seconds

    def add_ranks(self, group: Group[_Form], opened: Sequence[tuple[int, str | None]]) -> int:
        """Take lines of ranks; `opened` says from which line on which timer's ranks follow. How many are below one."""
        assert group.form.rank is not None
        names = list(dict.fromkeys(name for _, name in opened if name is not None))
        of_table = np.array([-1 if name is None else names.index(name) for _, name in opened])
        rows = np.array(group.rows)
        timers = of_table[np.searchsorted([row for row, _ in opened], rows) - 1]
        below = timers >= 0
        [rank] = group.whole_numbers([group.form.rank])
        found, which = np.unique((timers * _RANKS + rank.astype(np.int64))[below], return_inverse=True)
        keys = [self._key((None, one % _RANKS, names[one // _RANKS], "s")) for one in found.tolist()]
        # as `float` reads the text, and divided: a product with 0.001 is another number
        seconds = _numbers(group, group.form.parts[0].span) / 1000
        self._columns.append((np.array(keys, np.int64)[which], rows[below] * _PLACES, seconds[below]))
        return int(below.sum())

    def add_parts(self, group: Group[_Form]) -> int:
        """Take lines that tell parts; how many."""
        form, rows = group.form, np.array(group.rows)
        writers: dict[str, int] = {}
        which = np.array([writers.setdefault(line[: form.writer], len(writers)) for line in group.lines])
        known = [_writer(_bytes_of(writer)) for writer in writers]
        for place, (name, unit, factor, span) in enumerate(form.parts):
            keys = np.array([self._key((host, rank, name, unit)) for host, rank in known])
            self._columns.append((keys[which], rows * _PLACES + place, _numbers(group, span) * factor))
        return len(rows)

    def _key(self, key: _Key) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def series(self) -> Iterator[tuple[_Key, _Floats, _Ints]]:
        """Each part of a rank with its times and the lines that tell them, in the order in which they come first."""
        if not self._columns:
            return
        keys, places, seconds = map(np.concatenate, zip(*self._columns, strict=True))
        order = np.lexsort((places, keys))
        keys, places, seconds = keys[order], places[order], seconds[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        stops = np.append(starts[1:], len(keys))
        names = list(self._keys)
        for at in np.argsort(places[starts], kind="stable").tolist():
            part = slice(int(starts[at]), int(stops[at]))
            yield names[int(keys[part.start])], seconds[part], places[part] // _PLACES


def _numbers(group: Group[_Form], span: Span) -> _Floats:
    """The numbers with or without decimals at a place of the lines of a form, as `float` reads them."""
    start, stop = span
    whole, _, decimals = group.lines[0][start:stop].partition(".")
    point = start + len(whole)
    if not decimals:
        return group.whole_numbers([(start, point)])[0]
    before, behind = group.whole_numbers([(start, point), (point + 1, stop)])
    power = 10.0 ** len(decimals)
    numbers: _Floats = (before * power + behind) / power
    return numbers


class _Times:
    """The times of one part on one rank."""

    def __init__(self) -> None:
        self.n = 0
        self.values = array("d")
        self.least = array("d")  # on the fastest rank, where lines tell the slowest and the fastest
        self.slowest = -1.0
        self.place = 0, b""

    def add(self, value: float, line: bytes, number: int, least: float | None = None) -> None:
        self.n += 1
        if len(self.values) < _VALUES:
            self.values.append(value)
            if least is not None:
                self.least.append(least)
        if value > self.slowest:
            self.slowest, self.place = value, (number, line)

    def add_all(self, values: _Floats, rows: _Ints, lines: Sequence[bytes], first: int) -> None:
        """Add values that those of some lines tell."""
        self.n += len(values)
        self.values.extend(values[: max(_VALUES - len(self.values), 0)].tolist())
        most = int(values.argmax())
        if values[most] > self.slowest:
            row = int(rows[most])
            self.slowest, self.place = float(values[most]), (first + row, lines[row])


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read times of parts of a step, which lines tell by the name of the part.

    Source: Megatron-LM `core/timers.py` with `--timing-log-level 2` and `--timing-log-option all` or `minmax`, and people's own loops::

        times across ranks (ms):
          forward-compute:
             rank  0: 1010.21
        (min, max) time across ranks (ms):
            forward-compute ................................: (1010.21, 1893.55)
        rank 3: data 0.101 fwd 0.541 bwd 0.902
    """
    facts.mark_covered("rank_time")
    times = RankTimers()
    lines = 0
    for block in blocks(stream, _BLOCK):
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        times.block(block.data, block.first)
    if not times.tells:
        return Reading(lines, 0)
    facts.add(times.rows(facts, name))
    note = f"only the first {_LINES:,} lines with times of ranks were read" if times.used >= _LINES else None
    return Reading(lines, times.used, note)


class RankTimers:
    """The parts of all ranks of one file."""

    def __init__(self) -> None:
        self.used = 0
        self._times: dict[_Key, _Times] = {}
        self._names: set[str] = set()
        self._open: str | None = None  # timer whose ranks follow
        self._forms = _line_forms()
        self._kind = ""  # all, minmax, or of no table

    def block(self, data: bytes, first: int) -> None:
        """Take the lines of a block that tell times."""
        if self.used >= _LINES:
            return
        lines = data.split(b"\n")
        if self.used + len(lines) <= _LINES:
            self._take_forms(data, lines, first)
            return
        for number, line in enumerate(lines, first):
            if len(line) <= _LONGEST and self.used < _LINES and self._line(line, number):
                self.used += 1

    def _take_forms(self, data: bytes, lines: Sequence[bytes], first: int) -> None:
        """Take lines together that differ in digits only; one by one those that open a table or tell a range."""
        groups, _ = self._forms.groups(_texts_of(data))
        opened = [(-1, self._open)]  # from which line on which timer's ranks follow
        for row in sorted(row for group in groups if group.form is _ONE_BY_ONE for row in group.rows):
            self.used += self._line(lines[row], first + row)
            opened.append((row, self._open))
        columns = _Columns()
        for group in groups:
            if group.form.rank is not None:
                self.used += columns.add_ranks(group, opened)
            elif group.form is not _ONE_BY_ONE:
                self.used += columns.add_parts(group)
        for key, values, rows in columns.series():
            if (times := self._times_of(key)) is not None:
                times.add_all(values, rows, lines, first)

    def _line(self, line: bytes, number: int) -> bool:
        if self._open is not None and (rank := _rank_of(line)) is not None:
            return self._add((None, rank[0], self._open, "s"), rank[1], line, number)
        if _TITLE in line and (head := _HEAD.search(line)) is not None:
            self._kind = "all" if head["all"] else "" if head["most"] else "minmax"
            self._open = None
            return True
        if self._kind == "all" and line.rstrip().endswith(b":") and (name := _NAME.search(line)) is not None:
            self._open = name[1].decode()
            return True
        if self._kind == "minmax" and b" .." in line and (least := _RANGE.search(line)) is not None:
            return self._add(
                (None, None, least[1].decode(), "s"), float(least[3]) / 1000, line, number, float(least[2]) / 1000
            )
        parts = list(_parts_of(line))
        for key, seconds in parts:
            self._add(key, seconds, line, number)
        return bool(parts)

    def _add(self, key: _Key, value: float, line: bytes, number: int, least: float | None = None) -> bool:
        times = self._times_of(key)
        if times is not None:
            times.add(value, line, number, least)
        return times is not None

    def _times_of(self, key: _Key) -> _Times | None:
        """The times of a part; None where enough of them are kept."""
        times = self._times.get(key)
        if times is None:
            if len(self._times) >= _SERIES or (key[2] not in self._names and len(self._names) >= _NAMES):
                return None
            self._names.add(key[2])
            times = self._times[key] = _Times()
        return times

    @property
    def tells(self) -> bool:
        """Whether ranks can be compared: those of one alone tell nothing of it."""
        ranks = {(host, rank) for host, rank, *_ in self._times}
        return len(ranks) > 1 or (None, None) in ranks

    def rows(self, facts: Facts, file: str) -> Iterator[RankTime]:
        """A row for each part of each rank."""
        for (host, rank, name, unit), times in self._times.items():
            number, line = times.place
            text = prefixes.clean(line.decode("utf-8", "replace")).strip()
            if rank is not None and name not in text.lower():  # Megatron-LM names the part above
                text = f"{name}: {text}"
            yield RankTime(
                file=file, host=host, rank=rank, name=name, n=times.n, seconds=median(times.values), unit=unit,
                least=median(times.least) if times.least else None, slowest=times.slowest, ref=facts.evidence(file, number, text),
            )  # fmt: skip
