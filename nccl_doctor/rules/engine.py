"""The rule engine: one TOML file a rule, a SELECT over facts, and the words that go with its rows.

A rule answers found, clear, skipped (a table it needs was never looked at) or broken (its query failed). A rule file is
data: its query runs under the guard of `Facts.sql`, its templates name columns and nothing else.
"""

import math
import os
import re
import string
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_doctor.common.levels import ACTIONS, CONFIDENCES, ROLES, SEVERITIES
from nccl_doctor.common.parse_cache import remembered

if TYPE_CHECKING:
    from nccl_doctor.facts.store import Facts

GROUPS = (
    "resource", "node-host", "hardware", "node-gpu", "cuda", "node-software", "version", "desync", "network",
    "node-network", "config", "input", "peer", "scheduler", "performance", "context",
)  # fmt: skip
NODE = "node-"  # groups of rules about a node itself; `preflight` reads no others
_SHIPPED = Path(__file__).parent / "data"
_ID = re.compile(r"[A-Z]{2,6}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OVERRIDES = {"severity": SEVERITIES, "confidence": CONFIDENCES, "role": ROLES, "action": ACTIONS}


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
    example: list[Example] = field(default_factory=list)
    group: str = ""
    path: Path = Path()
    decided: str = ""  # severity that the configuration of the site sets, above what rows say

    @property
    def examples(self) -> list[Example]:
        return self.example

    @property
    def order(self) -> int:
        """Place of the group among the classes of causes."""
        return GROUPS.index(self.group) if self.group in GROUPS else len(GROUPS)


class Row(NamedTuple):
    """One bad thing that a rule found."""

    values: dict[str, Any]
    refs: list[int]
    message: str
    severity: str
    role: str
    confidence: str
    action: str


class Answer(NamedTuple):
    """What a rule said: outcome, its rows, and why it was skipped or broke."""

    rule: Rule
    outcome: str
    rows: list[Row]
    reason: str


def shipped() -> Path:
    """The folder of the rules that belong to the package."""
    return _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parent.parent.parent / "rules"


def read(path: Path) -> Rule:
    """Read one rule file. Raises RuleProblem on anything that is not as it must be."""
    rule = _rule(_content(path), path)
    _check(rule)
    return rule


def _content(path: Path) -> dict[str, Any]:
    """What a file says, with all keys that a rule needs and no others."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RuleProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuleProblem(f"{path}: {error}") from None
    known = {f.name for f in fields(Rule)} - {"group", "path", "decided"}
    required = {f.name for f in fields(Rule) if f.default is MISSING and f.default_factory is MISSING}
    if unknown := set(data) - known:
        raise RuleProblem(f"{path}: unknown key {', '.join(sorted(unknown))}")
    if absent := required - set(data):
        raise RuleProblem(f"{path}: key {', '.join(sorted(absent))} is missing")
    return data


def _rule(data: dict[str, Any], path: Path) -> Rule:
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
    for key, allowed in _OVERRIDES.items():
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
    problems += [f"message: {problem}" for problem in _template_problems(rule.message)]
    if problems:
        raise RuleProblem(f"{rule.path}: {'; '.join(problems)}")


def _template_problems(text: str) -> Iterator[str]:
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        yield str(error)
        return
    for _, name, spec, conversion in parts:
        if name is not None and (not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or conversion or (spec and "{" in spec)):
            yield f"placeholder {{{name}}} must be the plain name of a column"


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


class Usable(NamedTuple):
    """The rules that can be asked, and one line for each rule file of a site that cannot."""

    rules: tuple[Rule, ...]
    problems: tuple[str, ...]


def load(directories: tuple[Path, ...] = (), groups: str = "") -> tuple[Rule, ...]:
    """The shipped rules whose group starts with `groups`, and those of further folders.

    Raises RuleProblem on a broken file or an id or name used twice.
    """
    found = usable(directories, groups)
    if found.problems:
        raise RuleProblem(found.problems[0])
    return found.rules


@cache
def usable(directories: tuple[Path, ...] = (), groups: str = "") -> Usable:
    """The same, without the files of further folders that are broken or use an id or name of another rule."""
    ours = sorted(folder for folder in shipped().iterdir() if folder.name.startswith(groups))
    rules: list[Rule] = []
    seen: dict[str, Path] = {}
    problems: list[str] = []
    for rule in (rule for folder in ours for rule in _kept(folder)):
        _claim(rule, seen)
        rules.append(rule)
    problems += [f"{folder}: permission denied" for folder in directories if not os.access(folder, os.R_OK | os.X_OK)]
    for path in (path for folder in directories for path in sorted(folder.rglob("*.toml"))):
        try:
            rule = read(path)
            _claim(rule, seen)
        except RuleProblem as problem:
            problems.append(str(problem))
        else:
            rules.append(rule)
    return Usable(tuple(rules), tuple(problems))


def _claim(rule: Rule, seen: dict[str, Path]) -> None:
    """Keep the id, name and aliases of a rule for it. Raises RuleProblem where another rule has one of them."""
    keys = (rule.id, rule.name, *rule.aliases)
    if taken := next((key for key in keys if key in seen), None):
        raise RuleProblem(f"{rule.path}: {taken} is already used by {seen[taken]}")
    seen.update(dict.fromkeys(keys, rule.path))


def _kept(folder: Path) -> list[Rule]:
    """The rules of one of our groups, checked when they were read for the first time."""
    files = sorted(folder.glob("*.toml"))

    def make() -> list[dict[str, Any]]:
        for file in files:
            read(file)
        return [_content(file) for file in files]

    entries = remembered(f"rules-{folder.name}", [*files, Path(__file__)], make)
    return [_rule(data, file) for data, file in zip(entries, files, strict=True)]


def find(key: str, directories: Sequence[Path] = ()) -> Rule | None:
    """The rule of this id or name, reading only the file that it stands in."""
    wanted = key.strip()
    ours = list(shipped().rglob("*.toml"))
    files = [*ours, *(path for folder in directories for path in folder.rglob("*.toml"))]
    declared = re.compile(
        rf'^(?:id = "{re.escape(wanted.upper())}"|aliases = \[.*"{re.escape(wanted)}".*)', re.MULTILINE
    )
    found = next((path for path in files if path.stem == wanted.lower()), None)
    found = found or next((path for path in files if declared.search(path.read_text("utf-8", "replace"))), None)
    if found is None:
        return None
    return _rule(_content(found), found) if found in ours else read(found)


def _plain(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:g}"
    return "".join(c if c.isprintable() else " " for c in str(value))[:400]


def words(template: str, values: dict[str, Any]) -> str:
    """Fill a template with the columns of a row; an unknown name stays as it is, and so does YAML: `{name: shm}`."""
    return re.sub(r"(\brank )?\{([a-z_][a-z0-9_]*)(?::([^{}\s]+))?\}", lambda m: _filled(m, values), template)


def _filled(match: re.Match[str], values: dict[str, Any]) -> str:
    before, name, spec = match.groups()
    if name not in values:
        return match[0]
    if before and values[name] is None:
        return "a rank"
    return (before or "") + _format(values[name], spec)


def _format(value: Any, spec: str | None) -> str:
    if spec and isinstance(value, (int, float)):
        try:
            return format(value, spec)
        except ValueError:
            pass
    return _plain(value)


def ask(rule: Rule, facts: "Facts", looked: set[str] | None = None, seconds: float = 10.0) -> Answer:
    """Ask one rule."""
    from nccl_doctor.facts.store import QueryProblem

    lacking = [table for table in rule.needs if table not in (looked if looked is not None else facts.looked())]
    if lacking:
        return Answer(rule, "skipped", [], f"no facts in table {', '.join(lacking)}")
    try:
        columns, found = facts.sql(rule.query, limit=5000, params=rule.params, seconds=seconds)
    except QueryProblem as error:
        return Answer(rule, "broken", [], str(error))
    rows = []
    for values in found:
        row = dict(zip(columns, values, strict=True))
        try:
            refs, kinds = _refs(row), _kinds(rule, row)
        except ValueError as error:
            return Answer(rule, "broken", [], str(error))
        rows.append(Row(row, refs, words(rule.message, row), **kinds))
    return Answer(rule, "found" if rows else "clear", rows, "")


def _refs(row: dict[str, Any]) -> list[int]:
    """The evidence of a row: `ref` and `refs`, each a number or several behind commas. Raises ValueError, one line."""
    parts: list[str] = []
    for key in ("ref", "refs"):
        value = row.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            parts += [part for part in str(value).replace(" ", "").split(",") if part]
    if wrong := next((part for part in parts if not re.fullmatch(r"[0-9]{1,18}", part)), None):
        raise ValueError(f"column ref holds {wrong[:40]!r}, which is no number of evidence")
    if not parts:
        raise ValueError("a row without ref shows no evidence")
    return list(dict.fromkeys(map(int, parts)))


def _kinds(rule: Rule, row: dict[str, Any]) -> dict[str, str]:
    """Severity, confidence, role and action of a row. Raises ValueError, one line, where a column cannot be shown."""
    kinds = {key: row.get(key) or getattr(rule, key) for key in _OVERRIDES}
    kinds["severity"] = rule.decided or kinds["severity"]
    shown = {**{key: kinds[key] in allowed for key, allowed in _OVERRIDES.items()}, **_showable(row)}
    if wrong := next((key for key, fits in shown.items() if not fits), None):
        raise ValueError(f"column {wrong} holds {str(row.get(wrong))[:40]!r}")
    return kinds


def _showable(row: dict[str, Any]) -> dict[str, bool]:
    """Column -> whether a report can hold its value."""
    fits = {
        key: not isinstance(value, bytes) and not (isinstance(value, float) and not math.isfinite(value))
        for key, value in row.items()
        if key not in _OVERRIDES
    }
    return {**fits, "host": isinstance(row.get("host"), str | None)}


def ask_all(rules: Iterable[Rule], facts: "Facts") -> list[Answer]:
    """Ask every rule; one that breaks does not stop the rest."""
    looked = facts.looked()
    return [ask(rule, facts, looked) for rule in rules]
