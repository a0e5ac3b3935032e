"""The report: what `diagnose` hands to every reporter. Its JSON form is `reporters/schema/report-2.json`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # few reports have pictures
    from nccl_doctor.diagnosis.picture import Picture

SCHEMA = "nccl-doctor/report/2"
JOBS = "accounted"  # the value of a finding that names jobs of a scheduler, and the column of a rule that has their id
VERDICTS = ("healthy", "nothing-found", "note", "warning", "error", "inconclusive")


@dataclass(frozen=True)
class Place:
    """A line of an input that proves a finding."""

    file: str
    line: int
    text: str


@dataclass
class Finding:
    """One fault, folded over the hosts and ranks that show it."""

    rule: str
    name: str
    title: str
    severity: str
    role: str
    confidence: str
    message: str
    why: str
    fix: str
    hosts: str = ""  # folded node set, `node[01-02]`; empty where not known
    ranks: str = ""  # folded, `0-7,9`
    values: dict[str, Any] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    evidence: list[Place] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)  # rule ids of findings below that this one accounts for
    explained_by: list[str] = field(default_factory=list)
    count: int = 1  # rows of the rule that were folded into this finding
    action: str = "warn"  # preflight: drain = the node is broken, job = this job cannot work as launched


@dataclass(frozen=True)
class Check:
    """What became of one rule: found, clear, skipped (facts are missing) or broken."""

    rule: str
    name: str
    outcome: str
    reason: str = ""
    capture: str = ""  # of a skipped rule: what to capture so that it can be asked


@dataclass(frozen=True)
class MeasureRow:
    """One number with its unit (table `measure`)."""

    name: str
    value: float
    unit: str
    scope: str
    of: str
    evidence: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class CoverageRow:
    """How much of one aspect of the job the inputs show (table `coverage`)."""

    aspect: str
    seen: str  # seen, partly, not
    shows: str
    capture: str
    evidence: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class InputSummary:
    """One input as the report counts it."""

    path: str
    kind: str
    bytes: int
    lines: int
    understood: int  # lines of NCCL and its plug-ins that a pattern knows
    nccl_lines: int = 0
    note: str = ""


@dataclass
class Report:
    """The whole answer."""

    verdict: str
    inputs: list[InputSummary]
    job: dict[str, Any]
    findings: list[Finding]  # in the order of the diagnosis; explained symptoms follow their cause
    checks: list[Check]
    missing: list[str] = field(default_factory=list)  # what to collect next, one sentence each
    basis: str = ""  # the clause that the verdict rests on; empty where a finding is the answer
    unread: list[Place] = field(default_factory=list)  # lines that look like an error in words that nobody knows
    unread_count: int = 0
    coverage: list[CoverageRow] = field(default_factory=list)
    resumed: list[str] = field(
        default_factory=list
    )  # what an earlier run had read, and what was read again, one sentence each
    measures: list[MeasureRow] = field(default_factory=list)
    job_lines: list[str] = field(default_factory=list)  # the job in at most three lines
    pictures: list["Picture"] = field(default_factory=list)  # only where a format shows them
    name: str = ""  # of one job among several
    jobs: list["Report"] = field(
        default_factory=list
    )  # where the inputs are of several jobs: one report each, the worst first
    fitness: str = ""  # of a node: fit, drain, job, unknown; empty where no node was asked
