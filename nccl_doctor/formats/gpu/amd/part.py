"""The part of one GPU in the text of `amd-smi metric` and `static`. Parts with the same titles have their values in the same places.

GPU: 0
    USAGE:
        GFX_ACTIVITY: 97 %
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.formats.gpu.amd.names import COLUMNS, REASONS_AMD, SAMPLED

Fields = dict[str, tuple[Any, int, str]]  # path in small letters -> value, line, text of the line
ACTIVE = ("ACTIVE", "THROTTLED", "TRUE")
_MOST_HEADS = 1 << 15  # lines that are remembered; a part has up to 10,000
_LONGEST = 320  # characters of one with a value
_ACTIVE_ENDS = ("E", "e", "D", "d", " ", "\t")
_FIELD = re.compile(r"( {4,40})([A-Z][\w ]{0,60}):(?: (.{1,200}))?$")
_AMOUNT = re.compile(r"\(?(-?\d{1,18}(?:\.\d{1,9})?) ?(B|[KMG]i?B|[a-zA-Z°%/]{0,6})\)?")
_SCALES = {"B": 2.0**-20, "KB": 2.0**-10, "GB": 1024.0, "KiB": 2.0**-10, "GiB": 1024.0}


class _Value(NamedTuple):
    """Where one value of a part is."""

    path: str
    line: int  # counted from that behind the title
    start: int  # in the line

    def of(self, lines: Sequence[str]) -> str:
        return lines[self.line][self.start :]


class Layout(NamedTuple):
    """Where the values of a part are."""

    values: tuple[_Value, ...]
    sampled: tuple[tuple[str, _Value], ...]  # column and its value; of several the first that is a number counts
    reasons: tuple[tuple[int, _Value], ...]  # bit of a clock event reason and whether it is active
    stamp: _Value | None
    known: int  # values with a column

    def fields(self, lines: Sequence[str], first: int) -> Fields:
        """All values of a part, of which the first line has this number."""
        return {at.path: (at.of(lines).strip(), first + at.line, lines[at.line].strip()) for at in self.values}

    def samples(self, lines: Sequence[str]) -> dict[str, float]:
        """The numbers of a part by column."""
        numbers: dict[str, float] = {}
        for column, (path, line, start) in self.sampled:
            if column not in numbers and (number := _number(lines[line][start:], path, column)) is not None:
                numbers[column] = number
        if self.reasons:
            numbers["mask"] = 0
        for bit, (_, line, start) in self.reasons:
            if lines[line].endswith(_ACTIVE_ENDS) and lines[line][start:].strip().upper() in ACTIVE:
                numbers["mask"] = int(numbers.get("mask", 0)) | bit
        return numbers


_Head = tuple[int, str, int]
_heads: dict[str, _Head | bool] = {}  # of lines; most of them come again and again


def layout_of(lines: Sequence[str]) -> Layout:
    """The layout of the lines behind that of a GPU."""
    heads = tuple(map(_heads.get, lines))
    if None in heads:
        if len(_heads) >= _MOST_HEADS:
            _heads.clear()
        new = {line for line, head in zip(lines, heads, strict=True) if head is None and len(line) <= _LONGEST}
        _heads.update((line, _head(line)) for line in new)
        heads = tuple(_heads[line] if line in _heads else _head(line) for line in lines)
    return _layout(heads)


def _head(line: str) -> _Head | bool:
    """Indentation and title of a line, and where its value begins, 0 where it has none; False for other lines."""
    field = _FIELD.match(line)
    return False if field is None else (len(field[1]), field[2].strip().lower(), max(field.start(3), 0))


@lru_cache(256)
def _layout(heads: tuple[_Head | bool | None, ...]) -> Layout:
    titles: list[tuple[int, str]] = []
    values: dict[str, _Value] = {}
    for at, head in enumerate(heads):
        if isinstance(head, tuple):
            indent, title, start = head
            titles = [*((i, t) for i, t in titles if i < indent), (indent, title)]
            path = "/".join(t for _, t in titles)
            if start:
                values[path] = _Value(path, at, start)
    columns = {path: column_of(path) for path in values}
    return Layout(
        values=tuple(values.values()),
        sampled=tuple((column, values[path]) for path, column in columns.items() if column in SAMPLED),
        reasons=tuple(
            (REASONS_AMD[name], at) for at in values.values() if (name := at.path.rpartition("/")[2]) in REASONS_AMD
        ),
        stamp=values.get("timestamp"),
        known=sum(column is not None or path.rpartition("/")[2] in REASONS_AMD for path, column in columns.items()),
    )


def column_of(path: str) -> str | None:
    """The column of a path, or of its last part."""
    return COLUMNS.get(path) or COLUMNS.get(path.rpartition("/")[2])


@lru_cache(8192)
def _number(text: str, path: str, column: str) -> float | None:
    return amount(text, path, column)


def amount(value: Any, path: str = "", column: str = "") -> float | None:
    """The number of `560 W`, `(132Mhz)`, {"value": 560, "unit": "W"} or 560; memory in MiB."""
    if isinstance(value, dict):
        value = f"{value.get('value')} {value.get('unit', '')}"
    if isinstance(value, bool):
        return None
    match = _AMOUNT.match(str(value).strip())
    if match is None:
        return None
    unit = match[2] or ("B" if path.endswith(" (b)") else "")
    scale = _SCALES.get(unit, 1.0) if column.startswith("memory") else 1.0
    return float(match[1]) * scale
