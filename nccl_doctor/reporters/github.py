"""Workflow commands of GitHub Actions: each finding as an annotation of the run."""

from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.reporters import Options, short, words
from nccl_doctor.reporters.words import clean, clean_block

LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
MOST = 10  # annotations of a level in one step; GitHub drops the others
ADVICE = 600  # characters of what to do


def render(report: Report, options: Options) -> str:
    """Returns one line for each finding that no other explains, the worst first, and one for the verdict, of each job too."""
    lines = []
    for level in LEVELS:
        found = [
            one
            for job in [report, *report.jobs]
            for one in job.findings
            if one.severity == level and not one.explained_by
        ]
        lines += [_annotation(one) for one in found[:MOST]]
        if len(found) > MOST:
            lines.append(
                _command("notice", "nccl-doctor", f"{len(found) - MOST} more of level {level} are in the report")
            )
    verdict = "\n".join(
        [f"{words.HEADLINES[report.verdict]}: {words.headline(report)}"]
        + [f"{short.name(job)}: {short.row(job)}" for job in report.jobs]
    )
    return "\n".join([*lines, _command("notice", "nccl-doctor", verdict)]) + "\n"


def _annotation(finding: Finding) -> str:
    where = words.scope(finding)
    place = finding.evidence[0] if finding.evidence else None
    proof = f"{place.file}:{place.line}: {place.text}" if place else ""
    fix = finding.fix if len(finding.fix) <= ADVICE else f"{finding.fix[:ADVICE]} …"
    text = "\n".join(filter(None, [finding.message, where, proof, fix.strip()]))
    title = f"{finding.rule} {finding.name}: {finding.title} ({finding.confidence})"
    return _command(LEVELS[finding.severity], title, text)


def _command(level: str, title: str, text: str) -> str:
    """One line; nothing in a title or a text can begin another command."""
    return f"::{level} title={_escaped(clean(title), ',:')}::{_escaped(clean_block(text))}"


def _escaped(text: str, more: str = "") -> str:
    for sign in ("%", "\r", "\n", *more):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
