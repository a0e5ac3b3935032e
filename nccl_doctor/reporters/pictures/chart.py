"""Charts as SVG, drawn by Matplotlib; its colours become those of the page, so that they follow light and dark."""

import io
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nccl_doctor.diagnosis.picture import Chart, Span, TimeLine
from nccl_doctor.reporters.pictures.matplotlib_import import load
from nccl_doctor.reporters.words import clean, escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 600  # of one series; more are thinned, and the highest and lowest of each stretch stay
ROWS = 200  # of the table behind a chart
WIDTH, HEIGHT = 9.0, 3.2  # inches
APART = 0.025  # of a time line: numbers of marks that are closer are written together
HEADROOM = 1.08  # of an axis over its highest value, so that no mark is cut
MISSING = "Matplotlib is not installed; pip install 'nccl-doctor[pictures]' draws this."
_COLOURS = tuple(f"#0000{at:02x}" for at in range(1, 9))  # stand for --s0 … --s7 until the SVG is written
_INK, _SOFT, _RULE = "#000101", "#000102", "#000103"
_SEVERITY = {"error": "#000201", "warning": "#000202", "note": "#000203", "": _COLOURS[0]}
_VARIABLES = {
    **{colour: f"var(--s{at})" for at, colour in enumerate(_COLOURS)},
    _INK: "var(--ink)", _SOFT: "var(--soft)", _RULE: "var(--rule)",
    "#000201": "var(--error)", "#000202": "var(--warning)", "#000203": "var(--note)",
}  # fmt: skip
_HATCHES = ("", "//", "..", "", "xx", "\\\\", "++", "--")


def chart(shown: Chart, prefix: str = "") -> str:
    """The chart, and its numbers as a table."""
    return _drawn(shown, prefix) + _numbers(_heads(shown), _rows(shown))


def time_line(shown: TimeLine, prefix: str = "") -> str:
    """The lanes, and what stands in them as a table."""
    rows = [
        (lane, _clock(span.start), f"{span.end - span.start:,.1f}" if span.end > span.start else "", span.label)
        for lane, spans in shown.lanes
        for span in spans
    ]
    return _drawn(shown, prefix) + _numbers(("", "from (as UTC)", "seconds", ""), rows)


def _drawn(shown: Chart | TimeLine, prefix: str) -> str:
    if find_spec("matplotlib") is None:
        return f"<p>{escaped(MISSING)}</p>"
    load()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": f"{prefix}{shown.name}", "text.parse_math": False, "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"], "font.size": 9, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _SOFT,
        "xtick.color": _INK, "ytick.color": _INK, "grid.color": _RULE, "hatch.color": _RULE, "axes.spines.top": False, "text.usetex": False,
        "axes.spines.right": False, "legend.frameon": False, "patch.linewidth": 0, "path.simplify": False,
    }  # fmt: skip
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # what it says of its caches is for nobody here
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that its font lacks: the page has other fonts
        lanes = len(shown.lanes) if isinstance(shown, TimeLine) else 0
        figure = Figure(figsize=(WIDTH, 0.9 + 0.32 * lanes if lanes else HEIGHT), layout="constrained")
        axes = figure.subplots()
        _lanes(axes, shown) if isinstance(shown, TimeLine) else _plot(axes, shown)
        return _svg(figure, f"{shown.title}. {shown.summary}", f"{prefix}{shown.name}")


def _plot(axes: "Axes", shown: Chart) -> None:
    """Series, lines to compare with, axes and legend."""
    base = [0.0] * len(shown.names)
    for at, series in enumerate(shown.series):
        colour = _COLOURS[at % len(_COLOURS)]
        points = _thinned(series.points)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if series.style == "bar":
            axes.bar(
                xs,
                ys,
                bottom=base[: len(ys)],
                color=colour,
                hatch=_HATCHES[at % len(_HATCHES)],
                width=0.85,
                label=_label(series.name),
            )
            base = [a + b for a, b in zip(base, ys, strict=False)]
        elif series.style == "points":
            axes.plot(xs, ys, "D", color=_SEVERITY["warning"], markersize=4, label=_label(series.name))
        else:
            mark = "o^sD"[at % 4] if len(points) <= 60 else ""
            axes.plot(xs, ys, color=colour, marker=mark, markersize=3.5, linewidth=1.4, label=_label(series.name))
    for line in shown.lines:
        draw = axes.axhline if line.axis == "y" else axes.axvline
        draw(line.at, color=_SOFT, linewidth=1, linestyle=(0, (4, 3)), label=_label(line.label))
    axes.set_xlabel(_label(shown.x))
    axes.set_ylabel(_label(shown.y))
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylim(0, HEADROOM * max(axes.dataLim.y1, 0) or 1)
    if shown.extent is not None:
        first, last, top = shown.extent
        axes.set_ylim(top=HEADROOM * top)
        if shown.scale == "linear" and not shown.names:
            margin = 0.03 * (last - first)
            axes.set_xlim(first - margin, last + margin)
    if shown.scale == "bytes":
        axes.set_xscale("log", base=2)
        sizes = sorted({x for series in shown.series for x, _ in series.points})
        step = max(1, len(sizes) // 8)
        axes.set_xticks(sizes[::step], [_bytes(size) for size in sizes[::step]])
        axes.minorticks_off()
    if shown.names:
        step = max(1, len(shown.names) // 16)
        axes.set_xticks(range(0, len(shown.names), step), [_label(name)[-14:] for name in shown.names[::step]])
        axes.tick_params(axis="x", rotation=45 if max(map(len, shown.names)) > 4 else 0)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if len(unique) > 1:
        axes.legend(list(unique.values()), list(unique), loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def _lanes(axes: "Axes", shown: TimeLine) -> None:
    """A row for each lane: bars for what lasted, marks for moments."""
    begin = min(span.start for _, spans in shown.lanes for span in spans)
    for at, (_, spans) in enumerate(shown.lanes):
        for span in spans:
            colour = _SEVERITY[span.severity]
            if span.end > span.start:
                axes.barh(at, span.end - span.start, left=span.start - begin, height=0.55, color=colour)
            else:
                axes.plot([span.start - begin], [at], "D", color=colour, markersize=6)
        end = max(span.end for _, others in shown.lanes for span in others)
        for x, numbers in _numbered(spans, APART * (end - begin)):
            axes.annotate(numbers, (x - begin, at), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(range(len(shown.lanes)), [_label(name) for name, _ in shown.lanes])
    axes.set_ylim(len(shown.lanes) - 0.5, -0.5)
    axes.set_xlabel(f"seconds from {_clock(begin)}")
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)


def _numbered(spans: Iterable[Span], apart: float) -> Iterator[tuple[float, str]]:
    """Where to write the numbers of findings, by which the page lists them: `2, 3` for marks that are not so far apart."""
    group: list[tuple[float, str]] = []
    for one in sorted((span.start, found[0]) for span in spans if (found := re.match(r"\d+(?=\. )", span.label))):
        if group and one[0] - group[0][0] > apart:
            yield group[0][0], ", ".join(number for _, number in group)
            group = []
        group.append(one)
    if group:
        yield group[0][0], ", ".join(number for _, number in group)


def _svg(figure: "Figure", says: str, anchor: str) -> str:
    """The figure as an element of a page: nothing is loaded, colours are those of the page, identifiers its own."""
    written = io.StringIO()
    figure.savefig(
        written, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = written.getvalue()
    text = text[text.index("<svg") :]
    for begin, end in (("<metadata>", "</metadata>"), ("<style", "</style>"), ("<!--", "-->")):
        text = _without(text, begin, end)
    text = re.sub(r'\bid="([^"]+)"', lambda found: f'id="{anchor}-{found[1]}"', text)
    text = re.sub(r'(href="|url\()#', lambda found: f"{found[1]}#{anchor}-", text)
    text = re.sub(r"#0000\d\d|#00010\d|#00020\d", lambda found: _VARIABLES.get(found[0], found[0]), text)
    text = "\n".join(line.strip() for line in text.splitlines())
    head = f'<svg role="img" aria-label="{escaped(says)}"'
    return f'<div class="scroll">{text.replace("<svg", head, 1).strip()}</div>'


def _without(text: str, begin: str, end: str) -> str:
    """Text without any part between two marks."""
    first, *parts = text.split(begin)
    return first + "".join(part.partition(end)[2] for part in parts)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS` of them: of each stretch the lowest and the highest."""
    if len(points) <= POINTS:
        return list(points)
    size = -(-2 * len(points) // POINTS)
    kept: list[tuple[float, float]] = []
    for at in range(0, len(points), size):
        part = points[at : at + size]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def _heads(shown: Chart) -> tuple[str, ...]:
    return (shown.x, *(f"{series.name} ({shown.y})" for series in shown.series))


def _rows(shown: Chart) -> list[tuple[str, ...]]:
    """One row for each x."""
    at = {x: [""] * len(shown.series) for x in sorted({x for series in shown.series for x, _ in series.points})}
    for column, series in enumerate(shown.series):
        for x, y in series.points:
            at[x][column] = f"{y:,.4g}"
    return [(_named(shown, x), *values) for x, values in at.items()]


def _named(shown: Chart, x: float) -> str:
    return shown.names[int(x)] if shown.names else f"{x:,.10g}"


def _numbers(heads: Iterable[str], rows: Sequence[Iterable[str]]) -> str:
    """The table behind a chart, folded."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS])
    more = f"<p>{len(rows) - ROWS:,} more rows are not shown.</p>" if len(rows) > ROWS else ""
    return f"<details><summary>Numbers</summary><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</details>"


def _label(text: str) -> str:
    """Text for a chart: one line of printable signs, cut at 60; a leading `_` would hide it from the legend."""
    return clean(text).lstrip("_")[:60]


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _bytes(size: float) -> str:
    """`64 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
