"""HTML: one file without scripts and without external resources."""

from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import Options, html_page, pictures, short, words
from nccl_doctor.reporters.measured import measure_tables
from nccl_doctor.reporters.words import escaped

_SCOPES = {"gpu": "GPU", "slurm-job": "Slurm job"}


def render(report: Report, options: Options) -> str:
    """Returns the report as one page; all text from logs is escaped."""
    word = words.HEADLINES[report.verdict]
    return html_page.page(f"{word}: {words.headline(report)}", _jobs(report) if report.jobs else _body(report))


def _body(report: Report, prefix: str = "") -> list[str]:
    """One job: verdict, job lines, the first finding, pictures, other findings, what was read.

    `prefix` keeps the anchors of several jobs apart.
    """
    word = words.HEADLINES[report.verdict]
    rows = words.equal(words.nested(report.findings))
    places = {id(finding): f"{prefix}finding-{at}" for at, finding in enumerate(report.findings, 1)}
    found = [html_page.findings(group, depth, places, is_open=at == 0) for at, (depth, group) in enumerate(rows)]
    return [
        f'<h1><span class="word {report.verdict}">{word}</span>: {escaped(words.headline(report))}</h1>',
        f'<div class="job">{"".join(f"<p>{escaped(line)}</p>" for line in words.job_lines(report))}</div>',
        _unread(report),
        *found[:1],
        pictures.figures(report.pictures, prefix),
        "<h2>What else was found</h2>" if found[1:] and report.pictures else "",
        *found[1:],
        *_measured(report),
        _unknown(report),
        _inputs(report),
    ]


def _jobs(report: Report) -> list[str]:
    """Several jobs: a list, what was found by comparing them, then each."""
    rows = "".join(
        f'<li><a href="#job-{at}">{escaped(job.name)}</a>: {escaped(short.row(job))}</li>'
        for at, job in enumerate(report.jobs, 1)
    )
    places = {id(finding): f"finding-{at}" for at, finding in enumerate(report.findings, 1)}
    across = [
        html_page.findings(group, depth, places, is_open=True)
        for depth, group in words.equal(words.nested(report.findings))
    ]
    whole = [
        part
        for at, job in enumerate(report.jobs, 1)
        for part in (_fold(job), f'<a id="job-{at}"></a>', *_body(job, f"job-{at}-"), "</details>")
    ]
    figures = pictures.figures(report.pictures)
    if not words.is_answer(report):
        return [f"<h1>{escaped(report.basis)}</h1><ul>{rows}</ul>", *across, figures, *_measured(report), *whole]
    first = report.findings[0]
    head = (
        f'<h1><span class="word {first.severity}">{words.HEADLINES[first.severity]}</span>: {escaped(first.title)}</h1>'
    )
    return [head, *across, figures, *_measured(report), f"<h2>{escaped(report.basis)}</h2>", *whole]


def _fold(job: Report) -> str:
    """The beginning of a job among several, which is open where something is wrong."""
    is_open = " open" if job.verdict in ("error", "warning") else ""
    return f'<details class="whole"{is_open}><summary>{escaped(job.name)}: {escaped(short.row(job))}</summary>'


def _measured(report: Report) -> list[str]:
    """A table for each of host, pair, GPU and rank that was measured."""
    parts = []
    for table in measure_tables(report):
        head = "".join(f"<th>{escaped(name.replace('_', ' '))}</th>" for name in table.columns)
        rows = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
        parts.append(
            f'<h2>Measured by {_SCOPES.get(table.scope, table.scope)}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
        )
    return parts


def _unread(report: Report) -> str:
    """Lines that look like an error and that nothing here knows, where no finding is the answer."""
    if not report.unread or report.verdict in ("error", "warning"):
        return ""
    return f"<section><h2>Lines that look like an error and are not known</h2>{html_page.evidence(report.unread)}</section>"


def _unknown(report: Report) -> str:
    items = [*report.missing]
    items += [f"rule {c.rule} {c.name} broke: {c.reason}" for c in report.checks if c.outcome == "broken"]
    listed = html_page.listed(items)
    more = html_page.listed(words.captures(report))
    folded = f"<details><summary>What further captures would let it answer</summary>{more}</details>" if more else ""
    return f"<h2>Not known</h2>{listed}{folded}" if listed or folded else ""


def _inputs(report: Report) -> str:
    nccl = any(i.nccl_lines for i in report.inputs)
    rows = "".join(
        f"<tr><td>{escaped(i.path)}</td><td>{escaped(i.kind)}</td><td>{i.lines}</td>"
        + (f"<td>{f'{i.understood} of {i.nccl_lines}' if i.nccl_lines else ''}</td>" if nccl else "")
        + f"<td>{escaped(i.note)}</td></tr>"
        for i in report.inputs
    )
    understood = "<th>NCCL lines understood</th>" if nccl else ""
    head = f"<tr><th>input</th><th>kind</th><th>lines</th>{understood}<th></th></tr>"
    seen = "".join(f"<p>{escaped(text)}</p>" for text in [*words.coverage(report), *report.resumed])
    return f'<h2>Read</h2><div class="scroll"><table>{head}{rows}</table></div>{seen}' if rows else ""
