"""Records of several lines: tracebacks and tables, and lines that two writers tore."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.log import nccl_header
from nccl_doctor.log.line_patterns import Pattern

NextLines = Callable[[int], list[str]]  # gives up to so many of the lines that follow
Writer = tuple[int | None, int | None, str | None, int | None]  # rank, local rank, host, process

_NOBODY = NOTHING[:4]
_MISSES = 10_000  # remembered
_PASSED = 1_000  # characters of other writers between the lines of one


class LineBehind(NamedTuple):
    """What the lines before need of a line."""

    size: int
    text: str  # without its prefix
    writer: Writer | None
    is_record: bool  # of NCCL


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


def reach(count: int) -> int:
    """Among how many lines behind one the next `count` of its writer are looked for."""
    return 4 * count + 4


def following_lines(
    behind: Iterable[LineBehind], count: int, writer: Writer | None, most: int = 0
) -> list[FollowingLine]:
    """Up to `count` of the next lines of a writer, ending before its next NCCL record.

    Lines of other writers in between are passed over, as many as for `most` lines. A line without prefix belongs to the line above it.
    """
    most = most or count
    rows: list[FollowingLine] = []
    above, passed = True, 0
    for distance, line in enumerate(islice(behind, reach(most) if writer else count), 1):
        if writer is not None:
            above = line.writer == writer or (above and line.writer is None)
            if not above:
                passed += line.size
                if passed > _PASSED:
                    break
                continue
        if line.is_record:
            break
        if line.text and rows and line.text == rows[-1].text:  # printed by two handlers, or copied twice
            continue
        rows.append(FollowingLine(line.text, distance))
        if len(rows) == count:
            break
    return rows


class LinesBehind:
    """The lines behind one that belong to its writer, each found once."""

    __slots__ = ("_behind", "_rows", "_writer")

    def __init__(self, behind: Callable[[], Iterable[LineBehind]], writer: Writer | None) -> None:
        self._behind = behind
        self._writer = writer
        self._rows: dict[tuple[int, int], list[FollowingLine]] = {}

    def rows(self, count: int, most: int = 0) -> list[FollowingLine]:
        """Up to `count` of them, of `most` that are looked for."""
        rows = self._rows.get((count, most))
        if rows is None:
            rows = self._rows[count, most] = following_lines(self._behind(), count, self._writer, most)
        return rows

    def deciding(self, pattern: Pattern) -> list[FollowingLine]:
        """Those that say whether a pattern matches."""
        return self.rows(pattern.deciding, pattern.lines)


class Parts(NamedTuple):
    """A line behind the last carriage return that wiped it."""

    whole: str
    label: Label  # fields of its prefixes
    text: str  # what remains
    writer: Writer | None


@lru_cache(512)  # what follows one line follows those before it too
def parts(raw: str) -> Parts:
    """A line and what its prefixes say."""
    line = _cleaned(raw)
    label, text = prefixes.split(line)
    return Parts(line, label, text, writer_of(label))


@lru_cache(512)
def line_behind(raw: str) -> LineBehind:
    """What the lines before need of a line."""
    line = _cleaned(raw)
    label, text = prefixes.split(line, timeless=True)
    return LineBehind(len(line), text, writer_of(label), is_record(raw))


@lru_cache(512)
def is_record(raw: str) -> bool:
    """Whether a line holds a record of NCCL."""
    return nccl_header.TOKEN in raw and nccl_header.split_record(_cleaned(raw)) is not None


def _cleaned(raw: str) -> str:
    return prefixes.clean(raw.rstrip("\r").rpartition("\r")[2])


class Alone(NamedTuple):
    """What the text of a line says without the lines behind it."""

    steps: list[
        tuple[Pattern, bool]
    ]  # patterns, and whether they match it; others may match it with the lines behind it
    fallback: Pattern | None  # counts where no other one does


def alone(patterns: Sequence[Pattern], text: str) -> Alone:
    """Which of the text patterns, given in their order, match a text."""
    found = [p for p in patterns if not p.lines and not p.fallback and p.match(text) is not None]
    orders = {pattern.order for pattern in found}
    understood = [literal for pattern in found for literal in pattern.literals if literal in text]
    steps = []
    for pattern in patterns:
        if pattern.order in orders:
            steps.append((pattern, True))
        elif not pattern.fallback and (pattern.lines or not _is_understood(pattern, text, understood)):
            steps.append((pattern, False))
    last = (pattern for pattern in patterns if not found and pattern.fallback and pattern.match(text) is not None)
    return Alone(steps, next(last, None))


def _is_understood(pattern: Pattern, text: str, understood: Sequence[str]) -> bool:
    """Whether other patterns have understood the words of a pattern."""
    return not any(literal in text and not any(literal in one for one in understood) for literal in pattern.literals)


Misses = set[tuple[int, bytes]]  # pattern, and a shape of texts of several lines that it does not match


def matches(known: Alone, text: str, behind: "LinesBehind", misses: Misses) -> Iterator[tuple[Pattern, Joined]]:
    """The text patterns that match at a line, each with the text it matched: the line, or with the lines behind it that belong to it."""
    is_known = False
    for pattern, is_alone in known.steps:
        if is_alone:
            found: Joined | None = Joined(text, 0)
        else:
            found = joined(pattern, text, behind, misses)
        if found is not None:
            is_known = True
            yield pattern, found
    if known.fallback is not None and not is_known:
        yield known.fallback, Joined(text, 0)


def joined(pattern: Pattern, text: str, behind: "LinesBehind", misses: Misses) -> Joined | None:
    """The text that a pattern matches at a line together with the lines behind it."""
    return (_rows if pattern.lines else _torn)(pattern, text, behind, misses)


def may_join(pattern: Pattern, text: str, behind: "LinesBehind") -> bool:
    """Whether a pattern that did not match a line with those behind it may match others of the same shapes."""
    if pattern.lines:
        wholes = ["\n".join([text, *(row.text for row in behind.deciding(pattern))])]
    else:
        wholes = [whole for row in behind.rows(1) for whole in _torn_over(text, row.text)]
    return any(map(pattern.may_match_shape, wholes))


def _torn_over(text: str, more: str) -> tuple[str, ...]:
    """What a line was that was torn over two."""
    return text + more, f"{text} {more.strip()}"


def _rows(pattern: Pattern, text: str, behind: "LinesBehind", misses: Misses) -> Joined | None:
    """A record of several lines."""
    rows = [FollowingLine(text, 0), *behind.deciding(pattern)]
    whole = "\n".join(row.text for row in rows)
    match = _search(pattern, whole, misses)
    if match is not None and pattern.least:
        rows[1:] = behind.rows(pattern.lines)
        whole = "\n".join(row.text for row in rows)
        match = pattern.compiled.search(whole)
    if match is None or match.start() > len(text):
        return None
    last = whole.count("\n", 0, match.end())
    short = "\n".join(row.text for row in rows[: last + 1])
    return Joined(short if pattern.match(short) is not None else whole, rows[last].distance)


def _torn(pattern: Pattern, text: str, behind: "LinesBehind", misses: Misses) -> Joined | None:
    """A record of one line that was torn over two."""
    for row in behind.rows(1):
        for whole in _torn_over(text, row.text):
            match = _search(pattern, whole, misses)
            if match is not None and match.start() < len(text):
                return Joined(whole, row.distance)
    return None


def _search(pattern: Pattern, whole: str, misses: Misses) -> re.Match[str] | None:
    """Where a pattern matches a text of several lines."""
    if len(whole) > digit_shapes.LONGEST or not whole.isascii():
        return pattern.compiled.search(whole)
    shape = pattern.order, digit_shapes.shape_of(whole.encode())
    if shape in misses:
        return None
    match = pattern.compiled.search(whole)
    if match is None and not pattern.may_match_shape(whole):
        if len(misses) > _MISSES:
            misses.clear()
        misses.add(shape)
    return match
