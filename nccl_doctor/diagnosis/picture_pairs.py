"""The pictures of two runs, paired by what they show."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nccl_doctor.diagnosis.picture import Chart, Picture, PicturePair, Shown


def side_by_side(before: Iterable[Picture], after: Iterable[Picture]) -> list[PicturePair]:
    """One pair for each picture that either run has, in the order of the first run; charts of a pair get the same axes."""
    old, new = ({one.shown.name: one.shown for one in pictures} for pictures in (before, after))
    return [_pair(old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]


def _pair(before: Shown | None, after: Shown | None) -> PicturePair:
    if not (isinstance(before, Chart) and isinstance(after, Chart) and (before.x, before.y) == (after.x, after.y)):
        return PicturePair(before, after)
    extent = _extent([before, after])
    return PicturePair(replace(before, extent=extent), replace(after, extent=extent))


def _extent(charts: Sequence[Chart]) -> tuple[float, float, float]:
    """First and last x, and the highest y, of what is drawn; bars of one x stand on each other."""
    xs = [x for chart in charts for series in chart.series for x, _ in series.points]
    tops = [line.at for chart in charts for line in chart.lines if line.axis == "y"]
    for chart in charts:
        stacked: dict[float, float] = {}
        for series in chart.series:
            for x, y in series.points:
                stacked[x] = stacked.get(x, 0.0) + y if series.style == "bar" else max(stacked.get(x, 0.0), y)
        tops += stacked.values()
    return min(xs, default=0.0), max(xs, default=1.0), max(tops, default=1.0) or 1.0
