"""Parts that all HTML pages share: the frame with its policy, findings, evidence, advice."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from types import MappingProxyType

from nccl_doctor import __version__
from nccl_doctor.diagnosis.report import Finding, Place
from nccl_doctor.reporters import words
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.words import clean, clean_block, escaped

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CODE = re.compile(r"`([^`\n]+)`")
SHOWN = 20  # of equal findings; the count is said of the others
_PATH = 48  # signs of a path before a line of evidence


def page(title: str, body: Iterable[str], *, wide: bool = False) -> str:
    """A whole page without scripts and without external resources."""
    style = (resources.files("nccl_doctor.reporters") / "page.css").read_text("utf-8")
    shape = ' class="wide"' if wide else ""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escaped(title)}</title>",
        f"<style>\n{style}</style></head><body{shape}><main>",
        *body,
        f"<footer><p>nccl-doctor {escape(__version__)}</p></footer>",
        "</main></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def folded(summary: str, text: str) -> str:
    """Text behind a word that opens it; empty for nothing."""
    return f"<details><summary>{summary}</summary>{text}</details>" if text else ""


def findings(
    group: Sequence[Finding],
    depth: int = 0,
    places: Mapping[int, str] = MappingProxyType({}),
    *,
    is_open: bool,
    note: str = "",
) -> str:
    """Equal findings as one fold: what differs is listed, why and what to do is said once.

    `places` has the anchor of a finding by its `id()`.
    """
    first = group[0]
    where = words.scopes(list(group), None) if len(group) > 1 else words.scope(first)
    times = f" ({len(group)} times)" if len(group) > 1 else ""
    more = f"<p>{len(group) - SHOWN:,} more are not shown.</p>" if len(group) > SHOWN else ""
    links = "".join(f"<li>{_link(one)}</li>" for one in first.references)
    number = places[id(first)].rpartition("-")[2] if id(first) in places else ""
    nth = f'<span class="nth">{number}</span> ' if number else ""
    terms = [("Why", prose(clean_block(first.why))), ("Next", advice(first.fix))]
    return "\n".join(
        filter(
            None,
            [
                *(f'<a id="{places[id(one)]}"></a>' for one in group if id(one) in places),
                f'<details class="finding under-{min(depth, 3)}"{" open" if is_open else ""}>',
                f'<summary><h3>{nth}<span class="word {first.severity}">{first.severity}</span> {escaped(first.title)}{times}</h3>',
                f'<span class="where">{escaped(" · ".join(filter(None, [where, note])))}</span></summary>',
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
    return f'<p class="where">{escaped(where)}</p><p>{prose(clean(finding.message))}</p>{evidence(finding.evidence)}'


def evidence(places: Iterable[Place]) -> str:
    """Lines of inputs, each with its place."""
    rows = "\n".join(f"{_place(one)} {escaped(one.text)}" for one in places)
    return f"<pre>{rows}</pre>" if rows else ""


def _place(place: Place) -> str:
    """File and line, the file shortened from the left."""
    name = words.shortened(clean(place.file), _PATH)
    return f'<span class="place" title="{escaped(place.file)}">{escaped(name)}:{place.line}:</span>'


def advice(fix: str) -> str:
    """Sentences, and commands alone: one click selects a whole one."""
    return "".join(
        f'<pre class="command">{escaped(step.text)}</pre>' if step.is_command else f"{prose(step.text)}<br>"
        for step in steps(fix)
    )


def prose(text: str) -> str:
    """Text of which what stands in backticks is code."""
    return _CODE.sub(r"<code>\1</code>", "<br>".join(map(escaped, text.split("\n"))))


def listed(items: Iterable[str]) -> str:
    """A list; empty for nothing."""
    shown = "".join(f"<li>{prose(one)}</li>" for one in items)
    return f"<ul>{shown}</ul>" if shown else ""


def _link(reference: str) -> str:
    text = escaped(reference)
    return f'<a rel="noreferrer" href="{text}">{text}</a>' if reference.startswith("https://") else text
