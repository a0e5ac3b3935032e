"""Records of several lines: tracebacks and tables, and lines that two writers tore."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.log import nccl_header
from nccl_doctor.log.line_patterns import Pattern

NextLines = Callable[[int], list[str]]  # gives up to so many of the lines that follow
Writer = tuple[int | None, int | None, str | None, int | None]  # rank, local rank, host, process

_NOBODY = NOTHING[:4]
_PASSED = 1_000  # characters of other writers between the lines of one


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
