"""What changed between two runs: what `compare` hands to its reporters. Its JSON form is `reporters/schema/comparison-1.json`."""

from dataclasses import dataclass, field
from typing import Any

from nccl_doctor.diagnosis.picture import PicturePair
from nccl_doctor.diagnosis.report import Finding, Place

SCHEMA = "nccl-doctor/comparison/1"
EFFECTS = ("worse", "better", "other")
CHOSEN = (
    "settings",
    "versions",
    "plug-ins",
    "network devices",
    "nodes",
    "size",
    "hosts",
)  # topics that a person chooses
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
    pictures: list[PicturePair] = field(default_factory=list)  # only where a format shows them


RUNS_SCHEMA = "nccl-doctor/runs/1"


@dataclass(frozen=True)
class Measure:
    """A column of numbers: something that at least one run measured."""

    topic: str
    what: str
    unit: str
    better: int  # 1: more is better; -1: less is; 0: neither


@dataclass(frozen=True)
class Varied:
    """Something that the runs state in words, and not all alike."""

    topic: str
    what: str
    values: list[str | None]  # in the order of the runs; None where a run does not tell
    chosen: bool  # by a person, such as a setting; else it follows, such as a transport


@dataclass(frozen=True)
class Measured:
    """A number of one run."""

    value: float
    text: str
    ratio: float | None  # to the first run that was named
    effect: str  # worse, better, other than the first run; empty where it is the same, within the noise
    evidence: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class RunRow:
    """One run among several."""

    name: str  # the part of its path that tells it from the others
    path: str
    number: int  # 1 is the first one that was named
    verdict: str  # of its own report
    findings: list[Finding]  # causes that it shows and the first run does not
    values: list[Measured | None]  # in the order of the measures
    changed: list[str]  # `NCCL_ALGO=Ring`: what was chosen otherwise than in the first run


@dataclass(frozen=True)
class RunsTable:
    """Several runs by measures: best first by the first measure, then in the order in which they were named."""

    verdict: str
    headline: str
    measures: list[Measure]
    runs: list[RunRow]
    varied: list[Varied]
