"""Tables in which commands list things a row each under titles: ports of a switch, power supplies, disks, pools, jobs.

PSU    Model          Power (W)  Status     a ruler below the titles, one or several lines of them
-----  -----------  -----------  ------
PSU 1  MTEF-PSF           54.56  OK

| DEVICE | CORES |                          bars
+--------+-------+
| 0      | 4     |

NAME   SIZE  HEALTH                         titles alone
rpool  9.08T DEGRADED
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_COLUMNS = 40
_LONGEST = 1_000  # characters of a line
_TITLE_LINES = 4
_TRIES = 16  # lines at which a table between bars may begin before all of them are none
_FEWEST = 3  # titles without a ruler
_RULER = re.compile(r"[\s|+]{0,40}[-=]{2,200}(?:[ \t|+]{1,20}[-=]{1,200}){1,40}[ \t|+]{0,20}$")
_FRAME = re.compile(r"[+|][-=+|]{3,400}[+|]$")
_SPAN = re.compile(r"[-=]+")
_PART = re.compile(r"\S+(?: \S+)*")  # words with one blank between them
_WORD = re.compile(r"\S+")
_TITLE = re.compile(r"[%#]?[A-Za-z][\w%/().,:*#+-]{0,30}(?: [\w%/().#+-]{1,20}){0,3}")
_CAPITALS = re.compile(r"%?[A-Z][A-Z\d%/().:#_-]{0,30}")
_COMMAND = re.compile(
    r"(?:[\w.-]{1,40}@[\w.-]{1,80}:?[^$#>]{0,80}[$#>]|\[[^\]@\s]{1,40}@[^\]]{1,80}\][$#]|[$%]|[\w.-]{1,60}[#>]) ?(?P<what>[a-z][^|]{1,200})"
)


class Table(NamedTuple):
    """One table."""

    above: str  # what stands above it: the command, or the thing it tells of; empty
    titles: tuple[str, ...]
    rows: list[tuple[int, str, tuple[str, ...]]]  # number of the line, the line, its cells


def tables_of(lines: Sequence[tuple[int, str]]) -> Iterator[Table]:
    """The tables in some lines, which have their numbers, in their order."""
    at, end = 0, 0  # the place, and where the last table ended
    above = ""
    tried = 0  # lines of the bars that stand here and are no table
    while at < len(lines):
        text = lines[at][1]
        tried = tried + 1 if text.strip()[:1] in ("+", "|") else 0
        found = None if len(text) > _LONGEST or tried > _TRIES else _table_at(lines, at, end, above)
        if found is not None:
            table, at = found
            end, tried = at, 0
            yield table
            continue
        if (command := _COMMAND.match(text)) is not None:
            above = command["what"].strip()
        elif text.rstrip().endswith(":") and len(text) < 80:
            above = text.strip(" :")
        at += 1


def _table_at(lines: Sequence[tuple[int, str]], at: int, end: int, above: str) -> tuple[Table, int] | None:
    """The table with its ruler or its titles at a place, and where it ends."""
    text = lines[at][1].rstrip()
    if text[:1] in "+|" and text[-1:] in "+|":
        return _framed(lines, at, above)
    if _RULER.match(text) is not None:
        return _ruled(lines, at, end, above)
    if text.strip() and at + 1 < len(lines):
        return _plain(lines, at, above)
    return None


def _ruled(lines: Sequence[tuple[int, str]], at: int, end: int, above: str) -> tuple[Table, int] | None:
    spans = [found.span() for found in _SPAN.finditer(lines[at][1])]
    first = at
    while (
        first > max(end, at - _TITLE_LINES)
        and (text := lines[first - 1][1]).strip()
        and _COMMAND.match(text) is None
        and not text.rstrip().endswith((":", "."))
    ):
        first -= 1
    if first == at or not 2 <= len(spans) <= _COLUMNS or _RULER.match(lines[at - 1][1]) is not None:
        return None
    parts: list[list[str]] = [[] for _ in spans]
    for _, text in lines[first:at]:
        for column, words in enumerate(_by_place(text, spans)):
            parts[column] += [words] if words else []
    titles = tuple(" ".join(words) for words in parts)
    if sum(map(bool, titles)) <= len(titles) // 2 or any(title.replace(".", "").isdecimal() for title in titles):
        return None
    rows, stop = _rows_below(lines, at + 1, spans, lines[at][1].split())
    return (Table(above, titles, rows), stop) if rows else None


def _rows_below(
    lines: Sequence[tuple[int, str]], at: int, spans: Sequence[tuple[int, int]], ruler: Sequence[str]
) -> tuple[list[tuple[int, str, tuple[str, ...]]], int]:
    """The rows from a place on and where they end. A blank line ends them, unless it follows the ruler or a row follows it."""
    rows: list[tuple[int, str, tuple[str, ...]]] = []
    begin = at
    while at < len(lines):
        number, text = lines[at]
        if text.split() == ruler:
            at += 1
            continue
        if not text.strip():
            following = lines[at + 1][1] if at + 1 < len(lines) else ""
            if not following.strip() or (at > begin and not _goes_on(lines, at + 1, spans)):
                break
            at += 1
            continue
        cells = cells_of(text, spans)
        if (
            _RULER.match(text)
            or _COMMAND.match(text)
            or len(text) > _LONGEST
            or sum(map(bool, cells)) < 2
            or _begins(lines, at)
        ):
            break
        rows.append((number, text, cells))
        at += 1
    return rows, at


def _goes_on(lines: Sequence[tuple[int, str]], at: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether rows go on behind a blank line: as many cells as columns, no titles."""
    return all(cells_of(lines[at][1], spans)) and not _begins(lines, at) and _COMMAND.match(lines[at][1]) is None


def _begins(lines: Sequence[tuple[int, str]], at: int) -> bool:
    """Whether titles of another table stand here: a ruler follows."""
    return any(_RULER.match(text) is not None for _, text in lines[at + 1 : at + _TITLE_LINES])


def cells_of(text: str, spans: Sequence[tuple[int, int]], *, words: bool = False) -> tuple[str, ...]:
    """The cells of a row: what two blanks divide, or its words if wanted, where these are as many as columns; else by their places."""
    for pattern in (_PART, _WORD) if words else (_PART,):
        parts = pattern.findall(text)
        if len(parts) == len(spans):
            return tuple(parts)
    cells, parts = _by_place(text, spans), _PART.findall(text)
    # a row that is not aligned and lacks its last cells
    return (
        tuple(parts) + ("",) * (len(spans) - len(parts)) if sum(map(bool, cells)) < len(parts) < len(spans) else cells
    )


def _by_place(text: str, spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """The cells of a row, each in the column under which it is."""
    cells = [""] * len(spans)
    for found in _PART.finditer(text):
        column = max(range(len(spans)), key=lambda at: _overlap(spans[at], found.span()))
        cells[column] = f"{cells[column]} {found[0]}".strip()
    return tuple(cells)


def _overlap(span: tuple[int, int], word: tuple[int, int]) -> int:
    """How far a word lies in a column; below zero how far away it is."""
    return min(span[1], word[1]) - max(span[0], word[0])


def _framed(lines: Sequence[tuple[int, str]], at: int, above: str) -> tuple[Table, int] | None:
    """A table between bars: the lines above the first ruler inside are titles."""
    stop = at
    while stop < len(lines) and lines[stop][1].strip()[:1] in ("+", "|") and len(lines[stop][1]) <= _LONGEST:
        stop += 1
    groups: list[list[tuple[int, str, tuple[str, ...]]]] = [[]]
    for number, text in lines[at:stop]:
        if _FRAME.match(text.strip()) is not None:
            groups += [[]] if groups[-1] else []
        else:
            groups[-1].append((number, text, tuple(cell.strip() for cell in text.strip().strip("|").split("|"))))
    if len(groups) < 2 or not groups[1]:
        return None
    width = len(groups[0][0][2])
    if not 2 <= width <= _COLUMNS or any(len(cells) != width for group in groups for *_, cells in group):
        return None
    titles = tuple(" ".join(filter(None, words)) for words in zip(*(cells for *_, cells in groups[0]), strict=True))
    rows = [row for group in groups[1:] for row in group]
    return (Table(above, titles, rows), stop) if all(titles) else None


def _plain(lines: Sequence[tuple[int, str]], at: int, above: str) -> tuple[Table, int] | None:
    """Titles without a ruler, with a row right below them."""
    head, first = lines[at][1], lines[at + 1][1]
    spans = _titles(head, first)
    if spans is None or not first.strip() or any(_RULER.match(text) for _, text in lines[at + 1 : at + _TITLE_LINES]):
        return None
    titles = tuple(head[start:stop].strip("#") for start, stop in spans)
    rows: list[tuple[int, str, tuple[str, ...]]] = []
    place = at + 1
    while place < len(lines):
        number, text = lines[place]
        cells = cells_of(text, spans, words=True)
        if len(text) > _LONGEST or sum(map(bool, cells)) < 2 or text.split() == head.split() or _COMMAND.match(text):
            break
        rows.append((number, text, cells))
        place += 1
    return (Table(above, titles, rows), place) if rows else None


def _titles(text: str, first: str) -> list[tuple[int, int]] | None:
    """Where the titles of a line are, below which that row stands; None of a line that is no titles."""
    if text.rstrip().endswith((".", ":")):
        return None
    mark = len(text) - len(text.lstrip(" #"))
    fitting = [one for one in (_PART, _WORD) if len(one.findall(text, mark)) == len(one.findall(first))]
    for pattern, form in ((one, _TITLE) for one in fitting) if fitting else ((_WORD, _CAPITALS), (_PART, _TITLE)):
        found = list(pattern.finditer(text, mark))
        if _FEWEST <= len(found) <= _COLUMNS and all(form.fullmatch(one[0]) for one in found):
            return [one.span() for one in found]
    return None
