"""Logs whose lines were wrapped at the width of a terminal or a logger, read as the lines that the job wrote.

A terminal, `script` and `fold` cut at the last column; `textwrap` and loggers break between words and may indent what follows;
the handler of rich writes time, level, message and source file in columns::

    node01:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CU
    MEM
    [05/07/26 12:00:00] INFO     node01:101:140 [0] NCCL INFO    train.py:12
                                 Using network IB

A launcher may have labelled each row. Rows are joined only where more could not have been on the row above and the row itself
begins as no line does; the cost grows with the length of the log.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes, text_lines
from nccl_doctor.inputs.prefix_checks import HEAD
from nccl_doctor.inputs.streams import Readable

SAMPLE = 1 << 16  # bytes that tell
_NARROWEST, _WIDEST = 60, 250  # columns
_TORN = 3  # shapes of records cut at one width that make a log a wrapped one
_COPIED = 5  # rows of one width
_DRAWN = ("|", "+", "#", "-", "=")  # tables
_HELD = 64  # rows of other writers that may come between the rows of one line
_ROWS = 1_000  # of one line
_WORD = 100  # characters of the longest word that may have moved to the next row
_KEPT = 20_000  # beginnings of lines remembered
_INDENT = 12  # columns by which a logger may indent what follows
_VALUE = compiled(r"0x[0-9a-f]+|\d+")
_head_at = compiled(rf"(?:\[[^\]\n]{{1,40}}\] )?{HEAD}").match
# What launchers and collectors write before each row, also before one that continues another.
_LABEL = compiled(
    r" {0,5}\d{1,6}: (?=.)|\[[^\[\]<>\s]{1,200}\]<std(?:out|err|diag)>: ?|\[(?:default|trainer|worker)\d{1,5}\]:"
    r"|\[pod/[\w.-]{1,253}/[\w.-]{1,253}\] ?|\([^()]{0,80}pid=\d{1,10}[^()]{0,80}\) ?|[A-Za-z][\w.-]{0,252} {1,40}\| "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z (?:(?:stdout|stderr) F )?"
)
_GRID = compiled(
    r"(?P<left>\[[^\[\]]{5,40}\] | {6,42})(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|NOTSET) +(?P<text>.*)"
)
_PLACE = compiled(r" {1,400}[\w.-]{1,80}\.\w{1,4}:\d{1,6} *$")
_RICH_TIME = compiled(r"\[(\d\d)/(\d\d)/(\d\d) (\d\d:\d\d:\d\d)\]")


class Wrap(NamedTuple):
    """How the lines of a log were wrapped."""

    columns: int  # of the longest row, without its label
    words: bool  # broken between words
    indent: int = 0  # blanks before what follows; the column of the message in a grid
    labelled: bool = False  # each row has a label of a launcher
    grid: bool = False  # columns of the handler of rich


class _Row(NamedTuple):
    label: str
    text: str


def recognise(head: bytes) -> Wrap | None:
    """How a log is wrapped, from its first bytes; None for any other log."""
    rows = [row.rstrip("\r") for row in head[:SAMPLE].decode("utf-8", "surrogateescape").split("\n")[:-1]]
    columns = max(map(len, rows), default=0)
    if len(rows) < _TORN or not _NARROWEST <= columns <= _WIDEST + 60:
        return None
    if (grid := _grid(rows, columns)) is not None:
        return grid
    found = _plain([_Row("", row) for row in rows], labelled=False)
    if found is not None:
        return found
    if columns <= _WIDEST and _is_copied(rows):
        return Wrap(columns, words=False)
    apart = [_apart(row) for row in rows]
    if sum(bool(row.label) for row in apart) * 2 < len(apart):
        return None
    of_label: dict[str, list[_Row]] = {}
    for row in apart:
        of_label.setdefault(_who(row.label), []).append(row)
    return _plain([row for group in of_label.values() for row in [*group, _Row("", "")]], labelled=True)


def _is_copied(rows: list[str]) -> bool:
    """Whether rows were copied from a terminal that fills each one with blanks: all of one width, the first a record, some torn."""
    if len(rows) < _COPIED or len({len(row) for row in rows}) > 1 or not _is_record(rows[0]):
        return False
    torn = [row for above, row in pairwise(rows) if not above.endswith("  ") and not _is_record(row)]
    return len(torn) >= _TORN and not any(row.lstrip().startswith(_DRAWN) for row in rows)


def _grid(rows: list[str], columns: int) -> Wrap | None:
    """The columns of rich: rows with a level at one place, and rows that begin below the message."""
    found = [match for row in rows if (match := _GRID.match(row)) and match["text"]]
    places = [match.start("text") for match in found]
    at = max(set(places), key=places.count, default=0)
    fitting = sum(match.end("level") < at <= match.start("text") for match in found)
    if fitting < _TORN or fitting * 10 < len(found) * 9:
        return None
    below = sum(row[:at].isspace() and row[at : at + 1].strip() != "" for row in rows)
    if below < _TORN or (len(found) + below) * 10 < len(rows) * 8:
        return None
    return Wrap(columns, words=True, indent=at, grid=True)


def _plain(rows: list[_Row], *, labelled: bool) -> Wrap | None:
    columns = max(len(row.text) for row in rows)
    if not _NARROWEST <= columns <= _WIDEST:
        return None
    exact = _torn(rows, Wrap(columns, words=False, labelled=labelled))
    between = _torn(rows, Wrap(columns, words=True, labelled=labelled))
    if exact is not None and (between is None or 2 * exact[0] > between[0]):
        return Wrap(columns, words=False, labelled=labelled)
    if between is None:
        return None
    return Wrap(columns, words=True, indent=between[1], labelled=labelled)


def _torn(rows: list[_Row], wrap: Wrap) -> tuple[int, int] | None:
    """How many records are cut and the indent of what follows; None where the log is not wrapped so."""
    indents = range(_INDENT) if wrap.words else (0,)
    cut = [
        (above.text, row.text)
        for above, row in pairwise(rows)
        if row.text.strip() and _full(wrap, above.text, row.text) and not _is_filled(above.text, above.text)
    ]
    records = [(above, row) for above, row in cut if _is_record(above)] if len(cut) >= _TORN else []
    if len(records) < _TORN:
        return None
    starts = _starts(rows, wrap)
    whole = sum(_begins(row, starts) for _, row in cut)
    torn = [(above, row) for above, row in records if not _begins(row, starts)]
    depths = [len(row) - len(row.lstrip(" ")) for _, row in torn]
    indent = max(set(depths), key=depths.count, default=0)
    shapes = {_VALUE.sub("#", above) for (above, _), depth in zip(torn, depths, strict=True) if depth == indent}
    if len(shapes) < _TORN or indent not in indents or 4 * whole > len(cut) * (2 if wrap.words else 1):
        return None
    return len(torn), indent


def _full(wrap: Wrap, above: str, row: str) -> bool:
    """Whether no more of the next row would have fitted on the row above."""
    if not wrap.words:
        return len(above) == wrap.columns
    text = row.lstrip(" ")
    return bool(text) and len(above) + 1 + len(text.split(" ", 1)[0]) > wrap.columns


def _is_filled(first: str, last: str) -> bool:
    """Whether a line of NCCL, from its first row to its last one, ends in blanks with which a terminal filled the row."""
    return last.endswith("  ") and _head_at(first) is not None


def _starts(rows: list[_Row], wrap: Wrap) -> set[str]:
    """The text up to the first colon of the rows that continue none: more would have fitted on the row above."""
    pairs = pairwise([_Row("", ""), *rows])
    return {_start(row.text) for above, row in pairs if ":" in row.text and not _full(wrap, above.text, row.text)}


def _start(row: str) -> str:
    return _VALUE.sub("#", row.partition(":")[0])


def _begins(row: str, starts: set[str]) -> bool:
    """Whether a row begins a line: as others do that continue none, or with the header of NCCL or a launcher's prefix."""
    return _start(row) in starts or _is_record(row)


def _is_record(row: str) -> bool:
    if _head_at(row) is not None:
        return True
    label, _ = prefixes.split(prefixes.clean(row))
    return label.rank is not None or label.stamp is not None


def _apart(row: str) -> _Row:
    match = _LABEL.match(row)
    return _Row(row[: match.end()], row[match.end() :]) if match else _Row("", row)


def _who(label: str) -> str:
    """A label without its time: the rows of one writer."""
    return re.sub(r"\d{4}-\d\d-\d\dT\S+", "", label)


def rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number of the first row and text of every line of a wrapped log."""
    head = text_lines.read_head(stream, SAMPLE)
    wrap = recognise(head)
    pieces = text_lines.numbered(text_lines.Joined(head, stream))
    if wrap is None:
        yield from ((number, [line.rstrip(b"\r")]) for number, line in pieces)
        return
    lines = ((number, line.decode("utf-8", "surrogateescape").rstrip("\r")) for number, line in pieces)
    joined = _of_grid(lines, wrap) if wrap.grid else _joined(lines, wrap)
    yield from ((number, [line.encode("utf-8", "surrogateescape")]) for number, line in joined)


class _Open(NamedTuple):
    """A line of which more may follow."""

    number: int  # of its first row
    label: str
    parts: list[str]
    last: int  # number of its last row


def _joined(lines: Iterator[tuple[int, str]], wrap: Wrap) -> Iterator[tuple[int, str]]:
    """Lines in the order in which they ended; each writer has one that is open."""
    starts: set[str] = set()
    open_: dict[str, _Open] = {}
    full = wrap.columns - (_WORD if wrap.words else 0)  # a shorter row ends its line
    before: dict[str, str] = {}  # writer -> its last row
    for number, line in lines:
        label, text = _apart(line) if wrap.labelled else _Row("", line)
        who = _who(label)
        above = open_.pop(who, None)
        last = before.get(who, "")
        more = above is not None and len(above.parts) < _ROWS and not _is_filled(above.parts[0], last)
        if above is not None and more and _continues(wrap, last, text, starts):
            above.parts.append(_glued(wrap, last, text))
            line_ = above._replace(last=number)
        else:
            if above is not None:
                yield above.number, above.label + "".join(above.parts)
            if ":" in text and len(starts) < _KEPT and not _full(wrap, last, text):
                starts.add(_start(text))
            line_ = _Open(number, label, [text], number)
        before[who] = text
        if len(text) >= full:
            open_[who] = line_
        else:
            yield line_.number, line_.label + "".join(line_.parts)
        oldest = next(iter(open_), who)
        if oldest != who and number - open_[oldest].last > _HELD:
            line_ = open_.pop(oldest)
            yield line_.number, line_.label + "".join(line_.parts)
    for one in sorted(open_.values()):
        yield one.number, one.label + "".join(one.parts)


def _continues(wrap: Wrap, above: str, text: str, starts: set[str]) -> bool:
    if not _full(wrap, above, text):
        return False
    depth = len(text) - len(text.lstrip(" "))
    if wrap.words and depth != wrap.indent:
        return False
    return _start(text) not in starts and _head_at(text) is None and not (wrap.words and _is_record(text))


def _glued(wrap: Wrap, above: str, text: str) -> str:
    """What follows, with the blank at which the row was broken."""
    if not wrap.words:
        return text
    text = text.lstrip(" ")
    return text if above.endswith(" ") or re.search(r"\w-$", above) else f" {text}"


def _of_grid(lines: Iterator[tuple[int, str]], wrap: Wrap) -> Iterator[tuple[int, str]]:
    """The messages of rich's handler behind the time of their records."""
    first, before, width, above = 0, "", 0, ""
    parts: list[str] = []
    for number, line in lines:
        match = _GRID.match(line)
        text = line[wrap.indent :].rstrip()
        if match is not None and match.end("level") < wrap.indent <= match.start("text"):
            if parts:
                yield first, before + "".join(parts)
            place = _PLACE.search(line, wrap.indent)
            width = (place.end() - len(place[0].strip()) - 1 if place else wrap.columns) - wrap.indent
            text = line[wrap.indent : place.start()].rstrip() if place else text
            first, before, parts = number, _time(match["left"], before), [text]
        elif parts and line[: wrap.indent].isspace() and text:
            fits = not above or len(above) + 1 + len(text.split(" ", 1)[0]) <= width
            if fits or text.startswith(" "):  # a message of several lines
                yield first, before + "".join(parts)
                first, parts = number, [text]
            else:
                parts.append(text if " " not in above and len(above) == width else f" {text}")
        else:
            if parts:
                yield first, before + "".join(parts)
                parts = []
            yield number, line
        above = text
    if parts:
        yield first, before + "".join(parts)


def _time(left: str, last: str) -> str:
    """The time of a record as launchers print it; rich leaves it out where it is that of the record before."""
    if left.isspace():
        return last
    match = _RICH_TIME.match(left)
    return f"20{match[3]}-{match[1]}-{match[2]} {match[4]} " if match else ""
