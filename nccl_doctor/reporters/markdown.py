"""Markdown, to paste into an issue or a ticket."""

import re
from itertools import groupby

from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.reporters import Options, short, words
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.measured import measure_tables
from nccl_doctor.reporters.words import clean, clean_block, scope

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@$])")
_CODE = re.compile(r"((?<!`)`[^`]+`(?!`))")
_LINE_START = re.compile(r"^(\d*)([-+=.)])")


def render(report: Report, options: Options) -> str:
    """Returns the report with a heading per finding; evidence in fenced blocks, symptoms and context in lists."""
    if report.jobs:
        whole = [f"# {escaped(job.name)}\n\n{render(job, options)}" for job in report.jobs]
        rows = [f"- {escaped(job.name)}: {escaped(short.row(job))}" for job in report.jobs]
        across = _listed("Across the jobs", words.nested(report.findings))
        answer = [_headline(report), "", *_finding(report.findings[0])] if words.is_answer(report) else []
        rows += [f"- not read: {escaped(text)}" for text in words.not_read(report)]
        return "\n".join([*answer, f"# {escaped(report.basis)}", "", *rows, "", *across, *_measured(report), *whole])
    lines = [_headline(report), ""]
    lines += [line for text in words.job_lines(report) for line in (f"- {escaped(text)}",)]
    lines += [""] if report.job_lines else []
    if report.unread and report.verdict not in ("error", "warning"):
        lines += ["**Lines that look like an error and are not known**", ""]
        lines += _fenced([f"{clean(p.file)}:{p.line}: {clean(p.text)}" for p in report.unread])
    full = [f for f in report.findings if not f.explained_by and (f.severity != "note" or f is report.findings[0])]
    for number, finding in enumerate(full):
        if number > 0 or report.verdict not in SEVERITIES:
            lines += [f"### {finding.severity}: {escaped(finding.title)}", ""]
        lines += _finding(finding)
        lines += _listed("Follows from it", words.below(report.findings, finding))
    notes = [f for f in report.findings if not f.explained_by and not any(f is shown for shown in full)]
    lines += _listed(
        "Notes", [row for note in notes for row in [(0, note), *_deeper(words.below(report.findings, note))]]
    )
    lines += _measured(report)
    lines += [escaped(words.read(report)), ""]
    lines += [f"- not read: {escaped(text)}" for text in words.not_read(report)]
    lines += [f"- {escaped(text)}" for text in words.coverage(report)]
    if captures := words.captures(report):
        title = "What further captures would show"
        lines += [
            "",
            f"<details><summary>{title}</summary>",
            "",
            *(f"- {escaped(text)}" for text in captures),
            "",
            "</details>",
        ]
    lines += [""]
    for text in report.missing:
        lines += [f"To know more: {escaped(text)}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _headline(report: Report) -> str:
    return f"## {words.HEADLINES[report.verdict]}: {escaped(words.headline(report))}"


def _measured(report: Report) -> list[str]:
    """A table for each of host, pair, GPU and rank that was measured."""
    lines: list[str] = []
    for table in measure_tables(report):
        rows = [
            table.columns,
            ["---", *["---:"] * (len(table.columns) - 1)],
            *([escaped(row[0]), *row[1:]] for row in table.rows),
        ]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return lines


def _finding(finding: Finding) -> list[str]:
    lines = [escaped(finding.message), ""]
    where = [scope(finding), finding.confidence, f"{finding.rule} {finding.name}"]
    lines += [escaped(" · ".join(filter(None, where))), ""]
    if finding.evidence:
        lines += _fenced([f"{clean(p.file)}:{p.line}: {clean(p.text)}" for p in finding.evidence])
    if finding.why.strip():
        lines += [f"**Why** {escaped(finding.why, code=True)}", ""]
    if finding.fix.strip():
        lines += ["**Next**", "", *_advice(finding.fix), ""]
    lines += [f"- {escaped(one)}" for one in finding.references]
    return [*lines, ""] if finding.references else lines


def _advice(text: str) -> list[str]:
    """Sentences, and commands in blocks that can be copied."""
    lines: list[str] = []
    for is_command, group in groupby(steps(clean_block(text)), key=lambda step: step.is_command):
        if is_command:
            lines += _fenced([step.text for step in group], "sh")
        else:
            lines += [part for step in group for part in (escaped(step.text, code=True), "")]
    return lines[:-1]


def _deeper(rows: list[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
    return [(depth + 1, finding) for depth, finding in rows]


def _listed(heading: str, findings: list[tuple[int, Finding]]) -> list[str]:
    if not findings:
        return []
    items = []
    for depth, finding in findings:
        where = scope(finding)
        items.append(
            f"{'  ' * depth}- {finding.severity} {finding.rule} {finding.name}: "
            + escaped(finding.title)
            + (f" ({escaped(where)})" if where else "")
        )
    return [f"**{heading}**", "", *items, ""]


def _fenced(rows: list[str], language: str = "text") -> list[str]:
    """Returns a code block with a fence longer than any run of backticks inside."""
    longest = max((len(run) for row in rows for run in re.findall(r"`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *rows, fence, ""]


def escaped(text: str, code: bool = False) -> str:
    """Returns text that Markdown shows unchanged: no markup, no mentions, no HTML, no accidental lists.

    With `code`, text between single backticks is kept as code.
    """
    lines = []
    for line in clean_block(text).split("\n"):
        parts = _CODE.split(line.strip()) if code else [line.strip()]
        shown = "".join(
            part if at % 2 else _SPECIAL.sub(r"\\\1", part.replace("&", "&amp;")) for at, part in enumerate(parts)
        )
        lines.append(_LINE_START.sub(r"\1\\\2", shown))
    return "  \n".join(lines)
