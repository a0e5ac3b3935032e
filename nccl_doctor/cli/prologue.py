"""What each caller of `preflight` is told about a node: exit status and words.

Schedulers are called back by the scripts in docs/prologues, which turn DRAIN and JOB into what each of them expects.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nccl_doctor.cli.fail_open import DRAIN, JOB
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import node
from nccl_doctor.reporters.words import clean

OWNER = "nccl-doctor:"  # what our reasons start with; others' reasons are never touched
_REASON = 300  # characters that every scheduler keeps
_OTHERS = 5  # further rules that a reason names, so that nodes are counted for them too
_NPD = 80  # bytes of output that node-problem-detector keeps by default


class Prologue(NamedTuple):
    """What one kind of caller expects of exit status and output."""

    caller: str
    status: dict[str, int]  # fitness -> exit status; 0 for what is not named
    say: Callable[[Report], str]
    says_all: bool = False  # the caller acts on what is printed, whatever the exit status


def reason(report: Report) -> str:
    """One line for a drained node; the rule's id is within the first 20 characters, which is what `sinfo -R` shows."""
    top = node.decisive(report)
    if top is None:
        return f"{OWNER}{node.MEANING[report.fitness]}"
    more = dict.fromkeys(f.rule for f in report.findings if f.action == top.action and f.severity != "note")
    text = f"{OWNER}{top.rule} {top.name}: {clean(top.message)}"
    others = ",".join([rule for rule in more if rule != top.rule][:_OTHERS])
    return text[:_REASON] + (f" (+{others})" if others else "")


def lines(report: Report) -> str:
    """One line a finding, for the log of a daemon."""
    rows = [f"nccl-doctor: {report.fitness}: {node.headline(report)}"]
    rows += [
        f"nccl-doctor: {node.label(f)} {f.rule} {f.name}: {clean(f.message)}"
        for f in report.findings if f.severity != "note"
    ]  # fmt: skip
    rows += [f"nccl-doctor: unknown: {clean(one)}" for one in report.missing]
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
    text = (
        reason(report).removeprefix(OWNER)
        if report.fitness != "fit"
        else "; ".join(["node is fit", *node.in_part(report)])
    )
    return text.encode()[: _NPD - 1].decode("utf-8", "ignore") + "\n"


READ = frozenset(("slurm-task", "pbs", "torque", "npd", "nagios"))
"""Callers that take what is printed apart: a warning before it would be taken for it. The launcher joins stderr to stdout."""
_NODE = {"drain": DRAIN}  # only a broken node is punished
_NODE_OR_JOB = {"drain": DRAIN, "job": JOB}
PROLOGUES = {
    one.caller: one
    for one in (
        Prologue("slurm", _NODE, lines),
        Prologue("slurm-task", {}, printed),
        Prologue("slurm-health", _NODE, lines),
        Prologue("pbs", _NODE_OR_JOB, lambda r: reason(r) + "\n"),
        Prologue("torque", _NODE, torque, says_all=True),
        Prologue("lsf", _NODE_OR_JOB, lines),
        Prologue("gridengine", _NODE_OR_JOB, lines),
        Prologue("k8s", _NODE_OR_JOB, lines),
        Prologue("npd", {"drain": DRAIN, "unknown": 2}, detector),
        Prologue("nagios", {"drain": 2, "job": 1, "unknown": 3}, nagios),
    )
}


def of_slurm(environ: Mapping[str, str]) -> str:
    """Which of Slurm's programs we are: it says so in SLURM_SCRIPT_CONTEXT; HealthCheckProgram has no job."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    if context.endswith("_task"):
        return "slurm-task"
    return "slurm" if environ.get("SLURM_JOB_ID") else "slurm-health"


def status(prologue: Prologue, report: Report) -> int:
    """The exit status for this caller."""
    if prologue.caller == "nagios" and report.fitness == "fit" and report.verdict == "warning":
        return 1
    return prologue.status.get(report.fitness, 0)
