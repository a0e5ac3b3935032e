"""Records of several lines: tracebacks and tables, lines that two writers tore, and pastes wrapped at a terminal's width."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.log import nccl_header
from nccl_doctor.log.line_patterns import Pattern

NextLines = Callable[[int], list[str]]  # gives up to so many of the lines that follow
Writer = tuple[int | None, int | None, str | None, int | None]  # rank, local rank, host, process

_NOBODY = NOTHING[:4]
_PASSED = 1_000  # characters of other writers between the lines of one
_NARROWEST, _WIDEST = 60, 250  # columns of a terminal
_TORN = 3  # kinds of NCCL lines cut at one width that make a log a wrapped one
_VALUE = re.compile(r"0x[0-9a-f]+|\d+")
_SAMPLE = 1 << 16  # bytes that tell


class FollowingLine(NamedTuple):
    """A line that follows, without its prefix."""

    text: str
    distance: int  # lines behind the first


class Joined(NamedTuple):
    """The text that a pattern matched."""

    text: str
    distance: int  # of its last line


def writer_of(label: Label) -> Writer | None:
    """The fields of a prefix that identify its writer; None where it has none of them."""
    writer = label[:4]
    return None if writer == _NOBODY else writer


def following_lines(after: NextLines, count: int, label: Label) -> list[FollowingLine]:
    """Up to `count` of the next lines of a writer, ending before its next NCCL record.

    Lines of other writers in between are passed over. A line without prefix belongs to the line above it.
    """
    writer = writer_of(label)
    rows: list[FollowingLine] = []
    above, passed = True, 0
    for distance, line in enumerate(after(4 * count + 4 if writer else count), 1):
        line, other, text = _apart(line.rstrip("\r").rpartition("\r")[2])
        if writer is not None:
            of = writer_of(other)
            above = of == writer or (above and of is None)
            if not above:
                passed += len(line)
                if passed > _PASSED:
                    break
                continue
        if nccl_header.TOKEN in line and nccl_header.split_record(line) is not None:
            break
        rows.append(FollowingLine(text, distance))
        if len(rows) == count:
            break
    return rows


@lru_cache(512)  # what follows one line follows those before it too
def _apart(line: str) -> tuple[str, Label, str]:
    """A line after `clean`, the fields of its prefixes, and the text that remains."""
    line = prefixes.clean(line)
    return line, *prefixes.split(line)


def matches(patterns: Sequence[Pattern], text: str, after: NextLines, label: Label) -> Iterator[tuple[Pattern, Joined]]:
    """The text patterns that match at a line, each with the text it matched: the line, or with the lines behind it that belong to it."""
    alone = {
        pattern.order: pattern
        for pattern in patterns
        if not pattern.lines and not pattern.fallback and pattern.match(text) is not None
    }
    understood = [literal for pattern in alone.values() for literal in pattern.literals if literal in text]
    known = bool(alone)
    for pattern in patterns:
        if pattern.order in alone:
            yield pattern, Joined(text, 0)
            continue
        if pattern.fallback:
            if not known and pattern.match(text) is not None:
                known = True
                yield pattern, Joined(text, 0)
            continue
        if pattern.lines:
            joined = _rows(pattern, text, after, label)
        elif any(literal in text and not any(literal in one for one in understood) for literal in pattern.literals):
            joined = _torn(pattern, text, after, label)
        else:  # another pattern has understood the same words
            continue
        if joined is not None:
            known = True
            yield pattern, joined


def _rows(pattern: Pattern, text: str, after: NextLines, label: Label) -> Joined | None:
    """A record of several lines."""
    rows = [FollowingLine(text, 0), *following_lines(after, pattern.lines, label)]
    whole = "\n".join(row.text for row in rows)
    match = pattern.compiled.search(whole)
    if match is None or match.start() > len(text):
        return None
    last = whole.count("\n", 0, match.end())
    short = "\n".join(row.text for row in rows[: last + 1])
    return Joined(short if pattern.match(short) is not None else whole, rows[last].distance)


def _torn(pattern: Pattern, text: str, after: NextLines, label: Label) -> Joined | None:
    """A record of one line that was torn over two."""
    for row in following_lines(after, 1, label):
        for whole in (text + row.text, f"{text} {row.text.strip()}"):
            match = pattern.compiled.search(whole)
            if match is not None and match.start() < len(text):
                return Joined(whole, row.distance)
    return None


def wrap_width(block: bytes) -> int:
    """The width in characters at which the start of a log is wrapped; 0 where it is not."""
    if nccl_header.TOKEN.encode() not in block[:_SAMPLE]:
        return 0
    rows = [row.rstrip("\r") for row in block[:_SAMPLE].decode("utf-8", "replace").split("\n")[:-1]]
    columns = max(map(len, rows), default=0)
    if not _NARROWEST <= columns <= _WIDEST:
        return 0
    starts = _starts(rows, columns)
    cut = [(row, next_) for row, next_ in pairwise(rows) if len(row) == columns and next_.strip()]
    torn = {
        _VALUE.sub("#", row) for row, next_ in cut if not _is_whole(next_, starts) and nccl_header.split_record(row)
    }
    whole = sum(_is_whole(next_, starts) for _, next_ in cut)
    return columns if len(torn) >= _TORN and 4 * whole <= len(cut) else 0


def _is_whole(row: str, starts: set[str]) -> bool:
    """Whether a line begins a record or as lines do that continue none; one width may also be that of equal sentences."""
    return _start(row) in starts or nccl_header.split_record(row) is not None


def unwrapped(block: bytes, columns: int) -> bytes:
    """The wrapped lines joined, each followed by empty lines, so that line numbers stay."""
    rows = [row.rstrip("\r") for row in block.decode("utf-8", "replace").split("\n")]
    starts = _starts(rows, columns)
    lines: list[str] = []
    behind, going_on = 0, False
    for row in rows:
        if going_on and _start(row) not in starts:
            lines[-1] += row
            behind += 1
        else:
            lines += [""] * behind
            lines.append(row)
            behind = 0
        going_on = len(row) == columns
    return "\n".join([*lines, *[""] * behind]).encode()


def cut_between(block: bytes, cut: int, columns: int) -> int:
    """The last offset up to `cut` at which no wrapped line continues."""
    while cut:
        start = block.rfind(b"\n", 0, cut - 1) + 1
        if len(block[start : cut - 1].decode("utf-8", "replace").rstrip("\r")) != columns:
            break
        cut = start
    return cut


def _start(row: str) -> str:
    return row.partition(":")[0]


def _starts(rows: list[str], columns: int) -> set[str]:
    """The text up to the first colon of each line that does not continue a wrapped one."""
    return {_start(row) for above, row in zip(["", *rows], rows, strict=False) if len(above) != columns and ":" in row}
