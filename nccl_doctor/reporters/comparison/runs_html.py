"""Many runs as one HTML page without scripts: the table, a chart of the first measure, findings."""

from nccl_doctor.diagnosis.comparison import Measured, RunRow, RunsTable
from nccl_doctor.diagnosis.picture import Chart, Line, Picture, Series
from nccl_doctor.reporters import Options, html_page, pictures
from nccl_doctor.reporters.comparison import pair_words
from nccl_doctor.reporters.comparison import runs_words as words
from nccl_doctor.reporters.words import clean, escaped

BARS = 40  # runs in the chart


def render(table: RunsTable, options: Options) -> str:
    """Returns the table as one page; all text from logs is escaped."""
    head = pair_words.HEADS[table.verdict]
    differs = html_page.listed(words.varied(table))
    body = [
        f'<h1><span class="word {table.verdict}">{head}</span>: {escaped(table.headline)}</h1>',
        f"<p>{escaped(words.size(table))}</p>",
        _table(table),
        *([pictures.figures([Picture(chart)])] if (chart := _chart(table)) else []),
        f"<h2>Differs</h2>{differs}" if differs else "",
        *(part for row in table.runs for part in _findings(row)),
    ]
    return html_page.page(words.headline(table), body, wide=True)


def _table(table: RunsTable) -> str:
    heads = "".join(f'<th scope="col">{escaped(name)}</th>' for name in map(words.name, table.measures))
    rows = "".join(
        f'<tr><th scope="row" title="{escaped(row.path)}">{escaped(row.name)}</th>{"".join(map(_cell, row.values))}'
        f'<td>{escaped(words.changed(row))}</td><td class="{row.verdict}">{escaped(row.verdict)}</td></tr>'
        for row in table.runs
    )
    return (
        f'<div class="scroll"><table class="runs"><thead><tr><th scope="col">run</th>{heads}<th scope="col">changed</th>'
        f'<th scope="col">verdict</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(value: Measured | None) -> str:
    if value is None:
        return "<td></td>"
    share = words.share(value)
    return f'<td class="number">{value.text}{f" <span class={value.effect}>{share}</span>" if share else ""}</td>'


def _chart(table: RunsTable) -> Chart | None:
    """The first measure as a bar for each run; a line at the first run that was named."""
    rows = [(row, row.values[0]) for row in table.runs if row.values and row.values[0] is not None][:BARS]
    if len(rows) < 2:
        return None
    measure = table.measures[0]
    first = next((value for row, value in rows if row.number == 1), None)
    return Chart(
        name="runs",
        title=clean(measure.what),
        summary="Best first." if measure.better else "In the order in which they were named.",
        x="run",
        y=measure.unit or measure.what,
        series=(Series(measure.what, tuple((float(at), v.value) for at, (_, v) in enumerate(rows) if v), "bar"),),
        lines=(Line(first.value, "y", "the first run"),) if first else (),
        names=tuple(row.name for row, _ in rows),
        tables=(),
    )


def _findings(row: RunRow) -> list[str]:
    if not row.findings:
        return []
    heading = f"<h2>{escaped(row.name)} shows, and the first run does not</h2>"
    return [heading, *(html_page.findings([one], is_open=False) for one in row.findings)]
