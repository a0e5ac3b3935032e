"""What changed between two runs: what `compare` hands to its reporters. Its JSON form is `reporters/schema/comparison-1.json`."""

from dataclasses import dataclass, field
from typing import Any

from nccl_doctor.diagnosis.report import Finding, Place

SCHEMA = "nccl-doctor/comparison/1"
EFFECTS = ("worse", "better", "other")
VERDICTS = ("same", "note", "warning", "error", "inconclusive")


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    paths: list[str]
    verdict: str  # of its own report
    job: dict[str, Any]  # as in the report


@dataclass(frozen=True)
class Change:
    """Something that both runs tell, and not the same."""

    topic: str  # speed, transport, versions, settings, …
    what: str  # `NCCL_IB_HCA`, `samples/s of megatron`
    before: str
    after: str
    effect: str  # worse and better only of numbers of which more, or less, is better
    severity: str  # warning where it is worse, else note
    unit: str = ""  # of numbers
    ratio: float | None = None  # of numbers: after over before
    evidence: list[Place] = field(default_factory=list)  # of before, then of after


@dataclass
class Comparison:
    """The whole answer."""

    verdict: str  # the worst of what appeared and what changed; same, or inconclusive where nothing could be compared
    before: Side
    after: Side
    changes: list[Change]  # worse ones first, then in the order of the topics
    appeared: list[Finding]  # findings of the second run that the first has not
    gone: list[Finding]  # findings of the first run of which the second shows the opposite
    unasked: list[str] = field(default_factory=list)  # rules of what appeared that the first run has no facts for
    same: list[str] = field(default_factory=list)  # topics that both tell, without a change
    only_before: list[str] = field(default_factory=list)  # topics of which only the first run tells anything
    only_after: list[str] = field(default_factory=list)
