"""Asks rules about facts: a rule answers found, clear, skipped or broken.

Skipped: a table that it needs was never looked at. Broken: its query failed. A rule file is data: its query runs under
the guard of `Facts.sql`, its templates name columns and nothing else.
"""

import math
import re
from collections.abc import Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any

from nccl_doctor.rules.answers import Answer
from nccl_doctor.rules.folding import Folding, Row
from nccl_doctor.rules.named_faults import hand_over
from nccl_doctor.rules.row_sources import Present
from nccl_doctor.rules.schema import OVERRIDES, Rule

if TYPE_CHECKING:
    from nccl_doctor.facts.store import Facts


_REF = re.compile(r"[0-9]{1,18}")
_LARGEST_REF = 10**18
_PLAIN = frozenset((str, int, NoneType))  # of values that any report can hold


def ask(
    rule: Rule,
    facts: "Facts",
    looked: set[str] | None = None,
    steps: int | None = None,
    present: Present | None = None,
) -> Answer:
    """Ask one rule. With `present`, a query that cannot return a row of these facts is not run."""
    from nccl_doctor.facts.guard import QueryProblem

    lacking = [table for table in rule.needs if table not in (looked if looked is not None else facts.covered())]
    if lacking:
        return Answer(rule, "skipped", [], f"no facts in table {', '.join(lacking)}")
    if present is not None and not present.may_return(rule.row_sources):
        return Answer(rule, "clear", [], "")
    folding = Folding(rule.message)
    try:
        with facts.asked(rule.query, rule.params, steps, authorized=rule.is_shipped) as (columns, found):
            for values in found:
                row = dict(zip(columns, values, strict=True))
                folding.add(Row(row, _refs(row), **_kinds(rule, row)))
    except (QueryProblem, ValueError) as error:
        return Answer(rule, "broken", [], str(error))
    groups = folding.groups()
    return Answer(rule, "found" if groups else "clear", [row for group in groups for row in group.rows], "", groups)


def _refs(row: dict[str, Any]) -> list[int]:
    """The evidence of a row: `ref` and `refs`, each a number or several behind commas. Raises ValueError, one line."""
    ref = row.get("ref")
    if type(ref) is int and 0 <= ref < _LARGEST_REF and row.get("refs") is None:  # as of most rules with many rows
        return [ref]
    parts: list[str] = []
    for key in ("ref", "refs"):
        value = row.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            parts += [part for part in str(value).replace(" ", "").split(",") if part]
    if wrong := next((part for part in parts if not _REF.fullmatch(part)), None):
        raise ValueError(f"column ref holds {wrong[:40]!r}, which is no number of evidence")
    if not parts:
        raise ValueError("a row without ref shows no evidence")
    return list(dict.fromkeys(map(int, parts)))


def _kinds(rule: Rule, row: dict[str, Any]) -> dict[str, str]:
    """Severity, confidence, role and action of a row. Raises ValueError, one line, where a column cannot be shown."""
    kinds = {key: row.get(key) or getattr(rule, key) for key in OVERRIDES}
    kinds["severity"] = rule.decided or kinds["severity"]
    if (
        _PLAIN.issuperset(map(type, row.values()))
        and all(kinds[key] in allowed for key, allowed in OVERRIDES.items())
        and not isinstance(row.get("host"), int)
    ):
        return kinds
    shown = {**{key: kinds[key] in allowed for key, allowed in OVERRIDES.items()}, **_showable(row)}
    if wrong := next((key for key, fits in shown.items() if not fits), None):
        raise ValueError(f"column {wrong} holds {str(row.get(wrong))[:40]!r}")
    return kinds


def _showable(row: dict[str, Any]) -> dict[str, bool]:
    """Column -> whether a report can hold its value."""
    fits = {
        key: not isinstance(value, bytes) and not (isinstance(value, float) and not math.isfinite(value))
        for key, value in row.items()
        if key not in OVERRIDES
    }
    return {**fits, "host": isinstance(row.get("host"), str | None)}


def ask_all(rules: Iterable[Rule], facts: "Facts") -> list[Answer]:
    """Ask every rule; one that breaks does not stop the rest."""
    from nccl_doctor.facts.guard import signals_noted

    looked, present = facts.covered(), Present(facts)
    with signals_noted():
        answers = [ask(rule, facts, looked, present=present) for rule in rules]
    return hand_over(answers)
