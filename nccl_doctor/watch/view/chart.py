"""Charts with axes: values with their unit at the left, clock times below."""

from collections.abc import Sequence
from itertools import islice, pairwise
from math import floor, log10
from statistics import median
from typing import NamedTuple

from nccl_doctor.watch.series import Device
from nccl_doctor.watch.view.cells import DIM, Line, Look, Span
from nccl_doctor.watch.view.findings import clock

WINDOWS = (60, 90, 120, 180, 240, 300, 450, 600, 900, 1200, 1800, 3600, 7200, 14_400, 43_200, 86_400)  # seconds shown
ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)  # tops of an axis
HIGHEST = 14  # lines of a chart
LABELS = 7  # columns for the values at the left


class Panel(NamedTuple):
    """What one chart shows."""

    title: str
    unit: str
    times: Sequence[float]
    values: Sequence[float | None]
    scale: float = 1.0  # a value is divided by it before it is shown
    top: float | None = None  # the highest value of the axis, scaled; None: that of the values


def of_device(device: Device, name: str, title: str, unit: str, scale: float = 1.0, top: float | None = None) -> Panel:
    """Returns the panel of a series of a device."""
    return Panel(title, unit, device.times, device.values(name), scale, top)


def binned(
    times: Sequence[float], values: Sequence[float | None], since: float, until: float, width: int
) -> list[float | None]:
    """Returns the mean of the values in each of `width` equal spans; None where there was none.

    Where samples are rarer than columns, a sample counts until the next one was due.
    """
    each = (until - since) / width
    sums: list[tuple[float, int]] = [(0.0, 0)] * width
    for at, value in zip(reversed(times), reversed(values), strict=False):
        if at < since:
            break
        if value is not None and at <= until:
            column = min(int((at - since) / each), width - 1)
            total, count = sums[column]
            sums[column] = total + value, count + 1
    newest = list(islice(reversed(times), 30))
    spacing = median(later - at for later, at in pairwise(newest)) if len(newest) > 1 else 0.0
    reach = int(spacing * 1.5 / each)
    means: list[float | None] = []
    empty = 0
    for total, count in sums:
        empty = 0 if count else empty + 1
        means.append(total / count if count else means[-1] if means and empty <= reach else None)
    return means


def window(times: Sequence[float], now: float) -> float:
    """Returns how many seconds a chart shows: the shortest window that holds all samples."""
    passed = now - times[0] if times else 0.0
    return next((seconds for seconds in WINDOWS if seconds >= passed), WINDOWS[-1])


def draw(look: Look, panel: Panel, now: float, width: int, height: int) -> list[Line]:
    """Returns a chart of `height` lines: a title with numbers, the bars beside their axis, and the times."""
    bars = max(width - LABELS - 1, 1)
    seconds = window(panel.times, now)
    each = seconds / bars
    until = -(-now // each) * each  # columns keep their times, so that only the last one changes
    binned_values = binned(panel.times, panel.values, until - seconds, until, bars)
    known = [value / panel.scale for value in panel.values if value is not None]
    if not known:
        return [((look.fit(f"{panel.title}: no value yet", width), DIM),), *[()] * (height - 1)]
    top = panel.top or _ceiling(max(known))
    numbers = f"lowest {_short(min(known))}, highest {_short(max(known))} {panel.unit}"
    last = panel.values[-1]
    latest = "unknown" if last is None else f"{_short(last / panel.scale)} {panel.unit}"
    rows = look.chart(binned_values, top * panel.scale, bars, height - 2)
    labels = {0: top, len(rows) - 1: 0.0}
    if len(rows) > 4 and len(rows) % 2:
        labels[len(rows) // 2] = top / 2
    side = "|" if look.ascii else "│"
    lines: list[Line] = [((f"{panel.title} {latest}", "bold"), (f"  {numbers}", DIM))]
    for number, row in enumerate(rows):
        text = _label(labels[number], panel.unit) if number in labels else ""
        lines.append(((look.fit(text, LABELS, right=True), DIM), (side, DIM), (row, "green")))
    lines.append(((_time_axis(until - seconds, until, bars), DIM),))
    return [_cut(look, line, width) for line in lines]


def side_by_side(look: Look, panels: Sequence[Panel], now: float, width: int, height: int) -> list[Line]:
    """Returns charts in rows: two or three beside each other where the screen is wide, as many rows as fit."""
    shown = [panel for panel in panels if any(value is not None for value in panel.values)]
    if not shown or height < 4:
        return []
    per = min(max(width // 52, 1), 3, len(shown))
    rows = max(min(-(-len(shown) // per), height // 6), 1)
    per = min(per, -(-len(shown) // rows))  # four are two rows of two
    each, high = (width - 2 * (per - 1)) // per, min(height // rows, HIGHEST)
    lines: list[Line] = []
    for number in range(rows):
        drawn = [draw(look, panel, now, each, high) for panel in shown[number * per : (number + 1) * per]]
        for parts in zip(*drawn, strict=True):
            spans: list[Span] = []
            for place, part in enumerate(parts):
                spans += [("  ", "")] if place else []
                spans += _cut(look, part, each)
            lines.append(tuple(spans))
    return lines


def _time_axis(since: float, until: float, width: int) -> str:
    """Returns clock times below the bars: at both ends, and in the middle where there is space."""
    axis = [" "] * (LABELS + 1 + width)
    places = [0, (width - 8) // 2, width - 8] if width >= 36 else [0, width - 8] if width >= 18 else [width - 8]
    for place in places:
        if place >= 0:
            at = since + (until - since) * (place + 4) / width if 0 < place < width - 8 else until if place else since
            axis[LABELS + 1 + place : LABELS + 1 + place + 8] = clock(at)
    return "".join(axis)


def _cut(look: Look, line: Line, width: int) -> Line:
    """Returns a line in exactly this width."""
    spans: list[Span] = []
    left = width
    for text, style in line:
        piece = look.clean(text)[:left]
        spans.append((piece, style))
        left -= len(piece)
    return (*spans, (" " * left, "")) if left else tuple(spans)


def _short(value: float) -> str:
    """Returns a number with at most four digits."""
    return (
        f"{value:.0f}"
        if abs(value) >= 100 or value == int(value)
        else f"{value:.1f}"
        if abs(value) >= 1
        else f"{value:.2g}"
    )


def _label(value: float, unit: str) -> str:
    """Returns a value of the axis, without its unit where both do not fit."""
    text = f"{_short(value)} {unit}"
    return text if len(text) < LABELS else _short(value)


def _ceiling(value: float) -> float:
    """Returns the next round number, so that the axis does not change with each sample."""
    if value <= 0:
        return 1.0
    step = 10.0 ** floor(log10(value))
    return next((step * factor for factor in ROUND if step * factor >= value), step * 10)
