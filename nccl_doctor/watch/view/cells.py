"""Building blocks of the screen: cells of tables, lines of spans, bars. Widths are in columns of the terminal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from nccl_doctor.common.printable import printable
from nccl_doctor.watch.series import Device

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"
GOOD, FAIR, BAD, DIM = "green", "yellow", "red", "dim"

Span = tuple[str, str]  # text and style, as rich names styles
Line = tuple[Span, ...]
ClickAreas = list[tuple[int, int, str]]  # first column, column after the last, action


class Cell(NamedTuple):
    """One value of a table."""

    plain: str
    style: str = ""
    right: bool = False


def cell(value: object, style: str = "", right: bool = False) -> Cell:
    """Returns a cell; None becomes a dim `-`."""
    return Cell("-" if value is None else str(value), DIM if value is None else style, right)


def grade(value: float | None, fair: float, bad: float) -> str:
    """Returns the colour of a value that is worse the higher it is."""
    if value is None:
        return DIM
    return BAD if value >= bad else FAIR if value >= fair else ""


def whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} %"


def degrees(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} C"


def amount(rate: float) -> str:
    """Returns bytes per second in the largest unit that keeps a digit before the decimal point."""
    for unit in ("", "K", "M", "G"):
        if rate < 1000:
            return f"{rate:.0f}{unit}" if rate >= 10 or not unit else f"{rate:.1f}{unit}"
        rate /= 1000
    return f"{rate:.1f}T"


def rate_cell(device: Device, *names: str) -> Cell:
    """Returns the sum of several series of bytes per second."""
    values = [value for name in names if (value := device.last(name)) is not None]
    return cell(f"{amount(sum(values))}B" if values else None, right=True)


def short_time(seconds: float) -> str:
    """Returns `42s`, `17m`, `5h` or `3d`."""
    for unit, length, most in (("s", 1, 100), ("m", 60, 6000), ("h", 3600, 360_000)):
        if seconds < most:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


@dataclass(frozen=True)
class Look:
    """Draws values with Unicode or with ASCII characters, in colours for a dark or a light background."""

    ascii: bool = False
    light: bool = False

    def style(self, name: str) -> str:
        """Returns a style of this background: yellow and cyan cannot be read on white."""
        return name.replace("yellow", "magenta").replace("cyan", "blue") if self.light else name

    @property
    def bars(self) -> str:
        return ASCII_BARS if self.ascii else BARS

    @property
    def more(self) -> str:
        """The mark at the end of text that was cut."""
        return "~" if self.ascii else "…"

    @property
    def dot(self) -> str:
        return " | " if self.ascii else " · "

    def spark(self, values: Iterable[float | None], top: float, width: int) -> str:
        """Returns the newest values as a row of bars, below a gap to the row above; a blank for a missing value."""
        newest = list(values)[-width:]
        bars = self.bars[:-1]
        steps = len(bars) - 1
        drawn = [" " if v is None else bars[min(max(round(v / top * steps), 0), steps)] for v in newest]
        return "".join(drawn).rjust(width)

    def chart(self, values: Sequence[float | None], top: float, width: int, height: int) -> list[str]:
        """Returns all values as bars of several lines, the newest at the right; a column shows the highest of its values."""
        per = max(-(-len(values) // width), 1)
        first = len(values) % per
        bins = [values[:first]] if first else []
        bins += [values[n : n + per] for n in range(first, len(values), per)]
        tops = [max((v for v in one if v is not None), default=None) for one in bins]
        steps = len(self.bars)
        rows = []
        for row in range(height - 1, -1, -1):
            drawn = []
            for value in tops:
                full = round(value / top * height * steps) - row * steps if value is not None and top > 0 else 0
                full = max(full, 1) if row == 0 and value is not None else full
                drawn.append(" " if full <= 0 else self.bars[min(full, steps) - 1])
            rows.append("".join(drawn).rjust(width))
        return rows

    def gauge(self, share: float | None, width: int) -> str:
        """Returns a horizontal bar; blanks if the share is unknown."""
        if share is None:
            return " " * width
        full = round(min(max(share, 0.0), 1.0) * width)
        return ("#" if self.ascii else "█") * full + ("." if self.ascii else "░") * (width - full)

    def fit(self, text: str, width: int, right: bool = False) -> str:
        """Returns text in exactly this width, padded or cut with a mark, without control characters."""
        text = self.clean(text)
        length = cell_len(text)
        if length > width:
            return set_cell_size(set_cell_size(text, max(width - 1, 0)).rstrip() + self.more, width) if width else ""
        return " " * (width - length) + text if right else text + " " * (width - length)

    def join(self, parts: Sequence[str], width: int, between: str) -> str:
        """Returns the parts that fit into a line, the first ones first; none is cut unless it is alone."""
        kept: list[str] = []
        for part in parts:
            if kept and cell_len(between.join([*kept, part])) > width:
                break
            kept.append(part)
        return self.fit(between.join(kept), width)

    def clean(self, text: str) -> str:
        """Replaces control characters, which a process or a node could otherwise send to the terminal."""
        text = printable(text)
        return text.encode("ascii", "replace").decode() if self.ascii and not text.isascii() else text


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    title: str
    width: int
    cell: Callable[[Any, Look], Cell]
    order: Callable[[Any], Any]  # sort key of a row
    rank: int = 0  # columns of the highest rank are dropped first on a narrow screen
    most: int = 0  # width up to which the column grows if the screen is wide enough
    letter: str = ""  # sorts by this column after `o`; a letter of the title where one is free


Fitted = list[tuple[Column, int]]  # columns with their actual widths


def choose(columns: Sequence[Column], width: int, rows: Sequence[Any] = (), look: Look | None = None) -> Fitted:
    """Returns the columns that fit into a line, by rank; columns that may grow share the remaining width as their rows need."""
    kept: list[Column] = []
    left = width + GAP
    for column in sorted(columns, key=lambda column: column.rank):
        if column.width + GAP > left:
            break
        kept.append(column)
        left -= column.width + GAP
    widths = {column.key: column.width for column in kept}
    for column in kept:
        if column.most > column.width:
            need = max((cell_len(column.cell(row, look or Look()).plain) for row in rows), default=0)
            more = min(max(min(column.most, need) - column.width, 0), left)
            widths[column.key] += more
            left -= more
    return [(column, widths[column.key]) for column in columns if column in kept]


GAP = 2  # between columns


def row_line(cells: Sequence[Cell], fitted: Fitted, look: Look) -> Line:
    """Returns the cells of a row as a line."""
    spans: list[Span] = []
    for number, (drawn, (_, width)) in enumerate(zip(cells, fitted, strict=True)):
        if number:
            spans.append((" " * GAP, ""))
        spans.append((look.fit(drawn.plain, width, drawn.right), drawn.style))
    return tuple(spans)


def title_line(
    fitted: Fitted, look: Look, rights: Sequence[bool], sort: str | None, reverse: bool, letters: bool
) -> tuple[Line, ClickAreas]:
    """Returns the titles, aligned like their cells, and their columns on the screen for the mouse.

    The column by which rows are sorted has an arrow; with `letters` the letter that sorts by a column is underlined.
    """
    spans: list[Span] = []
    areas: ClickAreas = []
    at = 0
    gap = 0
    for (column, width), right in zip(fitted, rights, strict=True):
        spans.append((" " * gap, ""))
        at += gap
        gap = GAP
        title = column.title
        text = look.fit(title, width, right)
        if column.key == sort:
            mark = ("v^" if look.ascii else "▼▲")[not reverse]
            text, gap = (f"{text[:-1]}{mark}", GAP) if text.endswith(" ") else (f"{text}{mark}", GAP - 1)
        found = text.lower().find(column.letter) if letters and column.letter else -1
        if found >= 0:
            spans += [(text[:found], "bold"), (text[found], "bold reverse"), (text[found + 1 :], "bold")]
        elif letters and column.letter:  # not a letter of the title: shown before it
            marked = look.fit(f"{column.letter}:{title}", width, right)
            spans += [(marked, "bold reverse")]
        else:
            spans.append((text, "bold"))
        areas.append((at, at + width, f"sort_by('{column.key}')"))
        at += cell_len(text)
    return tuple(spans), areas
