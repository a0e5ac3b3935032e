"""What a picture of a report shows: plain data, which a reporter draws.

`tables` of a picture are the tables of facts behind it; the findings of rules that need one of them are linked with it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """One place of a grid."""

    text: str = ""
    state: str = ""  # good, odd, bad, none (nothing known), or level-0 … level-4 of a quantity
    says: str = ""  # the same as a sentence, for those who point at it or do not see colours


@dataclass(frozen=True)
class Grid:
    """Rows and columns with names, such as the hosts of a job by their GPUs."""

    name: str
    title: str
    summary: str
    corner: str  # what the rows are
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    legend: tuple[tuple[str, str], ...]  # state, its meaning
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """Points of one name, in order of x."""

    name: str
    points: tuple[tuple[float, float], ...]
    style: str = "line"  # line, points, bar


@dataclass(frozen=True)
class Line:
    """A straight line across a chart that a point is compared with."""

    at: float
    axis: str  # x, y
    label: str


@dataclass(frozen=True)
class Chart:
    """Series over common axes. Bars stand on `names` and on top of each other."""

    name: str
    title: str
    summary: str
    x: str  # what the axis counts, with its unit
    y: str
    series: tuple[Series, ...]
    tables: tuple[str, ...]
    lines: tuple[Line, ...] = ()
    names: tuple[str, ...] = ()  # of x = 0, 1, 2, …
    scale: str = "linear"  # of x: linear, bytes (powers of two)
    extent: tuple[float, float, float] | None = None  # first and last x, highest y: of charts that are compared


@dataclass(frozen=True)
class Span:
    """Something that lasted, or a moment where both ends are equal; seconds since the epoch."""

    start: float
    end: float
    label: str
    severity: str = ""  # error, warning, note; empty where nothing is wrong


@dataclass(frozen=True)
class TimeLine:
    """Lanes over one axis of time."""

    name: str
    title: str
    summary: str
    lanes: tuple[tuple[str, tuple[Span, ...]], ...]
    tables: tuple[str, ...]


Shown = Grid | Chart | TimeLine


@dataclass(frozen=True)
class Picture:
    """One picture and the places, from 1, of the findings in the report that it shows."""

    shown: Shown
    findings: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class PicturePair:
    """What two runs show of the same thing; None where a run has no facts for it."""

    before: Shown | None
    after: Shown | None
