"""What a rule file holds: its keys as dataclasses, and the checks that need nothing but the file itself."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from nccl_doctor.common.levels import ACTIONS, CONFIDENCES, ROLES, SEVERITIES
from nccl_doctor.rules.templates import template_problems

GROUPS = (
    "resource", "node-host", "hardware", "node-gpu", "cuda", "node-software", "version", "desync", "network",
    "node-network", "config", "input", "peer", "scheduler", "performance", "context",
)  # fmt: skip
NODE = "node-"  # groups of rules about a node itself; `preflight` reads no others
_ID = re.compile(r"[A-Z]{2,6}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
OVERRIDES = {"severity": SEVERITIES, "confidence": CONFIDENCES, "role": ROLES, "action": ACTIONS}


class RuleProblem(Exception):
    """A rule file that breaks its own rules: one line that names the file."""


@dataclass
class Example:
    """A log or rows of facts, and what the rule must say about them."""

    name: str
    expect: list[dict[str, Any]]
    log: str = ""
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass
class Rule:
    """One rule file; the keys are described in CONTRIBUTING."""

    id: str
    name: str
    title: str
    severity: str
    role: str
    confidence: str
    since: str
    needs: list[str]
    query: str
    message: str
    why: str
    fix: str
    params: dict[str, Any] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    fallback: bool = False  # kept only where no other rule found something as bad
    action: str = "warn"  # preflight: drain = the node is broken, job = this job cannot work here
    shared: bool = False  # preflight: the cause may lie outside the node, so that it drains only when it lasts
    until_reset: bool = False  # preflight: drains until the node boots, the GPU is reset or an administrator forgets it
    example: list[Example] = field(default_factory=list)
    group: str = ""
    path: Path = Path()
    decided: str = ""  # severity that the configuration of the site sets, above what rows say

    @property
    def order(self) -> int:
        """Place of the group among the classes of causes."""
        return GROUPS.index(self.group) if self.group in GROUPS else len(GROUPS)


def parse_rule(data: dict[str, Any], path: Path) -> Rule:
    """The rule of the content of a file. Raises RuleProblem on anything that is not as it must be."""
    known = {f.name for f in fields(Rule)} - {"group", "path", "decided"}
    required = {f.name for f in fields(Rule) if f.default is MISSING and f.default_factory is MISSING}
    if unknown := set(data) - known:
        raise RuleProblem(f"{path}: unknown key {', '.join(sorted(unknown))}")
    if absent := required - set(data):
        raise RuleProblem(f"{path}: key {', '.join(sorted(absent))} is missing")
    rule = build_rule(data, path)
    _check(rule)
    return rule


def build_rule(data: dict[str, Any], path: Path) -> Rule:
    """The same, of content that was checked before."""
    try:
        examples = [Example(**example) for example in data.get("example", [])]
    except TypeError as error:
        raise RuleProblem(f"{path}: example: {error}") from None
    return Rule(**{**data, "example": examples}, group=path.parent.name, path=path)


def _check(rule: Rule) -> None:
    from nccl_doctor.facts.store import by_name  # slow to import, and not needed for rules that are kept

    problems = []
    if not _ID.fullmatch(rule.id):
        problems.append(f"id {rule.id!r} is not LETTERS and three digits")
    if not _NAME.fullmatch(rule.name) or rule.name != rule.path.stem:
        problems.append("name must be kebab-case and the name of the file")
    for key in ("fallback", "shared", "until_reset"):
        if not isinstance(getattr(rule, key), bool):
            problems.append(f"{key} must be true or false")
    for key, allowed in OVERRIDES.items():
        if getattr(rule, key) not in allowed:
            problems.append(f"{key} must be one of {', '.join(allowed)}")
    if len(rule.title) > 80:
        problems.append("title is longer than 80 characters")
    if wrong := set(rule.needs) - set(by_name()):
        problems.append(f"needs names no table: {', '.join(sorted(wrong))}")
    if not rule.query.lstrip().upper().startswith(("SELECT", "WITH")):
        problems.append("query must be a SELECT")
    for example in rule.example:
        if bool(example.log) == bool(example.rows):
            problems.append(f"example {example.name!r} needs either log or rows")
    problems += [f"message: {problem}" for problem in template_problems(rule.message)]
    if problems:
        raise RuleProblem(f"{rule.path}: {'; '.join(problems)}")


def lint(rule: Rule) -> Iterator[str]:
    """What a rule that loads still lacks, one sentence each."""
    if not any(example.expect for example in rule.example):
        yield "no example in which the rule must fire"
    if not any(not example.expect for example in rule.example):
        yield "no example in which the rule must be silent"
    if not rule.references:
        yield "no reference"
    names = [example.name for example in rule.example]
    if len(set(names)) < len(names):
        yield "two examples have the same name"
