"""Decides which findings drain a node, from the report of now and from what is remembered of earlier checks.

    held      a fault whose cause may lie outside the node (`shared` in its rule: file server, subnet manager, switch) drains
              only when it lasts: `grace` seconds and `grace_checks` checks in a row
    latched   a fault that only a reset cures (`until_reset` in its rule) drains until the boot id changes, the driver shows
              that the GPU was reset, or an administrator says `preflight --forget RULE`
    hung      a driver that does not answer in `hung_checks` checks in a row over `hung_seconds` drains
    capped    beyond `cap` nodes that are drained for one rule within `cap_window`, further nodes only warn

What does not drain stays in the report as a warning that says why.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.diagnosis.report import Finding, Place, Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime.expectations import inventory_of
from nccl_doctor.node.runtime.state import State
from nccl_doctor.rules.schema import Rule

NAME = "node"  # of the state file
HUNG_RULE = "gpu-driver-hung"
HUNG_SOURCE = "gpu"
_STALE = 1800.0  # seconds without a check, after which "in a row" starts anew
_EVIDENCE = 20  # texts that are kept of one finding
_BUS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE)


class Check(NamedTuple):
    """One look at a node."""

    boot_id: str | None
    look: str  # names the look: callers that share one count once
    now: float  # seconds since the epoch


Memory = dict[str, Any]


def apply(report: Report, facts: Facts, rules: Iterable[Rule], state: State, settings: Settings, check: Check) -> int:
    """Change the actions of findings by what is remembered, and remember this check. Returns clean checks in a row."""
    known = {rule.id: rule for rule in rules}
    memory = _of_this_boot(state.read(NAME), check)
    again = memory.get("look") == check.look
    shift = _shift(facts, memory)
    check = check._replace(now=check.now - shift)
    _forgive(report, memory)
    _latch(report, facts, known, memory, check, shift)
    _escalate(report, facts, memory, settings, check, again)
    _hold(report, known, memory, settings, check, again)
    clean = _number(memory.get("clean"))
    if any(one.outcome in ("hung", "failed", "unreachable") for one in facts.rows(Collection)) or _bad(report):
        clean = 0
    elif not again:
        clean += 1
    if clean and (seen := inventory_of(facts)):
        memory["inventory"] = seen
    state.write(NAME, {**memory, "clean": clean, "look": check.look})
    return clean


def inventory(state: State) -> dict[str, Any] | None:
    """What the last good check saw, as `expectations.add` takes it."""
    found = state.read(NAME).get("inventory")
    return found if isinstance(found, dict) else None


def _bad(report: Report) -> bool:
    return any(finding.action == "drain" and finding.severity != "note" for finding in report.findings)


def _of_this_boot(memory: Memory, check: Check) -> Memory:
    """What is remembered of this boot; the inventory is kept across boots."""
    if memory.get("boot_id") == check.boot_id and check.boot_id is not None:
        return memory
    return {"boot_id": check.boot_id, "inventory": memory.get("inventory")}


def _shift(facts: Facts, memory: Memory) -> float:
    """Seconds by which the clock was set since the first check of this boot: so far the time of the boot has moved.

    All times that are remembered are those of the clock at that check.
    """
    boots = [boot for (boot,) in facts.query("SELECT boot FROM kernel_log WHERE boot IS NOT NULL")]
    first = memory.get("booted")
    if not boots:
        return 0.0
    memory["booted"] = first if isinstance(first, int | float) and abs(first) < 1 << 63 else boots[0]
    return float(boots[0] - memory["booted"])


def _forgive(report: Report, memory: Memory) -> None:
    """Findings that an administrator asked to forget do not drain until there is new evidence."""
    for finding in _draining(report):
        old = _table(memory, "forgotten").get(finding.rule)
        if old is not None and {place.text for place in finding.evidence} <= set(_texts(old.get("evidence"))):
            _spare(finding, f"forgotten at {_clock(old.get('at'))} by an administrator")


def _latch(report: Report, facts: Facts, rules: Mapping[str, Rule], memory: Memory, check: Check, shift: float) -> None:
    latched = _table(memory, "latched")
    asked = _recovery(facts)
    found = {finding.rule: finding for finding in _draining(report) if _rule(rules, finding).until_reset}
    for rule, finding in found.items():
        old = latched.get(rule, {})
        buses = _buses(finding.values.get("gpus"))
        latched[rule] = {
            "at": old.get("at", check.now), "message": finding.message, "gpus": sorted(map(list, buses)),
            "asked": max([_number(old.get("asked")), *(asked.get(bus, 0) for bus in buses)]),
            "evidence": [place.text for place in finding.evidence][:_EVIDENCE],
        }  # fmt: skip
    for rule, old in list(latched.items()):
        if rule in found:
            continue
        if rule not in rules or _was_reset(facts, old, asked, shift):
            del latched[rule]
        else:
            report.findings.insert(0, _remembered(rules[rule], old))
    memory["latched"] = latched


def _remembered(rule: Rule, old: Mapping[str, Any]) -> Finding:
    """The finding of an earlier check, remembered until a reset."""
    when = _clock(old.get("at"))
    return Finding(
        rule=rule.id, name=rule.name, title=rule.title, severity=rule.severity, role=rule.role,
        confidence=rule.confidence,
        message=f"{str(old.get('message') or rule.title)[:400]} (seen at {when}; the node was not booted and the GPU not reset since)",
        why=rule.why, fix=f"{rule.fix} Cured in another way: `nccl-doctor preflight --forget {rule.name}`.",
        references=list(rule.references), action="drain",
        evidence=[Place("remembered", 1, text) for text in _texts(old.get("evidence"))[:3]],
    )  # fmt: skip


def _was_reset(facts: Facts, old: Mapping[str, Any], asked: Mapping[tuple[int, ...], int], shift: float) -> bool:
    """Whether the driver shows that these GPUs were reset: Xid 154 `… to 0x0 (None)` after the fault, or the recovery
    action of NVML back at 0 after it was another (`nvmlDeviceGetGpuRecoveryAction_t`, drivers since 570)."""
    gpus = old.get("gpus")
    buses = {tuple(bus) for bus in gpus if isinstance(bus, list)} if isinstance(gpus, list) else set()
    at = old.get("at")
    if not buses or not isinstance(at, int | float):
        return False
    rows = facts.query("SELECT pci, stamp FROM xid WHERE kind = 'xid' AND code = 154 AND text LIKE '%to 0x0 (None)%'")
    reset = {bus for pci, stamp in rows if stamp is not None and stamp - shift > at for bus in _buses(pci)}
    if _number(old.get("asked")) > 0:
        reset |= {bus for bus, action in asked.items() if action == 0}
    return buses <= reset


def _recovery(facts: Facts) -> dict[tuple[int, ...], int]:
    """Bus address of each GPU -> what the driver asks for, where it says so."""
    query = "SELECT g.pci, h.recovery FROM node_gpu g JOIN gpu_health h ON h.host IS g.host AND h.gpu = g.gpu"
    return {bus: action for pci, action in facts.query(query) if action is not None for bus in _buses(pci)}


def _escalate(report: Report, facts: Facts, memory: Memory, settings: Settings, check: Check, again: bool) -> None:
    hung = any(one.source == HUNG_SOURCE and one.outcome == "hung" for one in facts.rows(Collection))
    row = _row(memory.get("hung"), check) if hung else None
    if row is not None:
        row = _counted(row, check, again)
        lasted = check.now - row["first"]
        if 0 < settings.hung_checks <= row["checks"] and lasted >= settings.hung_seconds:
            for finding in report.findings:
                if finding.name == HUNG_RULE:
                    finding.action, finding.severity = "drain", "error"
                    finding.message += f" (in {row['checks']} checks in a row, since {_clock(row['first'])})"
    memory["hung"] = row


def _hold(
    report: Report, rules: Mapping[str, Rule], memory: Memory, settings: Settings, check: Check, again: bool
) -> None:
    old = _table(memory, "seen")
    seen: dict[str, dict[str, Any]] = {}
    for finding in _draining(report):
        if not _rule(rules, finding).shared:
            continue
        row = seen.get(finding.rule) or _counted(_row(old.get(finding.rule), check), check, again)
        seen[finding.rule] = row
        lasted = check.now - row["first"]
        if lasted < settings.grace or row["checks"] < settings.grace_checks:
            _spare(
                finding,
                f"seen for {lasted:.0f} of {settings.grace:.0f} s, check {row['checks']} of {settings.grace_checks}; "
                "the cause may lie outside the node",
            )
    memory["seen"] = seen


def _row(old: Any, check: Check) -> dict[str, Any]:
    """First and last time and number of checks in a row, as remembered, or new where the last check is long ago."""
    kept: dict[str, Any] = {key: old.get(key) for key in ("first", "last", "checks")} if isinstance(old, dict) else {}
    whole = bool(kept) and all(isinstance(value, int | float) for value in kept.values())
    if whole and kept["first"] <= kept["last"] <= check.now <= kept["last"] + _STALE:
        return kept
    return {"first": check.now, "last": check.now, "checks": 0}


def _counted(row: dict[str, Any], check: Check, again: bool) -> dict[str, Any]:
    return {**row, "last": check.now, "checks": max(int(row["checks"]) + (not again), 1)}


class Cap(NamedTuple):
    """How many other nodes are drained for a rule, and how many may be."""

    others: int
    most: int


def limit(report: Report, rules: Iterable[Rule], settings: Settings, ask: Callable[[str], Cap | None]) -> None:
    """Let findings whose rule drained enough other nodes only warn.

    `ask` takes the id of a rule and returns None where nobody could be asked: then a fault of the node itself drains, and
    one whose cause may lie outside does not.
    """
    if settings.cap <= 0:
        return
    known = {rule.id: rule for rule in rules}
    told: dict[str, Cap | None] = {}
    for finding in _draining(report):
        if finding.rule not in told:
            told[finding.rule] = ask(finding.rule)
        cap = told[finding.rule]
        if cap is not None and cap.others >= cap.most:
            _spare(
                finding,
                f"{cap.others} other nodes were drained for {finding.rule} within {settings.cap_window / 60:.0f} min and "
                f"{cap.most} is the most: look for a common cause",
            )
        elif cap is None and _rule(known, finding).shared:
            _spare(
                finding,
                "it is not known how many other nodes were drained for it, and the cause may lie outside the node",
            )


def forget(state: State, rule: Rule | None, check: Check) -> str:
    """Forget what is latched, for one rule or for all, and the inventory for all. Returns one sentence."""
    memory = _of_this_boot(state.read(NAME), check)
    latched, forgotten = _table(memory, "latched"), _table(memory, "forgotten")
    gone = [one for one in latched if rule is None or one == rule.id]
    for one in gone:
        kept = [*_texts(forgotten.get(one, {}).get("evidence")), *_texts(latched.pop(one).get("evidence"))]
        forgotten[one] = {"at": check.now, "evidence": list(dict.fromkeys(kept))[-10 * _EVIDENCE :]}
    memory |= {"latched": latched, "forgotten": forgotten, "clean": 0}
    if rule is None:
        memory |= {"inventory": None, "seen": {}, "hung": None}
    state.write(NAME, memory)
    if rule is None:
        return f"forgot {', '.join(gone) or 'no finding'} and the inventory of GPUs"
    return f"forgot {rule.id} {rule.name}" if gone else f"nothing was remembered of {rule.id} {rule.name}"


def _draining(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.action == "drain" and finding.severity != "note"]


def _spare(finding: Finding, why: str) -> None:
    finding.action = "warn"
    finding.message += f" (does not drain: {why})"


_UNKNOWN = Rule(
    id="", name="", title="", severity="", role="", confidence="", since="", needs=[], query="", message="", why="",
    fix="",
)  # fmt: skip


def _rule(rules: Mapping[str, Rule], finding: Finding) -> Rule:
    return rules.get(finding.rule, _UNKNOWN)


def _buses(text: Any) -> set[tuple[int, ...]]:
    """`0000:48:00, 0000:49:00.0` -> domain, bus and device of each."""
    return {tuple(int(part or "0", 16) for part in match.groups()) for match in _BUS.finditer(str(text or ""))}


def _table(memory: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    found = memory.get(key)
    if not isinstance(found, dict):
        return {}
    return {name: dict(value) for name, value in found.items() if isinstance(value, dict)}


def _texts(found: Any) -> list[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _number(found: Any) -> int:
    return found if type(found) is int and 0 <= found < 1 << 31 else 0


def _clock(stamp: Any) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    except (TypeError, ValueError, OverflowError, OSError):
        return "an unknown time"
