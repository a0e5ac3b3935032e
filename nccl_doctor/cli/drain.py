"""Tells the scheduler that a node is drained or given back, within the limits that the site set.

Everything here runs in children with a deadline: the folder of scontrol or a shared folder may hang.
"""

import os
import time
from collections.abc import Callable

from nccl_doctor.app import drain_count, drain_policy
from nccl_doctor.app.drain_policy import Cap
from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.cli import prologue, slurm
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.node.runtime import children
from nccl_doctor.reporters import node
from nccl_doctor.rules.schema import Rule

SLURM = ("slurm", "slurm-health")  # callers for which we call scontrol
SECONDS = 4.0  # for one question to the scheduler or a shared folder
Warn = Callable[[str], None]


def hold_back(report: Report, rules: tuple[Rule, ...], caller: str, settings: Settings, warn: Warn) -> None:
    """Downgrade findings to warnings where enough other nodes are drained for the same rule."""
    drain_policy.limit(report, rules, settings, lambda rule: _others(rule, caller, settings, warn))


def drain(report: Report, rules: tuple[Rule, ...], caller: str, settings: Settings, warn: Warn) -> None:
    """Drain this node in Slurm; undo it where nodes drained at the same moment, and before it, exhaust the cap."""
    name = slurm.node_name(os.environ)
    if not _changed(lambda: slurm.drain(name, prologue.reason(report), settings.commands), warn):
        return
    top = node.decisive(report)
    cap = _others(top.rule, caller, settings, warn, before=True) if top is not None and settings.cap else None
    if cap is not None and cap.others >= cap.most:
        _changed(lambda: slurm.resume(name, settings.commands), warn)
        drain_policy.limit(report, rules, settings, lambda rule: cap)


def resume(settings: Settings, warn: Warn) -> None:
    """Give this node back in Slurm where we drained it."""
    name = slurm.node_name(os.environ)
    _changed(lambda: slurm.resume(name, settings.commands), warn)


def _others(rule: str, caller: str, settings: Settings, warn: Warn, before: bool = False) -> Cap | None:
    """How many other nodes are drained for this rule; None where that could not be asked."""
    now = time.time()
    name = slurm.node_name(os.environ)
    try:
        if caller in SLURM:
            told = children.ask(lambda: slurm.drained(rule, settings.commands), SECONDS)
            if isinstance(told, str):
                warn(told)
                return None
            rows, nodes = told
            recent = [(at, other) for at, other in rows if at >= now - settings.cap_window]
            mine = next((row for row in recent if row[1] == name), None)
            others = [row for row in recent if row[1] != name and (not before or mine is None or row < mine)]
            share = max(1, int(settings.cap_share * nodes)) if settings.cap_share else settings.cap
            return Cap(len(others), min(settings.cap, share))
        if settings.cap_folder:
            others = children.ask(
                lambda: drain_count.reserve(settings.cap_folder, rule, name, settings.cap, settings.cap_window, now),
                SECONDS,
            )
            return Cap(int(others), settings.cap)
    except OSError as error:  # a time-out is one too
        warn(f"how many nodes are drained for {rule} is not known: {error}")
        return None
    return Cap(0, settings.cap)


def _changed(work: Callable[[], bool | str | None], warn: Warn) -> bool:
    """Whether the scheduler did what it was asked to do; warns of what it could not do."""
    try:
        answer = children.ask(work, 2 * SECONDS)
    except OSError as error:
        answer = f"scontrol: {error}"
    if isinstance(answer, str):
        warn(answer)
    return answer is True
