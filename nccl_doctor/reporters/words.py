"""Texts shared by several reporters, and the cleaning of text from logs."""

import unicodedata
from itertools import takewhile
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.common.plurals import counted
from nccl_doctor.common.printable import is_printable
from nccl_doctor.diagnosis.report import JOBS, Finding, Report

HEADLINES = {
    "error": "ERROR",
    "warning": "WARNING",
    "note": "NOTE",
    "healthy": "HEALTHY",
    "nothing-found": "NOTHING FOUND",
    "inconclusive": "CANNOT TELL",
}
UNREAD = ("unread", "broken")  # the kinds of inputs that were not read
_ESCAPES = compiled(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")


def clean(text: str) -> str:
    """Returns one line without terminal escapes, control or bidirectional characters: logs cannot be trusted."""
    if is_printable(text):
        return text
    return "".join(map(_printable, _ESCAPES.sub("", text)))


def escaped(text: str) -> str:
    """`clean`, as text of an HTML page."""
    from html import escape  # with all entities

    return escape(clean(text))


def clean_block(text: str) -> str:
    """Like `clean`, for text of several lines such as the fix of a rule."""
    return "\n".join(clean(line.rstrip()) for line in text.strip("\n").split("\n"))


def _printable(character: str) -> str:
    if is_printable(character):
        return character
    category = unicodedata.category(character)
    if category == "Zs" or character in "\t\n\r\x0b\x0c\x85\u2028\u2029":
        return " "
    return "" if category in ("Cc", "Cf") else "\ufffd"


def scope(finding: Finding) -> str:
    """Returns jobs of a scheduler, hosts and ranks of a finding: `node[01-02], ranks 0-15`; empty if unknown."""
    ranks = finding.ranks
    if ranks:
        ranks = ("rank " if ranks.isdigit() else "ranks ") + ranks
    return clean(", ".join(filter(None, [str(finding.values.get(JOBS, "")), finding.hosts, ranks])))


def nested(findings: list[Finding]) -> list[tuple[int, Finding]]:
    """Returns each finding with how many others it stands under, by the first one that explains it."""
    shown: list[tuple[int, Finding]] = []
    path: list[Finding] = []  # the finding before and those that it stands under
    for finding in findings:
        while path and path[-1].rule not in finding.explained_by[:1]:
            path.pop()
        shown.append((len(path), finding))
        path.append(finding)
    return shown


def equal(rows: list[tuple[int, Finding]]) -> list[tuple[int, list[Finding]]]:
    """Findings of one rule that stand at the same place as one row, which has the depth of the first."""
    shown: list[tuple[int, list[Finding]]] = []
    known: dict[tuple[int, str, tuple[str, ...]], list[Finding]] = {}
    for depth, finding in rows:
        key = depth, finding.rule, tuple(finding.explained_by[:1])
        if key in known:
            known[key].append(finding)
        else:
            shown.append((depth, known.setdefault(key, [finding])))
    return shown


def scopes(findings: list[Finding], top: Finding | None) -> str:
    """Hosts and ranks of findings of one rule, without those of the first finding of the report."""
    places = list(dict.fromkeys(scope(finding) for finding in findings if top is None or scope(finding) != scope(top)))
    return "; ".join(filter(None, places))


def below(findings: list[Finding], top: Finding) -> list[tuple[int, Finding]]:
    """Returns the findings that stand under one, each with its depth, 0 for those directly under it."""
    rows = nested(findings)
    at = next(index for index, (_, finding) in enumerate(rows) if finding is top)
    depth = rows[at][0]
    under = list(takewhile(lambda row: row[0] > depth, rows[at + 1 :]))
    return [(number - depth - 1, finding) for number, finding in under]


def shortened(path: str, width: int) -> str:
    """Returns a path in so many columns: folders are left out from the left, then characters of the name."""
    from rich.cells import cell_len  # reports in other formats need no rich

    if cell_len(path) <= width:
        return path
    parts = path.split("/")
    for first in range(1, len(parts)):
        if cell_len(short := "…/" + "/".join(parts[first:])) <= width:
            return short
    name = parts[-1]
    while name and cell_len(name) > max(width, 2) - 1:
        name = name[1:]
    return f"…{name}"


def title_suffix(finding: Finding) -> str:
    """Returns what follows the title: scope, confidence, and the id for `explain`."""
    return " · ".join(filter(None, [scope(finding), finding.confidence, finding.rule]))


def headline(report: Report) -> str:
    """What is wrong in one clause, without the verdict's word."""
    if report.findings and report.verdict in SEVERITIES:
        return clean(report.findings[0].title)
    return clean(report.basis) or ("nothing to judge by" if report.verdict == "inconclusive" else "no fault found")


def is_answer(report: Report) -> bool:
    """Whether the comparison of several jobs found what none of them shows alone."""
    worst = min(
        (SEVERITIES.index(one.verdict) for one in report.jobs if one.verdict in SEVERITIES), default=len(SEVERITIES)
    )
    return bool(report.findings) and SEVERITIES.index(report.findings[0].severity) < worst


def job_lines(report: Report) -> list[str]:
    """The job in at most three lines: what ran where, over what it talked, how fast it was and how it ended."""
    return [clean(line) for line in report.job_lines]


def read(report: Report) -> str:
    """What was read, with the share of NCCL's lines that a pattern knows."""
    nccl_lines = sum(one.nccl_lines for one in report.inputs)
    understood = sum(one.understood for one in report.inputs if one.nccl_lines)
    kinds = list(dict.fromkeys(one.kind for one in report.inputs if one.kind not in UNREAD))
    number = sum(one.kind not in UNREAD for one in report.inputs)
    files = counted(number, "input") if number > 1 else ""
    parts = [files, ", ".join(kinds[:4]), f"understood {understood} of {nccl_lines} NCCL lines" if nccl_lines else ""]
    return clean(" · ".join(part for part in parts if part))


def not_read(report: Report) -> list[str]:
    """Inputs that were not read, each with why."""
    return [clean(f"{one.path}: {one.note}") for one in report.inputs if one.kind in UNREAD and one.note]


def coverage(report: Report) -> list[str]:
    """What is seen of the job and what is not, for people: `seen: …`, `not seen: …`; nothing where no job is seen."""
    by_state: dict[str, list[str]] = {}
    for row in report.coverage:
        by_state.setdefault(row.seen, []).append(row.aspect)
    if by_state.keys() <= {"not"}:
        return []
    names = {"seen": "seen", "partly": "partly seen", "not": "not seen"}
    return [f"{label}: {', '.join(by_state[state])}" for state, label in names.items() if state in by_state]


def captures(report: Report) -> list[str]:
    """What to capture, each with how many skipped rules it would allow, the most useful first."""
    counts: dict[str, int] = {}
    for check in report.checks:
        if check.outcome == "skipped" and check.capture:
            counts[check.capture] = counts.get(check.capture, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [clean(f"{counted(number, 'more rule')} with {capture}") for capture, number in ordered]


def job(job: dict[str, Any]) -> list[str]:
    """Returns ranks and hosts, versions, network; unknown parts are left out."""
    parts = []
    ranks, hosts = job.get("ranks"), job.get("hosts")
    if ranks and hosts:
        parts.append(f"{counted(ranks, 'rank')} on {counted(hosts, 'host')}")
    elif ranks:
        parts.append(counted(ranks, "rank"))
    elif hosts:
        parts.append(counted(hosts, "host"))
    if versions := joined(job.get("nccl_versions")):
        parts.append(f"NCCL {versions}")
    if network := joined(job.get("network")):
        parts.append(f"network {network}")
    return parts


def joined(value: Any) -> str:
    """Returns `a, b` for a list, a plain value as text, and an empty text for None."""
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)
