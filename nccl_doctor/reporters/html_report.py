"""HTML: one file without scripts and without external resources."""

from html import escape

from nccl_doctor import __version__
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.reporters import Options, short, words
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.measured import measure_tables
from nccl_doctor.reporters.words import clean, clean_block, scope

STYLE = """
:root { color-scheme: light dark; --error: #b3261e; --warning: #8a5a00; --note: #0b57a4; --healthy: #146c2e; }
@media (prefers-color-scheme: dark) { :root { --error: #ff8a80; --warning: #ffd27a; --note: #9cc9ff; --healthy: #8fdda4; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 0; }
.error { color: var(--error); } .warning { color: var(--warning); } .note { color: var(--note); }
.healthy, .nothing-found { color: var(--healthy); } .word { font-weight: 700; text-transform: uppercase; }
section { border: 1px solid #8886; border-radius: 6px; padding: .8rem 1rem; margin: 1rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .5rem; border-radius: 4px; font-size: .85rem; }
.place { opacity: .7; } .where { opacity: .8; margin: .2rem 0 .6rem; }
section.under-1 { margin-left: 2rem; } section.under-2 { margin-left: 4rem; } section.under-3 { margin-left: 6rem; }
dt { font-weight: 600; } dd { margin: 0 0 .6rem; white-space: pre-wrap; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .1rem .8rem .1rem 0; }
""".strip()
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(report: Report, options: Options) -> str:
    """Returns the report as one page; all text from logs is escaped."""
    word = words.HEADLINES[report.verdict]
    title = f"{word}: {words.headline(report)}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title>",
        f"<style>\n{STYLE}\n</style></head><body><main>",
        *(_jobs(report) if report.jobs else _body(report)),
        f"<footer><p>nccl-doctor {escape(__version__)}</p></footer>",
        "</main></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _body(report: Report) -> list[str]:
    """One job: verdict, job lines, findings, what was read."""
    word = words.HEADLINES[report.verdict]
    return [
        f'<h1><span class="word {report.verdict}">{word}</span>: {_text(words.headline(report))}</h1>',
        "".join(f"<p>{_text(line)}</p>" for line in words.job_lines(report)),
        _unread(report),
        *(_finding(f, number, depth) for number, (depth, f) in enumerate(words.nested(report.findings), 1)),
        *_measured(report),
        _unknown(report),
        _inputs(report),
    ]


def _jobs(report: Report) -> list[str]:
    """Several jobs: a list, what was found by comparing them, then each."""
    rows = "".join(f"<li>{_text(job.name)}: {_text(short.row(job))}</li>" for job in report.jobs)
    across = [_finding(f, number, depth) for number, (depth, f) in enumerate(words.nested(report.findings), 1)]
    whole = [part for job in report.jobs for part in (f"<hr><p>{_text(job.name)}</p>", *_body(job))]
    return [f"<h1>{_text(report.basis)}</h1><ul>{rows}</ul>", *across, *_measured(report), *whole]


def _measured(report: Report) -> list[str]:
    """A table for each of host, pair, GPU and rank that was measured."""
    parts = []
    for table in measure_tables(report):
        head = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
        rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
        parts.append(f"<h2>Measured by {table.scope}</h2><table><tr>{head}</tr>{rows}</table>")
    return parts


def _finding(finding: Finding, number: int, depth: int) -> str:
    where = " · ".join(filter(None, [scope(finding), finding.confidence, finding.role]))
    rows = "\n".join(
        f'<span class="place">{_text(place.file)}:{place.line}:</span> {_text(place.text)}'
        for place in finding.evidence
    )
    links = "".join(f"<li>{_link(one)}</li>" for one in finding.references)
    advice = "".join(
        f"<pre>{_text(s.text)}</pre>" if s.is_command else f"{_text(s.text)}<br>" for s in steps(finding.fix)
    )
    terms = [("Why", escape(clean_block(finding.why))), ("Next", advice)]
    return "\n".join(
        filter(
            None,
            [
                f'<section id="finding-{number}" class="finding under-{min(depth, 3)}">',
                f'<h2><span class="word {finding.severity}">{finding.severity}</span> {_text(finding.title)}</h2>',
                f'<p class="where">{_text(finding.rule)} {_text(finding.name)} · {_text(where)}</p>',
                f"<p>{_text(finding.message)}</p>",
                f"<pre>{rows}</pre>" if rows else "",
                "<dl>" + "".join(f"<dt>{t}</dt><dd>{text}</dd>" for t, text in terms if text) + "</dl>",
                f"<ul>{links}</ul>" if links else "",
                "</section>",
            ],
        )
    )


def _unread(report: Report) -> str:
    """Lines that look like an error and that nothing here knows, where no finding is the answer."""
    if not report.unread or report.verdict in ("error", "warning"):
        return ""
    rows = "\n".join(f'<span class="place">{_text(p.file)}:{p.line}:</span> {_text(p.text)}' for p in report.unread)
    return f"<section><h2>Lines that look like an error and are not known</h2><pre>{rows}</pre></section>"


def _unknown(report: Report) -> str:
    items = [*report.missing]
    items += [f"rule {c.rule} {c.name} broke: {c.reason}" for c in report.checks if c.outcome == "broken"]
    items += words.captures(report)
    return "<h2>Not known</h2><ul>" + "".join(f"<li>{_text(one)}</li>" for one in items) + "</ul>" if items else ""


def _inputs(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{_text(i.path)}</td><td>{_text(i.kind)}</td><td>{i.lines}</td>"
        f"<td>{f'{i.understood} of {i.nccl_lines}' if i.nccl_lines else ''}</td><td>{_text(i.note)}</td></tr>"
        for i in report.inputs
    )
    head = "<tr><th>input</th><th>kind</th><th>lines</th><th>NCCL lines understood</th><th></th></tr>"
    seen = "".join(f"<p>{_text(text)}</p>" for text in words.coverage(report))
    return f"<h2>Read</h2><table>{head}{rows}</table>{seen}" if rows else ""


def _link(reference: str) -> str:
    text = _text(reference)
    return f'<a rel="noreferrer" href="{text}">{text}</a>' if reference.startswith("https://") else text


def _text(text: str) -> str:
    return escape(clean(text))
