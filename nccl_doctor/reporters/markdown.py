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
        return "\n".join(_overview(report, options))
    lines = [_headline(report), "", *(f"- {escaped(text)}" for text in words.job_lines(report))]
    lines += [""] if report.job_lines else []
    lines += [*_unread(report), *_findings(report), *_measured(report), *_read(report), ""]
    for text in report.missing:
        lines += [f"To know more: {escaped(text)}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _overview(report: Report, options: Options) -> list[str]:
    """One line for each of several jobs, what was found by comparing them, and each job in full."""
    answer = [_headline(report), "", *_finding(report.findings[0])] if words.is_answer(report) else []
    rows = [f"- {escaped(job.name)}: {escaped(short.row(job))}" for job in report.jobs]
    rows += [f"- not read: {escaped(text)}" for text in words.not_read(report)]
    across = _listed("Across the jobs", words.nested(report.findings))
    whole = [f"# {escaped(job.name)}\n\n{render(job, options)}" for job in report.jobs]
    return [*answer, f"# {escaped(report.basis)}", "", *rows, "", *across, *_measured(report), *whole]


def _unread(report: Report) -> list[str]:
    if not report.unread or report.verdict in ("error", "warning"):
        return []
    places = [f"{clean(p.file)}:{p.line}: {clean(p.text)}" for p in report.unread]
    return ["**Lines that look like an error and are not known**", "", *_fenced(places)]


def _findings(report: Report) -> list[str]:
    """The causes in full, each with what follows from it, then the notes as a list."""
    lines = []
    causes = [finding for finding in report.findings if not finding.explained_by]
    full = [one for one in causes if one.severity != "note" or one is report.findings[0]]
    for number, finding in enumerate(full):
        if number > 0 or report.verdict not in SEVERITIES:
            lines += [f"### {finding.severity}: {escaped(finding.title)}", ""]
        lines += [*_finding(finding), *_listed("Follows from it", words.below(report.findings, finding))]
    notes: list[tuple[int, Finding]] = []
    for note in causes:
        if not any(note is shown for shown in full):
            notes += [(0, note), *((depth + 1, one) for depth, one in words.below(report.findings, note))]
    return lines + _listed("Notes", notes)


def _read(report: Report) -> list[str]:
    """What was read, what was not, what is visible in it, and which captures would show more."""
    lines = [escaped(words.read(report)), ""]
    lines += [f"- not read: {escaped(text)}" for text in words.not_read(report)]
    lines += [f"- {escaped(text)}" for text in [*words.coverage(report), *report.resumed]]
    if captures := words.captures(report):
        lines += ["", "<details><summary>What further captures would show</summary>", ""]
        lines += [*(f"- {escaped(text)}" for text in captures), "", "</details>"]
    return lines


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
