"""From a node to a report: collect, ask the rules about nodes, diagnose, and say whether the node is fit for the job."""

import json
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nccl_doctor import diagnose, rules
from nccl_doctor.config import Config
from nccl_doctor.facts import Facts, by_name, column_types, table_name
from nccl_doctor.report import Report
from nccl_doctor.sources.node import expectations
from nccl_doctor.sources.node.collect import COLLECTORS, collect
from nccl_doctor.sources.node.root import Root
from nccl_doctor.tables import Collection, Evidence, Input

TIMEOUT = 5.0  # seconds from the start to the verdict


def look(root: Root, names: Sequence[str] = COLLECTORS, seconds: float = TIMEOUT, host: str | None = None) -> Facts:
    """The facts of one node."""
    facts = Facts()
    name = host or hostname(root)
    collect(facts, root, name, names=names, seconds=seconds)
    facts.add([Input(name or str(root.path), "node", 0, 0, 0, 0, None)])
    return facts


def report_of(facts: Facts, *, rules_dirs: Sequence[Path] = (), config: Config | None = None) -> Report:
    """The report about the nodes of a fact base."""
    chosen = (config or Config()).apply(rules.load(tuple(rules_dirs), rules.NODE))
    report = diagnose.diagnose(facts, rules.ask_all(chosen, facts))
    collected = facts.rows(Collection)
    report.fitness = fitness(report, collected)
    report.job["host_names"] = diagnose.fold_hosts({one.host for one in collected})
    report.job["collectors"] = [
        {"host": one.host, "source": one.source, "outcome": one.outcome, "seconds": one.seconds, "note": one.note or ""}
        for one in collected
    ]
    blind = [one for one in collected if one.outcome in ("hung", "failed", "partial", "unreachable")]
    report.missing = [f"{one.source} on {one.host}: {one.outcome}, {one.note or 'no reason known'}" for one in blind]
    return report


def preflight(root: Root, *, host: str | None = None) -> tuple[Report, Facts]:
    """Look at one node and judge it."""
    facts = look(root, host=host)
    expectations.add(facts, root.expect)
    return report_of(facts), facts


def fitness(report: Report, collected: Iterable[Collection]) -> str:
    """`drain` before `job` before `unknown` before `fit`. A note never decides, nor does a rule of ours that broke."""
    actions = {finding.action for finding in report.findings if finding.severity != "note"}
    for action in ("drain", "job"):
        if action in actions:
            return action
    return "unknown" if any(one.outcome in ("hung", "failed", "unreachable") for one in collected) else "fit"


def hostname(root: Root) -> str | None:
    """The name of the node; of a tree what its /proc or /etc says."""
    if root.live:
        return socket.gethostname()
    return root.value("/proc/sys/kernel/hostname") or root.value("/etc/hostname")


def boot_id() -> str | None:
    """What tells this boot of the node from others."""
    return Root().value("/proc/sys/kernel/random/boot_id")


def dump(facts: Facts) -> str:
    """All facts as JSON lines `[table, values]`, evidence first, for another node to take in."""
    tables: list[Any] = [Evidence, *(table for table in by_name().values() if table is not Evidence)]
    rows = [[table_name(table), list(row)] for table in tables for row in facts.rows(table)]
    return "".join(json.dumps(row) + "\n" for row in [*rows, ["looked", sorted(facts.looked())]])


def take(facts: Facts, lines: Iterable[str]) -> bool:
    """Add what `dump` wrote; returns whether it was whole. Anything else among the lines is passed over."""
    numbers: dict[int, int] = {}
    rows: list[Any] = []
    for line in lines:
        try:
            name, values = json.loads(line)
        except (ValueError, TypeError):
            continue
        if name == "looked":
            facts.add(rows)
            facts.look(*(one for one in values if one in by_name()))
            return True
        table = by_name().get(name) if isinstance(name, str) and isinstance(values, list) else None
        if table is None or len(values) != len(column_types(table)):
            continue
        if table is Evidence:
            numbers[values[0]] = facts.evidence(str(values[1]), int(values[2]), str(values[3]))
            continue
        row = dict(zip(column_types(table), values, strict=True))
        if "ref" in row:
            row["ref"] = numbers.get(row["ref"])
        rows.append(table(**row))
    return False
