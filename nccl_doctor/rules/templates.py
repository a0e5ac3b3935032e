"""Templates of rules: sentences in which `{column}` is replaced by a column of the rule's query.

A noun after a number agrees with it: `{ranks} ranks are missing` becomes `1 rank is missing`.
"""

import re
import string
from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.printable import printable

_NOUNS = (
    "allreduces|bridges|bytes|cards|cases|channels|checks|collectives|cores|CPUs|cycles|devices|domains|drives|errors|files|"
    "findings|gaps|GPUs|groups|hosts|interfaces|iterations|jobs|kernels|lanes|lines|links|members|minutes|negotiations|nodes|"
    "NVLinks|NVSwitches|operations|others|pages|pairs|paths|pauses|peers|pods|ports|processes|processors|rails|ranks|replays|"
    "reports|rows|samples|seconds|sizes|slots|steps|switches|tasks|tensors|threads|times|traces|transfers|values|workers"
)
_VERBS = {
    "are": "is",
    "were": "was",
    "have": "has",
    "wait": "waits",
    "share": "shares",
    "show": "shows",
    "say": "says",
    "idle": "idles",
    "use": "uses",
    "call": "calls",
    "report": "reports",
    "need": "needs",
    "run": "runs",
    "fail": "fails",
    "stop": "stops",
    "do": "does",
}
# Words before a noun: adjectives of any case. A verb or a preposition there means that the noun is not what is counted.
_ADJECTIVES = r"(?:(?!(?:is|was|are|were|has|had|have|of|on|in|to|for|from|with|and|or|by|at)\b)[A-Za-z][\w-]* ){0,2}?"
_PLACEHOLDER = compiled(
    r"(\b[Rr]ank )?\{([a-z_][a-z0-9_]*)(?::([^{}\s]+))?\}"
    rf"(?P<counted> {_ADJECTIVES}(?:{_NOUNS})\b(?P<of> of [A-Za-z]+)?(?P<verb> (?:{'|'.join(_VERBS)})\b)?)?"
)

# How a number may be written. Others are left out: `{x:999999999d}` would be a gigabyte, `{x:c}` any character.
_SPEC = compiled(r",?(?:\.[0-9]{1,2})?[defg%]?")


def fill_template(template: str, values: dict[str, Any]) -> str:
    """Returns the template with the columns of a row. An unknown name is left unchanged, and so is YAML: `{name: shm}`."""
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
        elif spec and not _SPEC.fullmatch(spec):
            yield f"placeholder {{{name}:{spec[:20]}}} must be written as one of {{{name}:.1f}}, {{{name}:,d}}, {{{name}:g}}"


def _filled(match: re.Match[str], values: dict[str, Any]) -> str:
    before, name, spec, counted = match[1], match[2], match[3], match["counted"] or ""
    if name not in values:
        return match[0]
    if before and values[name] is None:
        return ("A rank" if before[0] == "R" else "a rank") + counted
    if counted and values[name] is None:
        return (before or "") + "some" + counted
    number = _format(values[name], spec)
    return (
        (before or "")
        + number
        + (_singular(counted, match["of"] or "", match["verb"] or "") if number == "1" else counted)
    )


def _singular(phrase: str, of: str, verb: str) -> str:
    """` other pairs of ranks are` -> ` other pair of ranks is`; ` of ranks` and ` are` are the last parts of the phrase."""
    noun = phrase.removesuffix(of + verb)
    noun = noun[:-2] if noun.endswith(("sses", "ches")) else noun[:-1]
    return noun + of + (f" {_VERBS[verb[1:]]}" if verb else "")


def _format(value: Any, spec: str | None) -> str:
    if spec and _SPEC.fullmatch(spec) and isinstance(value, (int, float)):
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
    return printable(str(value), " ")[:400]
