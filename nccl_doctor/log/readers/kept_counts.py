"""Counts of a part of a log as text that is kept in a saved fact base.

JSON with columns of numbers and words. Nothing of it is run, and whatever does not fit together is refused: the text may be
damaged, or written by somebody else.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from nccl_doctor.inputs.prefixes import Label
from nccl_doctor.log.channel_counts import ChannelColumns
from nccl_doctor.log.counts import BUDGETED, PackedCounts
from nccl_doctor.log.event_columns import EventColumns, Message
from nccl_doctor.log.line_patterns import load
from nccl_doctor.log.nccl_header import LEVELS

_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "int?": (int, type(None)), "str": (str,), "str?": (str, type(None)),
    "bool": (bool,), "float?": (float, int, type(None)),
}  # fmt: skip
_HEADER = ("str?", "int?", "int?", "int?", "str?")  # of NcclHeader in front of its label
_LABEL = ("int?", "int?", "str?", "int?", "float?", "int")
_SPAN = ("int", "int", "int", "float?")
_HEADERS = (*_HEADER, *_LABEL, "bool", "int?", *_SPAN)
_MESSAGE = ("int", "str", "str", "int?")
_EVENT = ("int", "int", "int", "float?", "str")  # n, first, last, stamp, left
_NUMBERS = ("message", "header", "n", "first", "last")
_EDGES = ("mask", "header", "n", "first", "last", "src", "dst", "carrier", "channel")
_TOTALS = ("lines", "size", "nccl_lines", "understood")
_LARGEST = 1 << 64


def dump(counts: PackedCounts) -> str:
    """The counts as text."""
    events, edges = counts.columns, counts.edges
    top = {
        "totals": [counts.lines, counts.size, counts.nccl_lines, counts.understood],
        "headers": _turned((*head[:5], *head[5], *head[6:]) for head in counts.headers),
        "events": counts.events,
        "calls": [[number, *call] for number, call in counts.calls.items()],
        "unknown": counts.unknown,
        "full": sorted(counts.full),
        "marks": sorted(mark.decode("latin-1") for mark in counts.marks),
        "messages": _turned(events.messages),
        "columns": [*(list(getattr(events, name)) for name in _NUMBERS), events.stamp, events.left],
        "carriers": _turned(edges.carriers),
        "edges": [*(list(getattr(edges, name)) for name in _EDGES), edges.left],
        "channels": [*edges.channels],
        "wide": [[header, text, bits] for (header, text), bits in edges.wide.items()],
    }
    return json.dumps(top, separators=(",", ":"))


def load_counts(text: str) -> PackedCounts:
    """The counts that `dump` wrote. Raises ValueError where the text is another one."""
    try:
        return _counts(json.loads(text, parse_constant=_refuse))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, AttributeError) as error:
        raise ValueError(f"not the counts of a log: {type(error).__name__}") from None


def _counts(top: dict[str, Any]) -> PackedCounts:
    lines, size, nccl_lines, understood = _column(top["totals"], "int")
    headers = [(*row[:5], Label(*row[5:11]), *row[11:]) for row in zip(*_table(top["headers"], _HEADERS), strict=True)]
    heads, patterns = len(headers), len(load())
    events = _table(top["events"], ("int", *_MESSAGE, *_EVENT))
    messages = _table(top["messages"], _MESSAGE)
    columns = _table(top["columns"], ("int",) * len(_NUMBERS) + ("float?", "str"))
    edges = _table(top["edges"], ("int",) * len(_EDGES) + ("str",))
    carriers = list(zip(*_table(top["carriers"], ("str", "str")), strict=True))
    channels = _column(top["channels"], "str")
    if events:
        _within(events[0], 0, heads)
        _within(events[1], -1, patterns)
        _spans(events[6], events[7], lines)
    if messages:
        _within(messages[0], -1, patterns)
    _levels([*(events[2] if events else ()), *(messages[1] if messages else ())])
    found = EventColumns(Message(*row) for row in zip(*messages, strict=True))
    if columns:
        _within(columns[0], 0, len(found.messages))
        _within(columns[1], 0, heads)
        _spans(columns[3], columns[4], lines)
        for name, values in zip(_NUMBERS, columns, strict=False):
            setattr(found, name, array("q", values))
        found.stamp, found.left = columns[5:]
    between = ChannelColumns()
    between.carriers.update({carrier: number for number, carrier in enumerate(carriers)})
    between.channels.update({channel: number for number, channel in enumerate(channels)})
    if len(between.carriers) < len(carriers) or len(between.channels) < len(channels):
        raise ValueError
    if edges:
        _within(edges[1], 0, heads)
        _within(edges[7], 0, len(carriers))
        _within(edges[8], 0, len(channels))
        _spans(edges[3], edges[4], lines)
        for name, values in zip(_EDGES, edges, strict=False):
            setattr(between, name, array(getattr(between, name).typecode, values))
        between.left = edges[9]
    for header, text, bits in top["wide"]:
        _within([header], 0, heads)
        if type(text) is not str or type(bits) is not int or bits < 0:
            raise ValueError
        between.wide[header, text] = bits
    return PackedCounts(
        headers=headers, events=[tuple(column) for column in events], calls=_calls(top["calls"], len(events[0]) if events else 0),
        edges=between, lines=lines, size=size, nccl_lines=nccl_lines, understood=understood,
        unknown=dict(zip(_column([*top["unknown"]], "str"), _column([*top["unknown"].values()], "int"), strict=True)),
        marks={mark.encode("latin-1") for mark in _column(top["marks"], "str")}, columns=found,
        full={*_column(top["full"], "str")} & BUDGETED.keys(),
    )  # fmt: skip


def _calls(rows: list[Any], events: int) -> dict[int, tuple[int, int, str]]:
    """What collective calls add to their events."""
    if not rows:
        return {}
    numbers, low, high, text = _table(_turned(rows), ("int", "int", "int", "str"))
    _within(numbers, 0, events)
    return {number: rest for number, *rest in zip(numbers, low, high, text, strict=True)}  # type: ignore[misc]


def _turned(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns, or columns as rows; none of no row."""
    return [list(column) for column in zip(*rows, strict=True)]


def _table(columns: Any, kinds: Sequence[str]) -> list[list[Any]]:
    """Columns of equal length; empty ones where there are none."""
    if not columns:
        return [[] for _ in kinds]
    checked = [_column(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    if len(set(map(len, checked))) != 1:
        raise ValueError
    return checked


def _column(values: Any, kind: str) -> list[Any]:
    allowed = _KINDS[kind]
    if type(values) is not list or not {type(value) for value in values} <= {*allowed}:
        raise ValueError
    if int in allowed and any(type(value) is int and not -_LARGEST < value < _LARGEST for value in values):
        raise ValueError
    return values


def _within(numbers: Iterable[int], low: int, high: int) -> None:
    if any(not low <= number < high for number in numbers):
        raise ValueError


def _spans(firsts: Iterable[int], lasts: Iterable[int], lines: int) -> None:
    if any(not 0 < first <= last <= lines for first, last in zip(firsts, lasts, strict=True)):
        raise ValueError


def _levels(words: Iterable[str]) -> None:
    if not {*words} <= {"", *LEVELS}:
        raise ValueError


def _refuse(word: str) -> Any:
    raise ValueError(word)
