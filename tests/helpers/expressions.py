"""All regular expressions of the package, and how each is used."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import nccl_doctor
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log.line_patterns import load
from nccl_doctor.node.host import kernel_forms
from nccl_doctor.rules import loader

PACKAGE = Path(nccl_doctor.__file__).parent
ANCHORED = {"match", "fullmatch"}
CALLS = ANCHORED | {"search", "sub", "subn", "split", "findall", "finditer"}


class Expression(NamedTuple):
    """A regular expression, where it is written and how it is asked."""

    place: str
    regex: str
    flags: int
    searched: bool  # tried at each place of a text, not only at its beginning


def _made(place: str, pattern: re.Pattern[Any], methods: set[str]) -> Expression:
    """An expression that was compiled; what is used in no known way counts as searched."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE | (0 if isinstance(pattern.pattern, str) else re.ASCII)
    whole = f"(?:{text})\\Z" if methods == {"fullmatch"} else text
    return Expression(place, whole, flags, not methods or not methods <= ANCHORED)


def _patterns(value: Any, depth: int = 3) -> Iterator[tuple[re.Pattern[Any], str]]:
    """The expressions in a value of a module, and the method that is bound, if one is."""
    bound = getattr(value, "__self__", None)
    if isinstance(value, re.Pattern):
        yield value, ""
    elif isinstance(bound, re.Pattern):
        yield bound, value.__name__
    elif depth and isinstance(value, dict):
        for part in (*value, *value.values()):
            yield from _patterns(part, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _patterns(part, depth - 1)


@cache
def _trees() -> dict[str, ast.Module]:
    """Name of a module -> its syntax tree."""
    names = [
        one.name for one in pkgutil.walk_packages([str(PACKAGE)], "nccl_doctor.") if not one.name.endswith("__main__")
    ]
    files = {name: PACKAGE.parent / Path(*name.split(".")) for name in names}
    return {
        name: ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
        for name, path in files.items()
    }


@cache
def _methods() -> dict[str, set[str]]:
    """Name of a variable -> the methods of expressions that are called on it anywhere."""
    found: dict[str, set[str]] = {}
    for tree in _trees().values():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in CALLS
                and isinstance(node.value, ast.Name | ast.Attribute)
            ):
                name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                found.setdefault(name, set()).add(node.attr)
    return found


def of_modules() -> Iterator[Expression]:
    """Those that a module keeps in a variable."""
    for name in _trees():
        module = importlib.import_module(name)
        for variable, value in vars(module).items():
            for pattern, bound in _patterns(value):
                yield _made(f"{name}.{variable}", pattern, {bound} if bound else _methods().get(variable, set()))


def of_calls() -> Iterator[Expression]:
    """Those that are written where they are used: `re.search("…", text)`."""
    for name, tree in _trees().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CALLS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and isinstance(node.args[0], ast.Constant)
            ):
                flags = [
                    ast.unparse(one)
                    for one in (*node.args[2:], *(key.value for key in node.keywords))
                    if "re." in ast.unparse(one)
                ]
                text = node.args[0].value
                value = sum(
                    int(getattr(re, flag.strip().removeprefix("re."))) for one in flags for flag in one.split("|")
                )
                yield _made(f"{name}:{node.lineno}", re.compile(text, value), {node.func.attr})


def of_lines() -> Iterator[Expression]:
    """The line patterns."""
    for pattern in load():
        if pattern.regex:
            yield Expression(f"pattern {pattern.name}", pattern.regex, 0, pattern.where == "text")


def of_rules() -> Iterator[Expression]:
    """What the queries of rules ask with REGEXP."""
    for rule in loader.load_rules():
        for text in _asked(rule.query):
            yield Expression(f"rule {rule.id}", text, 0, True)


def of_catalogue() -> Iterator[Expression]:
    """The templates of the message catalogue."""
    for message in catalogue().messages:
        for number, pattern in enumerate(message.templates):
            yield Expression(f"message {message.key} {number}", pattern.pattern, 0, False)


def of_derivations() -> Iterator[Expression]:
    """What the queries of the package ask with REGEXP."""
    for name, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for text in _asked(node.value):
                    yield Expression(f"{name}:{node.lineno}", text, 0, True)


def _asked(query: str) -> list[str]:
    """The expressions in a query."""
    return [text.replace("''", "'") for text in re.findall(r"REGEXP\s+'((?:[^']|'')*)'", query)]


def of_kernel_forms() -> Iterator[Expression]:
    """The forms of kernel messages."""
    for kind, text in kernel_forms._FORMS.items():
        yield Expression(f"kernel form {kind}", text, 0, False)


def once(expressions: Iterable[Expression]) -> list[Expression]:
    """The same, without those that are imported from another module."""
    return list({(one.regex, one.flags, one.searched): one for one in expressions}.values())
