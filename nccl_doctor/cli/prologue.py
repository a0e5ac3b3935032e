"""What each scheduler expects of a program that judges a node: exit status and words."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import node
from nccl_doctor.reporters.words import clean

OWNER = "nccl-doctor:"  # what our reasons start with; others' reasons are never touched
_REASON = 300  # characters that every scheduler keeps
_NPD = 80  # bytes of output that node-problem-detector keeps by default


class Prologue(NamedTuple):
    """How one caller reads us."""

    caller: str
    status: dict[str, int]  # fitness -> exit status
    say: Callable[[Report], str]
    strict: dict[str, int] = {}  # what --strict changes


def reason(report: Report) -> str:
    """One line for a drained node; the rule's id stands within the first 20 characters, which is what `sinfo -R` shows."""
    top = node.decisive(report)
    if top is None:
        return f"{OWNER}{node.MEANING[report.fitness]}"
    more = sum(f.action == top.action and f.severity != "note" for f in report.findings) - 1
    text = f"{OWNER}{top.rule} {top.name}: {clean(top.message)}"
    return text[:_REASON] + (f" (+{more})" if more > 0 else "")


def lines(report: Report) -> str:
    """One line a finding, for the log of a daemon."""
    rows = [f"nccl-doctor: {report.fitness}: {node.headline(report)}"]
    rows += [
        f"nccl-doctor: {node.label(f)} {f.rule} {f.name}: {clean(f.message)}"
        for f in report.findings if f.severity != "note"
    ]  # fmt: skip
    return "\n".join(rows) + "\n"


def printed(report: Report) -> str:
    """Lines for a Slurm TaskProlog, whose `print` reaches the output of the job."""
    if report.fitness == "fit":
        return ""
    return "".join(f"print {row}\n" for row in lines(report).splitlines())


def torque(report: Report) -> str:
    """TORQUE takes the node out when the first word is ERROR, whatever the exit status."""
    return f"ERROR {reason(report)}\n" if report.fitness == "drain" else ""


def nagios(report: Report) -> str:
    """Status line with performance data."""
    word = {"fit": "OK", "job": "WARNING", "drain": "CRITICAL", "unknown": "UNKNOWN"}[report.fitness]
    if report.fitness == "fit" and report.verdict == "warning":
        word = "WARNING"
    text = node.headline(report).replace("|", "/")
    spent = " ".join(f"{one['source']}={one['seconds']:g}s" for one in report.job.get("collectors", []))
    return f"NCCL-DOCTOR {word} - {text} | {spent}\n"


def detector(report: Report) -> str:
    """One short line for node-problem-detector."""
    text = reason(report).removeprefix(OWNER) if report.fitness != "fit" else "node is fit"
    return text.encode()[: _NPD - 1].decode("utf-8", "ignore") + "\n"


_FAIR = {"fit": 0, "drain": 1, "job": 0, "unknown": 0}  # only a broken node is punished
PROLOGUES = {
    one.caller: one
    for one in (
        Prologue("slurm", _FAIR, lines, {"job": 1, "unknown": 1}),
        Prologue("slurm-task", {"fit": 0, "drain": 0, "job": 0, "unknown": 0}, printed, {"drain": 1, "job": 1}),
        Prologue("slurm-health", _FAIR, lines),
        Prologue("pbs", {"fit": 0, "drain": 1, "job": 2, "unknown": 0}, lambda r: reason(r) + "\n", {"unknown": 1}),
        Prologue("torque", {"fit": 0, "drain": 0, "job": 0, "unknown": 0}, torque),
        Prologue("lsf", {"fit": 0, "drain": 1, "job": 99, "unknown": 0}, lines, {"unknown": 1}),
        Prologue("gridengine", {"fit": 0, "drain": 1, "job": 100, "unknown": 0}, lines, {"unknown": 1}),
        Prologue("k8s", {"fit": 0, "drain": 1, "job": 1, "unknown": 0}, lines, {"unknown": 1}),
        Prologue("npd", {"fit": 0, "drain": 1, "job": 0, "unknown": 2}, detector, {"job": 1}),
        Prologue("nagios", {"fit": 0, "drain": 2, "job": 1, "unknown": 3}, nagios),
    )
}


def of_slurm(environ: Mapping[str, str]) -> str:
    """Which of Slurm's programs we are: it says so in SLURM_SCRIPT_CONTEXT; HealthCheckProgram has no job."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    if context.endswith("_task"):
        return "slurm-task"
    return "slurm" if environ.get("SLURM_JOB_ID") else "slurm-health"


def status(prologue: Prologue, report: Report, strict: bool) -> int:
    """The exit status for this caller."""
    found = {**prologue.status, **(prologue.strict if strict else {})}[report.fitness]
    if prologue.caller == "nagios" and report.fitness == "fit" and report.verdict == "warning":
        return 1
    return found
