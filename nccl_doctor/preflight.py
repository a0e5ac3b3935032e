"""From a node to a report: collect, ask the rules about nodes, diagnose, and say whether the node is fit for the job."""

import socket
from collections.abc import Sequence
from pathlib import Path

from nccl_doctor import diagnose, rules
from nccl_doctor.config import Config
from nccl_doctor.facts import Facts
from nccl_doctor.report import Report
from nccl_doctor.sources.node import expectations
from nccl_doctor.sources.node.collect import COLLECTORS, collect
from nccl_doctor.sources.node.root import Root

TIMEOUT = 5.0  # seconds from the start to the verdict


def preflight(
    root: Root,
    *,
    host: str | None = None,
    names: Sequence[str] = COLLECTORS,
    seconds: float = TIMEOUT,
    expect: Path | None = None,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
) -> tuple[Report, Facts]:
    """Ask one node. Raises UsageProblem where `expect` or `config` cannot be used."""
    facts = Facts()
    collect(facts, root, host or hostname(root), names=names, seconds=seconds)
    expectations.add(facts, expect)
    return report_of(facts, rules_dirs=rules_dirs, config=config), facts


def report_of(facts: Facts, *, rules_dirs: Sequence[Path] = (), config: Config | None = None) -> Report:
    """The report about the nodes of a fact base."""
    chosen = (config or Config()).apply(rules.load(tuple(rules_dirs), rules.NODE))
    report = diagnose.diagnose(facts, rules.ask_all(chosen, facts))
    report.fitness = fitness(report, facts)
    return report


def fitness(report: Report, facts: Facts) -> str:
    """`drain` before `job` before `unknown` before `fit`. A note never decides, nor does a rule of ours that broke."""
    actions = {finding.action for finding in report.findings if finding.severity != "note"}
    for action in ("drain", "job"):
        if action in actions:
            return action
    blind = facts.own("SELECT count(*) FROM collection WHERE outcome IN ('hung', 'failed')")[0][0]
    return "unknown" if blind else "fit"


def hostname(root: Root) -> str | None:
    """The name of the node; of a tree what its /proc or /etc says."""
    if root.live:
        return socket.gethostname()
    return root.value("/proc/sys/kernel/hostname") or root.value("/etc/hostname")
