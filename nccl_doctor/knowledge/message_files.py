"""Reads the files of the message catalogue and checks them, where the parsed ones are not kept (`catalogue` shows their form)."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from nccl_doctor.common.levels import CONFIDENCES, SEVERITIES
from nccl_doctor.knowledge.known_message import CLASSES, KnownMessage, classes
from nccl_doctor.knowledge.templates import LINE, RECORD, compile_template, fixed_parts, words_of

ROLES = ("origin", "echo")
_SHORTEST = 6  # characters of fixed text without blanks
_LITERAL = 8  # characters of the fixed text by which the lines of a program are found


class CatalogueProblem(Exception):
    """A file of the catalogue that breaks its own rules; the text names file and message."""


def read(files: Iterable[Path]) -> Iterator[KnownMessage]:
    """The messages of these files. Raises CatalogueProblem."""
    keys: set[str] = set()
    for file in files:
        if file == CLASSES:
            continue
        for message in read_file(file):
            if message.key in keys:
                raise CatalogueProblem(f"{file.name}: message {message.key} exists twice")
            keys.add(message.key)
            yield message


def read_file(file: Path) -> Iterator[KnownMessage]:
    """The messages of one file. Raises CatalogueProblem."""
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogueProblem(f"{file.name}: {error}") from None
    families = content.pop("family", {})
    entries = content.pop("message", [])
    for entry in entries:
        name = f"{file.name}: message {entry.get('id', '?')}"
        family = entry.pop("family", None)
        if family is not None and family not in families:
            raise CatalogueProblem(f"{name}: no family {family}")
        values = {"where": LINE, **content, **families.get(family, {}), **entry}
        values["kind"] = values.pop("class", None)
        if isinstance(values.get("match"), str):
            values["match"] = [values["match"]]
        if problem := next(_problems(values), None):
            raise CatalogueProblem(f"{name}: {problem}")
        yield KnownMessage(**values)


def _problems(values: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an entry."""
    known = {key.name: key for key in fields(KnownMessage)}
    if unknown := sorted(set(values) - set(known)):
        yield f"unknown key {', '.join(unknown)}"
    for name in ("id", "program", "title", "match", "kind", "means"):
        if not values.get(name):
            yield f"key {'class' if name == 'kind' else name} is missing"
    for name, value in values.items():
        wanted = list if name in ("match", "causes", "sample") else str
        if not isinstance(value, wanted) or (wanted is list and not all(isinstance(one, str) for one in value)):
            yield f"{name} must be {'a list of texts' if wanted is list else 'a text'}"
    for name, allowed in (
        ("kind", tuple(classes())), ("role", ROLES), ("where", (RECORD, LINE)), ("severity", ("", *SEVERITIES)),
        ("confidence", CONFIDENCES),
    ):  # fmt: skip
        if name in values and values[name] not in allowed:
            yield f"{'class' if name == 'kind' else name} {values[name]} is not one of {', '.join(filter(None, allowed))}"
    if values.get("confidence") == "certain" and not values.get("proves"):
        yield "confidence is certain, but nothing says what the text proves"
    for template in values["match"]:
        yield from _template_problems(template, values["where"])


def _template_problems(template: str, where: str) -> Iterator[str]:
    parts = fixed_parts(template)
    if sum(len(part.replace(" ", "")) for part in parts) < _SHORTEST:
        yield f"template {template!r} has less than {_SHORTEST} characters of fixed text"
    elif not any(len(word) > 1 for word in words_of(template)):
        yield f"template {template!r} has no whole word by which it could be found"
    elif where == LINE and max(len(part.strip()) for part in parts) < _LITERAL:
        yield f"template {template!r} has no fixed text of {_LITERAL} characters by which its lines could be found"
    try:
        compile_template(template, where)
    except re.error as error:
        yield f"template {template!r}: {error}"
