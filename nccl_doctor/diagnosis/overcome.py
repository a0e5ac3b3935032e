"""Faults that did not keep a job from ending in order: a script that looked for a GPU, a first attempt to start."""

from collections.abc import Sequence

from nccl_doctor.diagnosis.ranking import Found
from nccl_doctor.diagnosis.verdict import ENDED_WELL
from nccl_doctor.facts.store import Facts

# Groups of rules that say why a job does not start. A network that was not used and a GPU that fails are faults whatever the end.
_IN_THE_WAY = ("cuda", "node-software", "start")


def soften(items: Sequence[Found], facts: Facts) -> None:
    """Make notes of errors of which all evidence stands before the good end of the same file."""
    marks = ",".join("?" for _ in ENDED_WELL)
    ends = dict(
        facts.query(
            f"SELECT e.file, max(e.line) FROM coverage c JOIN evidence e ON e.id = c.ref WHERE c.aspect = 'end' AND c.shows IN ({marks})"
            " GROUP BY e.file",
            ENDED_WELL,
        )
    )
    for item in items if ends else ():
        finding = item.finding
        if finding.severity != "error" or item.rule.group not in _IN_THE_WAY or not item.refs:
            continue
        if all(place.line < ends.get(place.file, 0) for place in facts.evidence_rows(sorted(item.refs))):
            finding.severity = "note"
