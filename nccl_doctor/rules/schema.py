"""What a rule file holds: its keys as dataclasses, and the checks that need only the file itself."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from nccl_doctor.common.levels import ACTIONS, CONFIDENCES, ROLES, SEVERITIES
from nccl_doctor.rules import symptoms
from nccl_doctor.rules.row_sources import row_sources
from nccl_doctor.rules.templates import placeholders, template_problems

GROUPS = (
    "resource", "node-host", "hardware", "node-gpu", "cuda", "node-software", "version", "desync", "network",
    "node-network", "start", "config", "input", "peer", "message", "scheduler", "performance", "context",
)  # fmt: skip
NODE = "node-"  # groups of rules about a node itself; `preflight` reads no others
_ID = re.compile(r"[A-Z]{2,6}\d{3}")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MARK = "FILL IN"  # what `rules new` leaves to the author
SET_BY_LOADER = ("group", "path", "decided", "row_sources", "examples", "is_shipped")
OVERRIDES = {"severity": SEVERITIES, "confidence": CONFIDENCES, "role": ROLES, "action": ACTIONS}
Scalar = str | int | float | bool


class RuleProblem(Exception):
    """A rule file that breaks its own rules: one line that names the file."""


@dataclass
class Example:
    """A log or rows of facts, and what the rule must say about them."""

    name: str
    expect: list[dict[str, Scalar]]
    log: str = ""
    rows: dict[str, list[dict[str, Scalar]]] = field(default_factory=dict)


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
    params: dict[str, Scalar] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    symptom_of: list[str] = field(default_factory=list)  # symptom classes that it belongs to
    explains: list[str] = field(default_factory=list)  # symptom classes and names of rules that it accounts for
    aliases: list[str] = field(default_factory=list)
    fallback: bool = False  # kept only where no other rule found something as bad
    unclaimed: bool = False  # leaves out rows whose evidence is that of another rule's finding too
    generic: bool = False  # leaves out rows whose evidence a message of the catalogue reports as an error of its own
    action: str = "warn"  # preflight: drain = the node is broken, job = this job cannot work here
    shared: bool = False  # preflight: the cause may lie outside the node, so that it drains only when it lasts
    until_reset: bool = False  # preflight: drains until the node boots, the GPU is reset or an administrator forgets it
    examples: str = "[]"  # JSON, because only checks need them
    group: str = ""
    path: Path = Path()
    row_sources: list[list[str]] = field(default_factory=lambda: [[]])  # what `rules.row_sources` says of the query
    is_shipped: bool = field(default=False, compare=False)  # one of ours, not of a site
    decided: str = ""  # severity that the configuration of the site sets, above what rows say

    @cached_property
    def example(self) -> list[Example]:
        """The examples of the file."""
        return [Example(**example) for example in json.loads(self.examples)]

    @property
    def order(self) -> int:
        """Place of the group among the classes of causes."""
        return GROUPS.index(self.group) if self.group in GROUPS else len(GROUPS)

    @property
    def keys(self) -> tuple[str, ...]:
        """What a user may call it: id, name and former ones."""
        return self.id, self.name, *self.aliases


def parse_rule(data: Mapping[str, Any], path: Path) -> Rule:
    """The rule of the content of a file. Raises RuleProblem on anything that is not as it must be."""
    problems = list(_shape_problems(data, Rule))
    examples = data.get("example", [])
    if not problems:
        problems += [
            f"example {number}: {problem}"
            for number, example in enumerate(examples, 1)
            for problem in _shape_problems(example, Example)
        ]
    if not problems:
        rule = build_rule({**with_examples_as_text(data), "row_sources": row_sources(data["query"])}, path)
        problems = list(_content_problems(rule))
    if problems:
        raise RuleProblem(f"{path}: {'; '.join(problems)}")
    return rule


def build_rule(data: Mapping[str, Any], path: Path, *, is_shipped: bool = False) -> Rule:
    """The rule of content that was checked before, whose examples are one text."""
    return Rule(**data, group=path.parent.name, path=path, is_shipped=is_shipped)


def with_examples_as_text(data: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file with its examples as `build_rule` wants them."""
    rest = {name: value for name, value in data.items() if name != "example"}
    return {**rest, "examples": json.dumps(data.get("example", []), ensure_ascii=False)}


def _shape_problems(data: Mapping[str, Any], shape: type[Rule] | type[Example]) -> Iterator[str]:
    """Keys that are unknown, missing or of the wrong type."""
    types = get_type_hints(shape) | ({"example": list[Example]} if shape is Rule else {})
    known = {name: type_ for name, type_ in types.items() if name not in SET_BY_LOADER}
    needed = {key.name for key in fields(shape) if key.default is MISSING and key.default_factory is MISSING}
    for name in sorted(set(data) - set(known)):
        yield f"unknown key {name[:40]!r}"
    for name, type_ in known.items():
        if name in data:
            if not _fits(data[name], type_):
                yield f"{name} must be {_SHAPES[_outline(type_)]}"
        elif name in needed:
            yield f"key {name} is missing"


_SHAPES = {
    "str": "a text",
    "bool": "true or false",
    "list[str]": "a list of texts",
    "list[Example]": "written as [[example]] tables",
    "dict[Scalar]": "a table of texts and numbers",
    "list[dict[Scalar]]": "a list of rows: { column = value, … }",
    "dict[list[dict[Scalar]]]": "given as rows.TABLE = [{ column = value, … }]",
}


def _outline(type_: Any) -> str:
    if type_ == Scalar:
        return "Scalar"
    return f"{get_origin(type_).__name__}[{_outline(get_args(type_)[-1])}]" if get_origin(type_) else type_.__name__


def _fits(value: Any, type_: Any) -> bool:
    if type_ == Scalar:
        return isinstance(value, str) or (isinstance(value, int | float) and abs(value) < 1 << 63)  # NaN is not
    if get_origin(type_) is list:
        return isinstance(value, list) and all(_fits(member, get_args(type_)[0]) for member in value)
    if get_origin(type_) is dict:
        return isinstance(value, dict) and all(_fits(member, get_args(type_)[1]) for member in value.values())
    return isinstance(value, dict if type_ is Example else type_)


def _content_problems(rule: Rule) -> Iterator[str]:
    from nccl_doctor.facts.schema import by_name  # slow to import, and not needed for rules that are kept

    if not _ID.fullmatch(rule.id):
        yield f"id {rule.id[:20]!r} is not LETTERS and three digits"
    if not NAME.fullmatch(rule.name) or rule.name != rule.path.stem:
        yield "name must be kebab-case and the name of the file"
    for key, allowed in OVERRIDES.items():
        if getattr(rule, key) not in allowed:
            yield f"{key} must be one of {', '.join(allowed)}"
    for key in ("title", "query", "message", "why", "fix"):
        if not getattr(rule, key).strip():
            yield f"{key} is empty"
    if len(rule.title) > 80:
        yield "title is longer than 80 characters"
    if placeholders(rule.title):
        yield "title is not a template: it has no placeholders"
    if wrong := set(rule.needs) - set(by_name()):
        yield f"needs names no table: {', '.join(sorted(wrong))}"
    named = [*rule.symptom_of, *(name for name in rule.explains if name.startswith("@"))]
    if wrong := set(named) - set(symptoms.load_classes()):
        yield f"no symptom class is called {', '.join(sorted(wrong))} (rules/_symptoms.toml lists them)"
    if not rule.query.lstrip().upper().startswith(("SELECT", "WITH")):
        yield "query must be a SELECT"
    for example in rule.example:
        if bool(example.log) == bool(example.rows):
            yield f"example {example.name!r} needs either log or rows"
        if not all(example.expect):
            yield f"example {example.name!r} expects {{}}, which asserts nothing: name a column and its value"
    yield from (f"message: {problem}" for problem in template_problems(rule.message))


def lint(rule: Rule) -> Iterator[str]:
    """What a rule that loads still lacks, one sentence each."""
    for key in ("title", "query", "message", "why", "fix", "references"):
        if MARK in str(getattr(rule, key)):
            yield f"{key} is still to be filled in"
    for example in rule.example:
        if MARK in f"{example.log}{example.rows}{example.expect}":
            yield f"example {example.name!r} is still to be filled in"
    if not any(example.expect for example in rule.example):
        yield "no example in which the rule must fire"
    if not any(not example.expect for example in rule.example):
        yield "no example in which the rule must be silent"
    if not rule.references:
        yield "no reference"
    names = [example.name for example in rule.example]
    if len(set(names)) < len(names):
        yield "two examples have the same name"
