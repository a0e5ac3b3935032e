"""HTML: one file without scripts and without external resources."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from nccl_doctor import __version__
from nccl_doctor.diagnosis.report import Finding, Place, Report
from nccl_doctor.reporters import Options, pictures, short, words
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.measured import measure_tables
from nccl_doctor.reporters.words import clean, clean_block, escaped, scope

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
SHOWN = 20  # of equal findings; the count is said of the others
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = 48  # signs of a path before a line of evidence


def render(report: Report, options: Options) -> str:
    """Returns the report as one page; all text from logs is escaped."""
    word = words.HEADLINES[report.verdict]
    title = f"{word}: {words.headline(report)}"
    style = (resources.files("nccl_doctor.reporters") / "page.css").read_text("utf-8")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escaped(title)}</title>",
        f"<style>\n{style}</style></head><body><main>",
        *(_jobs(report) if report.jobs else _body(report)),
        f"<footer><p>nccl-doctor {escape(__version__)}</p></footer>",
        "</main></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _body(report: Report, prefix: str = "") -> list[str]:
    """One job: verdict, job lines, the first finding, pictures, other findings, what was read.

    `prefix` keeps the anchors of several jobs apart.
    """
    word = words.HEADLINES[report.verdict]
    rows = words.equal(words.nested(report.findings))
    places = {id(finding): f"{prefix}finding-{at}" for at, finding in enumerate(report.findings, 1)}
    found = [_findings(group, depth, places, is_open=at == 0) for at, (depth, group) in enumerate(rows)]
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
        _findings(group, depth, places, is_open=True) for depth, group in words.equal(words.nested(report.findings))
    ]
    whole = [
        part
        for at, job in enumerate(report.jobs, 1)
        for part in (f'<hr><p id="job-{at}">{escaped(job.name)}</p>', *_body(job, f"job-{at}-"))
    ]
    return [
        f"<h1>{escaped(report.basis)}</h1><ul>{rows}</ul>",
        *across,
        pictures.figures(report.pictures),
        *_measured(report),
        *whole,
    ]


def _measured(report: Report) -> list[str]:
    """A table for each of host, pair, GPU and rank that was measured."""
    parts = []
    for table in measure_tables(report):
        head = "".join(f"<th>{escaped(name)}</th>" for name in table.columns)
        rows = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
        parts.append(
            f'<h2>Measured by {table.scope}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
        )
    return parts


def _findings(group: Sequence[Finding], depth: int, places: dict[int, str], *, is_open: bool) -> str:
    """Equal findings as one fold: what differs is listed, why and what to do is said once."""
    first = group[0]
    times = f" ({len(group)} times)" if len(group) > 1 else ""
    more = f"<p>{len(group) - SHOWN:,} more are not shown.</p>" if len(group) > SHOWN else ""
    links = "".join(f"<li>{_link(one)}</li>" for one in first.references)
    terms = [("Why", _prose(clean_block(first.why))), ("Next", _advice(first.fix))]
    return "\n".join(
        filter(
            None,
            [
                *(f'<a id="{places[id(one)]}"></a>' for one in group),
                f'<details class="finding under-{min(depth, 3)}"{" open" if is_open else ""}>',
                f'<summary><h3><span class="word {first.severity}">{first.severity}</span> {escaped(first.title)}{times}</h3>',
                f'<span class="where">{escaped(words.scopes(list(group), None) if times else scope(first))}</span></summary>',
                *map(_one, group[:SHOWN]),
                more,
                "<dl>" + "".join(f"<dt>{t}</dt><dd>{text}</dd>" for t, text in terms if text) + "</dl>",
                f"<ul>{links}</ul>" if links else "",
                "</details>",
            ],
        )
    )


def _one(finding: Finding) -> str:
    """What one finding says, and the lines that prove it."""
    where = " · ".join(filter(None, [finding.rule, finding.name, finding.confidence, finding.role]))
    return f'<p class="where">{escaped(where)}</p><p>{_prose(clean(finding.message))}</p>{_evidence(finding.evidence)}'


def _evidence(places: Iterable[Place]) -> str:
    rows = "\n".join(f"{_place(one)} {escaped(one.text)}" for one in places)
    return f"<pre>{rows}</pre>" if rows else ""


def _place(place: Place) -> str:
    """File and line, the file shortened from the left."""
    name = words.shortened(clean(place.file), _PATH)
    return f'<span class="place" title="{escaped(place.file)}">{escaped(name)}:{place.line}:</span>'


def _advice(fix: str) -> str:
    """Sentences, and commands alone: one click selects a whole one."""
    return "".join(
        f'<pre class="command">{escaped(step.text)}</pre>' if step.is_command else f"{_prose(step.text)}<br>"
        for step in steps(fix)
    )


def _prose(text: str) -> str:
    """Text of which what stands in backticks is code."""
    return _CODE.sub(r"<code>\1</code>", "<br>".join(map(escaped, text.split("\n"))))


def _unread(report: Report) -> str:
    """Lines that look like an error and that nothing here knows, where no finding is the answer."""
    if not report.unread or report.verdict in ("error", "warning"):
        return ""
    return f"<section><h2>Lines that look like an error and are not known</h2>{_evidence(report.unread)}</section>"


def _unknown(report: Report) -> str:
    items = [*report.missing]
    items += [f"rule {c.rule} {c.name} broke: {c.reason}" for c in report.checks if c.outcome == "broken"]
    listed = _list(items)
    more = _list(words.captures(report))
    folded = f"<details><summary>What further captures would let it answer</summary>{more}</details>" if more else ""
    return f"<h2>Not known</h2>{listed}{folded}" if listed or folded else ""


def _list(items: Iterable[str]) -> str:
    shown = "".join(f"<li>{_prose(one)}</li>" for one in items)
    return f"<ul>{shown}</ul>" if shown else ""


def _inputs(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escaped(i.path)}</td><td>{escaped(i.kind)}</td><td>{i.lines}</td>"
        f"<td>{f'{i.understood} of {i.nccl_lines}' if i.nccl_lines else ''}</td><td>{escaped(i.note)}</td></tr>"
        for i in report.inputs
    )
    head = "<tr><th>input</th><th>kind</th><th>lines</th><th>NCCL lines understood</th><th></th></tr>"
    seen = "".join(f"<p>{escaped(text)}</p>" for text in words.coverage(report))
    return f'<h2>Read</h2><div class="scroll"><table>{head}{rows}</table></div>{seen}' if rows else ""


def _link(reference: str) -> str:
    text = escaped(reference)
    return f'<a rel="noreferrer" href="{text}">{text}</a>' if reference.startswith("https://") else text
