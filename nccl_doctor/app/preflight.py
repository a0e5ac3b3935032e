"""From a node to a report: collect, ask the rules about nodes, diagnose, and say whether the node is fit for the job."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.app import drain_policy
from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.derive.registry import derive_all, steps
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection, Input
from nccl_doctor.node.runtime import expectations, state
from nccl_doctor.node.runtime.collect import COLLECTORS, collect
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.rules import engine, loader, schema
from nccl_doctor.rules.site_config import Config

TIMEOUT = 5.0  # seconds from the start to the verdict
LOOK = "look"  # the evidence that names the collection run: callers that share one have the same
VERDICT = 0.3  # seconds of it that are kept for asking the rules and writing the report


def look(
    root: Root,
    names: Sequence[str] = COLLECTORS,
    seconds: float = TIMEOUT,
    host: str | None = None,
    *,
    shared: Path | None = None,
    connection: int | None = None,
) -> Facts:
    """The facts of one node. `shared` and `connection` as for `collect`."""
    name = host or hostname(root)
    wanted = {"ssh": bool(root.peers), "deep": bool(root.deep) and tuple(names) == COLLECTORS}
    asked = [*names, *(one for one, is_wanted in wanted.items() if is_wanted and one not in names)]
    opened: list[Facts] = []
    number = collect(
        lambda: _prepared(opened), root, name, names=asked, seconds=seconds, shared=shared, connection=connection
    )
    facts = opened[0]
    facts.evidence(LOOK, 1, number)
    facts.add([Input(name or str(root.path), "node", 0, 0, 0, 0, None)])
    return facts


def _prepared(opened: list[Facts]) -> Facts:
    """An empty fact base. While the collectors work there is time to load what judges them."""
    opened.append(Facts())
    loader.load_usable((), schema.NODE)
    steps()
    return opened[0]


def report_of(facts: Facts, *, rules_dirs: Sequence[Path] = (), config: Config | None = None) -> Report:
    """The report about the nodes of a fact base."""
    derive_all(facts)
    folders = tuple(rules_dirs)
    chosen = (config or Config()).apply(
        loader.load_usable(folders, schema.NODE).rules, lambda: loader.load_usable(folders).rules
    )
    report = diagnose.diagnose(facts, engine.ask_all(chosen, facts))
    collected = facts.rows(Collection)
    report.fitness = fitness(report, collected)
    report.job["host_names"] = diagnose.fold_hosts({one.host for one in collected})
    report.job["collectors"] = [
        {"host": one.host, "source": one.source, "outcome": one.outcome, "seconds": one.seconds, "note": one.note or ""}
        for one in collected
    ]
    report.missing = _missing(collected)
    return report


def _missing(collected: Iterable[Collection]) -> list[str]:
    """What could not be looked at, one sentence for all nodes of which the same is true."""
    hosts: dict[tuple[str, str, str], list[str | None]] = defaultdict(list)
    for one in collected:
        if one.outcome in ("hung", "failed", "partial", "unreachable"):
            note = (one.note or "no reason known").replace(one.host or "\0", "the node")
            hosts[one.source, one.outcome, note].append(one.host)
    return [
        f"{source} on {diagnose.fold_hosts(names)}: {outcome}, {note}"
        for (source, outcome, note), names in hosts.items()
    ]


class Memory(NamedTuple):
    """The state folder, the caller and the settings of a check."""

    folder: Path
    caller: str
    settings: Settings
    check: drain_policy.Check


class Judged(NamedTuple):
    """A report after the drain policy was applied to it."""

    report: Report
    clean: int  # checks in a row that found nothing, with this one
    problem: str | None  # why nothing could be remembered


def judge(
    facts: Facts,
    wanted: Mapping[str, Any],
    *,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
    memory: Memory,
) -> Judged:
    """Judge one live node by its facts and the remembered checks before, and remember this check."""
    with state.opened(memory.folder) as kept:
        expectations.add(facts, wanted, drain_policy.inventory(kept))
        state.remember_counters(facts, kept, memory.caller, memory.check.boot_id)
        report = report_of(facts, rules_dirs=rules_dirs, config=config)
        rules = loader.load_usable(tuple(rules_dirs), schema.NODE).rules
        clean = drain_policy.apply(report, facts, rules, kept, memory.settings, memory.check)
    report.fitness = fitness(report, facts.rows(Collection))
    return Judged(report, clean, kept.problem)


def preflight(root: Root, *, host: str | None = None) -> tuple[Report, Facts]:
    """Look at one node and judge it."""
    facts = look(root, host=host)
    expectations.add(facts, root.expect)
    return report_of(facts), facts


def left(seconds: float) -> float:
    """The seconds left for sources, of those that the caller grants this process from start to end."""
    try:
        said = Path("/proc/self/stat").read_bytes()
        started = int(said.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        spent = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        spent = 0.0
    spent = spent if 0 < spent < seconds else 0.0  # a process that lives longer was started for something else
    return max(seconds - spent - VERDICT, seconds / 2)


def fitness(report: Report, collected: Iterable[Collection]) -> str:
    """`drain` before `job` before `unknown` before `fit`. A note never decides, nor does a rule of ours that broke."""
    actions = {finding.action for finding in report.findings if finding.severity != "note"}
    for action in ("drain", "job"):
        if action in actions:
            return action
    return "unknown" if any(one.outcome in ("hung", "failed", "unreachable") for one in collected) else "fit"


def hostname(root: Root) -> str | None:
    """The host name of the node, for a tree from its /proc or /etc."""
    if root.live:
        return socket.gethostname()
    return root.host_name()


def check_of(facts: Facts) -> drain_policy.Check:
    """The collection run that these facts come from."""
    names = facts.query("SELECT text FROM evidence WHERE file = ?", (LOOK,))
    return drain_policy.Check(boot_id(), str(names[0][0]) if names else "", time.time())


def boot_id() -> str | None:
    """The identifier of the current boot (/proc/sys/kernel/random/boot_id)."""
    return Root().value("/proc/sys/kernel/random/boot_id")
