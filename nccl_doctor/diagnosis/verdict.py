"""The verdict of a report and the clause that it rests on.

`healthy` is earned: two of "all ranks came up", "the job made progress" and "it ended in order" are seen, and no line that
looks like an error was left unread. `nothing-found`: read without a fault, but health is not proven. `inconclusive`: there
is nothing to judge by, or error-looking lines that nobody understood.
"""

from collections.abc import Sequence
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


def decide(facts: Facts, findings: Sequence[Finding], inputs: Sequence[Input]) -> Verdict:
    """The verdict over all findings and over what the inputs show."""
    unread, count = _unread(facts)
    severities = {finding.severity for finding in findings}
    for severity in ("error", "warning"):
        if severity in severities:
            return Verdict(severity, "", unread, count)
    if inputs and all(one.kind == "node" for one in inputs):
        return Verdict("note" if findings else "healthy", "" if findings else "no fault found", unread, count)
    coverage = {row.aspect: row for row in facts.rows(Coverage)}
    shown = [
        coverage[aspect].shows or "" for aspect in NEEDED if aspect in coverage and coverage[aspect].seen == "seen"
    ]
    proven, well = _proven(coverage)
    cut = next((one for one in inputs if one.note), None)
    if unread and not (proven and well):
        lines = "line looks" if count == 1 else "lines look"
        return Verdict("inconclusive", f"{count} {lines} like an error in words that are not known here", unread, count)
    if findings:
        return Verdict("note", "", unread, count)
    if unread:
        return Verdict("nothing-found", f"{', '.join(shown)}; but {count} unknown error-looking lines", unread, count)
    if proven and cut is None:
        return Verdict("healthy", ", ".join(dict.fromkeys(shown)), unread, count)
    if cut is not None and any(one.understood for one in inputs):
        return Verdict("nothing-found", "no fault found in the part that could be read", unread, count)
    hidden = [aspect for aspect in NEEDED if aspect not in coverage or coverage[aspect].seen != "seen"]
    if any(row.seen != "not" for row in coverage.values()) or any(one.understood for one in inputs):
        return Verdict("nothing-found", f"no fault found, but not visible: {', '.join(hidden)}", unread, count)
    return Verdict("inconclusive", _empty(inputs), unread, count)


def _proven(coverage: dict[str, Coverage]) -> tuple[bool, bool]:
    """Whether health is proven, and whether the job is seen to end in order."""
    start, progress, end = (coverage.get(aspect) for aspect in NEEDED)
    well = end is not None and end.shows in ENDED_WELL
    moved = progress is not None and progress.seen == "seen"
    bad_end = end is not None and end.seen == "seen" and not well
    up = start is not None and start.seen == "seen"
    return (up + moved + well >= 2 and not bad_end), well


def _unread(facts: Facts) -> tuple[list[Place], int]:
    """Lines that look like an error in words that no pattern knows: the first of them, and how many there are."""
    rows = facts.query("SELECT ref, n FROM message WHERE kind = 'error-looking' ORDER BY ref")
    places = facts.evidence_rows([ref for ref, _ in rows[:UNREAD]])
    return [Place(place.file, place.line, place.text) for place in places], sum(n for _, n in rows)


def _empty(inputs: Sequence[Input]) -> str:
    if any(one.nccl_lines for one in inputs):
        return "what was logged does not show a fault, nor that all is well"
    return "nothing in the input says anything about a job"
