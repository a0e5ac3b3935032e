"""The verdict of a report and the clause that it rests on.

`healthy` is earned: two of "all ranks came up", "the job made progress" and "it ended in order" are seen, and no line that
looks like an error was left unread. `nothing-found`: read without a fault, but health is not proven. `inconclusive`: there
is nothing to judge by, or error-looking lines that nobody understood. `note`: a path that could be better; a note on what was
captured (role context) is not the answer to a log that proves no health, it stands below `nothing-found`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from nccl_doctor.diagnosis.report import Finding, Place
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Coverage, Input

NEEDED = ("start-up", "progress", "end")  # what proves that a job was healthy
UNREAD = 5  # error-looking lines that are quoted
ENDED_WELL = ("ended in order", "exit status 0")


class Verdict(NamedTuple):
    """The word, the clause it rests on, and error-looking lines that no pattern knows."""

    word: str
    basis: str
    unread: list[Place]
    unread_count: int


def decide(facts: Facts, findings: Sequence[Finding], inputs: Sequence[Input], shown: Collection[int] = ()) -> Verdict:
    """The verdict over all findings and over what the inputs show; `shown` is the evidence of the findings."""
    unread, count = _unread(facts, shown)
    word, basis = _answer(facts, _Shown(facts), findings, [one for one in inputs if one.kind != "unread"], count)
    return Verdict(word, basis, unread, count)


class _Shown:
    """What the coverage of the job proves."""

    def __init__(self, facts: Facts) -> None:
        rows = {row.aspect: row for row in facts.rows(Coverage)}
        needed = [(aspect, rows.get(aspect)) for aspect in NEEDED]
        self.anything = any(row.seen != "not" for row in rows.values())
        self.captures_only = bool(facts.query("SELECT 1 FROM captured LIMIT 1")) and not any(
            row is not None and row.seen != "not" for _, row in needed
        )
        self.clauses = [row.shows or "" for _, row in needed if row is not None and row.seen == "seen"]
        self.hidden = [aspect for aspect, row in needed if row is None or row.seen != "seen"]
        end = rows.get("end")
        self.ended_well = end is not None and end.shows in ENDED_WELL
        self.bad_end = end.shows or "" if end is not None and end.seen == "seen" and not self.ended_well else ""
        self.proven = not self.bad_end and len(self.hidden) <= 1


def _answer(
    facts: Facts, shown: _Shown, findings: Sequence[Finding], inputs: Sequence[Input], unread: int
) -> tuple[str, str]:
    """The word and the clause it rests on."""
    severities = {finding.severity for finding in findings}
    for severity in ("error", "warning"):
        if severity in severities:
            return severity, ""
    if inputs and all(one.kind == "node" for one in inputs):
        return ("note", "") if findings else ("healthy", "no fault found")
    if unread and not (shown.proven and shown.ended_well):
        lines = "line looks" if unread == 1 else "lines look"
        return "inconclusive", f"{unread} {lines} like an error in words that are not known here"
    if unread and not findings:
        return "nothing-found", f"{', '.join(shown.clauses)}; but {unread} unknown error-looking lines"
    word, basis = _without_findings(facts, shown, inputs)
    if findings and (word != "nothing-found" or any(finding.role != "context" for finding in findings)):
        return "note", ""
    return word, basis


def _without_findings(facts: Facts, shown: _Shown, inputs: Sequence[Input]) -> tuple[str, str]:
    """The verdict where no rule found anything and every line was read or is harmless."""
    cut = any(one.note for one in inputs)
    understood = any(one.understood or one.kind == "node" for one in inputs)
    if shown.proven and not cut:
        return "healthy", ", ".join(dict.fromkeys(shown.clauses))
    if cut and understood:
        return "nothing-found", "no fault found in the part that could be read"
    if shown.bad_end:
        return "nothing-found", f"no fault found, but {shown.bad_end}"
    shows_job = (
        shown.anything or any(one.nccl_lines for one in inputs) or facts.query("SELECT 1 FROM job WHERE ranks > 0")
    )
    if shown.captures_only or (understood and not shows_job):
        return "nothing-found", "no fault found; the input shows no running job"
    if shown.anything or understood:
        return "nothing-found", f"no fault found, but not visible: {', '.join(shown.hidden)}"
    return "inconclusive", _empty(facts, inputs)


def _unread(facts: Facts, shown: Collection[int]) -> tuple[list[Place], int]:
    """Lines that look like an error in words that no pattern and no finding knows: the first of them, and how many there are."""
    rows = facts.query("SELECT ref, n FROM message WHERE kind = 'error-looking' ORDER BY ref")
    rows = [row for row in rows if row[0] not in shown]
    places = facts.evidence_rows([ref for ref, _ in rows[:UNREAD]])
    return [Place(place.file, place.line, place.text) for place in places], sum(n for _, n in rows)


def _empty(facts: Facts, inputs: Sequence[Input]) -> str:
    if any(one.nccl_lines for one in inputs) or facts.query("SELECT 1 FROM job WHERE ranks > 0"):
        return "what was logged does not show a fault, nor that all is well"
    return "nothing in the input says anything about a job"
