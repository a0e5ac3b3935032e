"""The text of a new rule file: all keys, with FILL IN where only its author can know."""

import re
from collections import Counter
from collections.abc import Iterable

from nccl_doctor import __version__
from nccl_doctor.rules.rule_text import rule_text
from nccl_doctor.rules.schema import GROUPS, MARK, NAME, Rule, RuleProblem

_OWN_PREFIX = "SITE"  # ids of rules in a group that is not ours


def new_rule(group: str, name: str, rules: Iterable[Rule]) -> str:
    """A rule file for this group with the next free id. Raises RuleProblem where a rule cannot be called so."""
    rules = list(rules)
    if not NAME.fullmatch(name):
        raise RuleProblem(f"{name}: a name is kebab-case, such as port-event-example")
    if taken := next((rule for rule in rules if name in rule.keys), None):
        raise RuleProblem(f"{name} is already used by {taken.path}")
    return rule_text(
        {
            "id": _next_id(group, rules),
            "name": name,
            "title": f"{MARK}: the fault in plain words",
            "severity": "warning",
            "role": "cause",
            "confidence": "likely",
            "since": ".".join(__version__.split(".")[:2]),
            "needs": ["message"],
            "query": f"SELECT host, rank, text, ref FROM message WHERE kind = '{MARK}'",
            "message": "{host}: {text}",
            "why": f"{MARK}: what that means for the job",
            "fix": f"{MARK}: what to type next, for which versions, what it costs, how to undo it",
            "references": [f"{MARK}: source file, manual page or document"],
            "example": [
                {"name": "the fault", "log": f"{MARK}: lines that show it", "expect": [{"host": MARK}]},
                {"name": "no fault", "log": f"{MARK}: lines that look like it and are harmless", "expect": []},
            ],
        }
    )


def _next_id(group: str, rules: Iterable[Rule]) -> str:
    """The prefix that most rules of the group have, and the number after the last one of that prefix."""
    ids = [key for rule in rules for key in (rule.id, *rule.aliases) if re.fullmatch(r"[A-Z]+\d{3}", key)]
    prefixes = Counter(rule.id[:-3] for rule in rules if rule.group == group and group in GROUPS)
    prefix = prefixes.most_common(1)[0][0] if prefixes else _OWN_PREFIX
    return f"{prefix}{max((int(key[-3:]) for key in ids if key[:-3] == prefix), default=0) + 1:03d}"
