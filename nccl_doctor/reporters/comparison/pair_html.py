"""A comparison as one HTML page without scripts: the verdict, what is new, what changed, the pictures of both runs."""

from collections.abc import Iterable, Sequence

from nccl_doctor.diagnosis.comparison import Change, Comparison
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.reporters import Options, html_page, pictures
from nccl_doctor.reporters.comparison import pair_words as words
from nccl_doctor.reporters.words import escaped


def render(comparison: Comparison, options: Options) -> str:
    """Returns the comparison as one page; all text from logs is escaped."""
    head = words.HEADS[comparison.verdict]
    headline = words.headline(comparison)
    sides = "".join(
        f"<p><b>{name}</b> {escaped(words.run(side))}</p>"
        for name, side in (("A", comparison.before), ("B", comparison.after))
    )
    advice = words.advice(comparison)
    body = [
        f'<h1><span class="word {comparison.verdict}">{head}</span>: {escaped(headline)}</h1>',
        f'<div class="job">{sides}</div>',
        f"<dl><dt>Next</dt><dd>{html_page.advice(advice)}</dd></dl>" if advice else "",
        *_findings("New in B", comparison.appeared, comparison),
        *_findings("Gone in B", comparison.gone, comparison),
        _changes(comparison.changes),
        *_topics(comparison),
        *map(pictures.pair, comparison.pictures),
    ]
    return html_page.page(f"{head}: {headline}", body, wide=True)


def _findings(heading: str, findings: Sequence[Finding], comparison: Comparison) -> list[str]:
    if not findings:
        return []
    return [
        f"<h2>{heading}</h2>",
        *(html_page.findings([one], is_open=False, note=words.unasked(one, comparison)) for one in findings),
    ]


def _changes(changes: Iterable[Change]) -> str:
    """A table of what both runs tell differently, each row with the lines that show it."""
    rows = "".join(
        f'<tr><th scope="row">{escaped(one.what)}</th><td>{escaped(one.before)}</td><td>{escaped(one.after)}'
        f'{escaped(f" {one.unit}") if one.unit else ""}</td><td class="{one.effect}">{escaped(_effect(one))}</td>'
        f"<td>{html_page.folded('lines', html_page.evidence(one.evidence))}</td></tr>"
        for one in changes
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "A", "B", "", ""))
    table = f'<div class="scroll"><table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f"<h2>Changed</h2>{table}" if rows else ""


def _effect(change: Change) -> str:
    return ", ".join(filter(None, [words.effect(change), change.effect if change.effect != "other" else ""]))


def _topics(comparison: Comparison) -> list[str]:
    listed = (("Same", comparison.same), ("Only in A", comparison.only_before), ("Only in B", comparison.only_after))
    return [f"<p><b>{name}</b>: {escaped(', '.join(topics))}</p>" for name, topics in listed if topics]
