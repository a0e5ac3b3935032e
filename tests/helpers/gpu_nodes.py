"""Nodes with planted faults of GPUs."""

from pathlib import Path
from typing import Any

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

OURS = ("gpu", "pci")


def look(folder: Path, names: tuple[str, ...] = OURS, wanted: dict[str, Any] | None = None) -> tuple[Report, Facts]:
    """What preflight says of a tree, asking only these collectors."""
    facts = preflight.look(Root(folder), names, 20.0)
    expectations.add(facts, wanted or {})
    return preflight.report_of(facts), facts


def planted(folder: Path, machine: str, fault: str | None = None) -> tuple[Report, Facts]:
    node.build(machine, fault).write(folder)
    return look(folder, (*OURS, "infiniband") if fault and fault.startswith("nic") else OURS)


def alarms(report: Report) -> list[str]:
    return [finding.name for finding in report.findings if finding.severity != "note"]
