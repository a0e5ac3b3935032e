"""Templates of rules: sentences in which `{column}` stands for a column of the rule's query."""

import re
import string
from collections.abc import Iterator
from typing import Any

_PLACEHOLDER = re.compile(r"(\brank )?\{([a-z_][a-z0-9_]*)(?::([^{}\s]+))?\}")


def fill_template(template: str, values: dict[str, Any]) -> str:
    """The template with the columns of a row. An unknown name stays as it is, and so does YAML: `{name: shm}`."""
    return _PLACEHOLDER.sub(lambda match: _filled(match, values), template)


def placeholders(template: str) -> set[str]:
    """The columns that a template names."""
    return {match[2] for match in _PLACEHOLDER.finditer(template)}


def template_problems(text: str) -> Iterator[str]:
    """What is wrong with the placeholders of a message, one sentence each."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        yield str(error)
        return
    for _, name, spec, conversion in parts:
        if name is not None and (not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or conversion or (spec and "{" in spec)):
            yield f"placeholder {{{name}}} must be the plain name of a column"


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


def _plain(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:g}"
    return "".join(c if c.isprintable() else " " for c in str(value))[:400]
