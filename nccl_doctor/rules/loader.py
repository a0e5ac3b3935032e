"""From rule files to rules: the shipped ones, those of further folders, or the one of a given name."""

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common import trusted
from nccl_doctor.common.parse_cache import remembered
from nccl_doctor.facts import views
from nccl_doctor.rules import row_sources, schema, symptoms, templates
from nccl_doctor.rules.folder import rule_files, shipped_folder
from nccl_doctor.rules.schema import Rule, RuleProblem, build_rule, parse_rule

_TOLD = 20  # files of a site that cannot be used and are named
_CODE = [Path(str(module.__file__)) for module in (schema, symptoms, templates, row_sources, views)]


def read_rule(path: Path) -> Rule:
    """Read one rule file. Raises RuleProblem on anything that is not as it must be."""
    return parse_rule(_read_toml(path), path)


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # most starts read only what is kept

    try:
        return tomllib.loads(trusted.read(path).decode("utf-8"))
    except OSError as error:
        raise RuleProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except RecursionError:
        raise RuleProblem(f"{path}: lists or tables are nested too deeply") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise RuleProblem(f"{path}: {' '.join(str(error).split())[:200]}") from None


class Usable(NamedTuple):
    """The rules that can be asked, and one line for each rule file of a site that cannot."""

    rules: tuple[Rule, ...]
    problems: tuple[str, ...]


def load_rules(directories: tuple[Path, ...] = (), groups: str = "") -> tuple[Rule, ...]:
    """The shipped rules whose group starts with `groups`, and those of further folders.

    Raises RuleProblem on a broken file or an id or name used twice.
    """
    found = load_usable(directories, groups)
    if found.problems:
        raise RuleProblem(found.problems[0])
    return found.rules


@cache
def load_usable(directories: tuple[Path, ...] = (), groups: str = "", *, without: str | None = None) -> Usable:
    """The same, without the files of further folders that are broken or use an id or name of another rule.

    Of the shipped ones it leaves out groups that start with `without`.
    """
    folders = sorted(path for path in shipped_folder().iterdir() if path.is_dir() and path.name.startswith(groups))
    ours = [folder for folder in folders if without is None or not folder.name.startswith(without)]
    rules: list[Rule] = []
    seen: dict[str, Path] = {}
    problems: list[str] = []
    for rule in (rule for folder in ours for rule in _kept(folder)):
        _claim(rule, seen)
        rules.append(rule)
    problems += [
        f"{folder}: permission denied"
        for folder in directories
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    ]
    for path in (path for folder in directories for path in rule_files(folder)):
        try:
            rule = read_rule(path)
            _check_query(rule)
            _claim(rule, seen)
        except RuleProblem as problem:
            problems.append(str(problem))
        else:
            rules.append(rule)
    if len(problems) > _TOLD:
        problems[_TOLD:] = [f"{len(problems) - _TOLD:,} further files, which `nccl-doctor rules check` names"]
    return Usable(tuple(rules), tuple(problems))


def _check_query(rule: Rule) -> None:
    """Raises RuleProblem where a query cannot be run or does not return what templates and examples name."""
    from nccl_doctor.facts.store import Facts  # slow to import, and only rules of a site are checked at every start
    from nccl_doctor.rules.query_check import query_problems

    if problems := list(query_problems(rule, Facts())):
        raise RuleProblem(f"{rule.path}: {'; '.join(problems)}")


def _claim(rule: Rule, seen: dict[str, Path]) -> None:
    """Keep the id, name and aliases of a rule for it. Raises RuleProblem where another rule has one of them."""
    if taken := next((key for key in rule.keys if key in seen), None):
        raise RuleProblem(f"{rule.path}: {taken} is already used by {seen[taken]}")
    seen.update(dict.fromkeys(rule.keys, rule.path))


@cache
def _kept(folder: Path) -> list[Rule]:
    """The rules of one of our groups, checked when they were read for the first time."""
    files = sorted(folder.glob("*.toml"))

    def make() -> list[dict[str, Any]]:
        return [
            {"row_sources": read_rule(file).row_sources, **schema.with_examples_as_text(_read_toml(file))}
            for file in files
        ]

    entries = remembered(f"rules-{folder.name}", [*files, *_CODE], make)
    return [build_rule(data, file, is_shipped=True) for data, file in zip(entries, files, strict=True)]


def find_rule(key: str, directories: Sequence[Path] = ()) -> Rule | None:
    """The rule of this id or name; reads only its own file."""
    wanted = key.strip()
    ours = set(rule_files(shipped_folder()))
    files = [*sorted(ours), *(path for folder in directories for path in rule_files(folder))]
    either = f"(?:{re.escape(wanted)}|{re.escape(wanted.upper())})"
    declared = re.compile(rf'^(?:id = "{either}"|aliases = \[[^\]]*"{either}")', re.MULTILINE)
    found = next((path for path in files if path.stem == wanted.lower()), None)
    found = found or next((path for path in files if declared.search(_text(path))), None)
    if found is None:
        return None
    if found not in ours:
        return read_rule(found)
    return build_rule(schema.with_examples_as_text(_read_toml(found)), found, is_shipped=True)


def shipped_names() -> list[str]:
    """The names of our rules; no file is read for them."""
    return sorted(path.stem for path in rule_files(shipped_folder()))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
