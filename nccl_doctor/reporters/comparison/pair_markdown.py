"""A comparison as Markdown, to paste into an issue or a ticket."""

from collections.abc import Sequence
from math import inf, isfinite

from nccl_doctor.diagnosis.comparison import Comparison
from nccl_doctor.diagnosis.picture import Chart, Grid, Shown, TimeLine
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.comparison import pair_words as words
from nccl_doctor.reporters.markdown import escaped

BARS = 24  # of a chart
_EIGHTHS = "▁▂▃▄▅▆▇█"


def render(comparison: Comparison, options: Options) -> str:
    """Returns the comparison with a table of changes and lists of new and gone findings."""
    lines = [f"## {words.HEADS[comparison.verdict]}: {escaped(words.headline(comparison))}", ""]
    lines += [
        f"- {name}: {escaped(words.run(side))}" for name, side in (("A", comparison.before), ("B", comparison.after))
    ]
    for heading, findings in (("New", comparison.appeared), ("Gone", comparison.gone)):
        if findings:
            lines += ["", f"**{heading}**", "", *(f"- {escaped(words.finding(one, comparison))}" for one in findings)]
    if comparison.changes:
        lines += ["", "| changed | A | B | |", "|---|---|---|---|"]
        lines += [
            "| " + " | ".join(escaped(cell) for cell in (one.what, one.before, one.after, words.effect(one))) + " |"
            for one in comparison.changes
        ]
    lines += _pictures(comparison)
    for heading, topics in (
        ("Same", comparison.same),
        ("Only in A", comparison.only_before),
        ("Only in B", comparison.only_after),
    ):
        if topics:
            lines += ["", f"{heading}: {', '.join(topics)}"]
    if advice := words.advice(comparison):
        lines += ["", f"**Next** {escaped(advice, code=True)}"]
    return "\n".join(lines) + "\n"


def _pictures(comparison: Comparison) -> list[str]:
    """The pictures of both runs as a row each: in words, and charts as small bars on one scale."""
    pairs = [(one.before, one.after) for one in comparison.pictures]
    if not pairs:
        return []
    rows = ["", "| picture | A | B |", "|---|---|---|"]
    for pair in pairs:
        title = next(side.title for side in pair if side is not None)
        cells = [_told(side) if side is not None else "no facts" for side in pair]
        rows.append(f"| {escaped(title)} | {cells[0]} | {cells[1]} |")
    return rows


def _told(shown: Shown) -> str:
    if isinstance(shown, Chart) and shown.series and not shown.names:
        bars = sparkline(shown.series[0].points, shown.extent)
        return f"{bars} {escaped(shown.summary)}"
    if isinstance(shown, Grid):
        states = [cell.state for _, cells in shown.rows for cell in cells]
        counted = [(name, states.count(state)) for state, name in shown.legend if state in states]
        return escaped("; ".join([shown.summary.rstrip("."), *(f"{name}: {count}" for name, count in counted)]))
    if isinstance(shown, TimeLine):
        return escaped("; ".join(f"{name}: {len(spans)}" for name, spans in shown.lanes))
    return escaped(shown.summary)


def sparkline(points: Sequence[tuple[float, float]], extent: tuple[float, float, float] | None) -> str:
    """The mean of each of at most `BARS` stretches of x, as a bar of one to eight eighths of the highest y."""
    top = extent[2] if extent else max(y for _, y in points)
    ordered = [y for _, y in sorted(points) if isfinite(y)]
    if not (ordered and 0 < top < inf):
        return _EIGHTHS[0] * min(BARS, len(ordered))
    count = min(BARS, len(ordered))
    stretches = [ordered[at * len(ordered) // count : (at + 1) * len(ordered) // count] for at in range(count)]
    means = [sum(y / top for y in part) / len(part) for part in stretches]  # the sum of large y is infinite
    return "".join(_EIGHTHS[max(0, round(8 * max(0.0, min(mean, 1.0))) - 1)] for mean in means)
