"""Errors of the system and of CUDA in their own words, as programs quote them behind whatever they say themselves.

The reason that stands at the end of a message says more than the program's words: ``opening the log failed: No space left on
device`` is a full disk in any program. An entry of `data/system_error.json` gives the words, the class, the rule that reports it,
`beside` (expressions which the rest of the text may match, each with the rule that then reports it, or none) and `alone`: whether
the words mean something where nothing is known of the program.
"""

import re
from dataclasses import replace
from functools import cache
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.knowledge import entries
from nccl_doctor.knowledge.catalogue import Hit
from nccl_doctor.knowledge.known_message import KnownMessage
from nccl_doctor.knowledge.templates import LINE

PROGRAM = "system"  # of lines of which nothing is known but the reason at their end
_HARMLESS = "harmless"
_LONGEST = 2_000  # characters of a text that are looked at


def sharpened(hit: Hit, text: str) -> Hit:
    """The message; one without a fault of its own has that of the reason which the text quotes."""
    known = hit.message
    if known.fault or known.is_echo or known.kind == _HARMLESS or (entry := _quoted(text)) is None:
        return hit
    fault = _fault(entry, text)
    return hit if not fault else hit._replace(message=replace(known, kind=entry["kind"], fault=fault))


def told(text: str) -> Hit | None:
    """What a line says that no message of any program is, where it ends with a reason that means the same everywhere."""
    entry = _quoted(text)
    fault = "" if entry is None or entry.get("alone") is False else _fault(entry, text)
    if entry is None or not fault:
        return None
    return Hit(
        KnownMessage(
            entry["name"], PROGRAM, "A program", LINE, [entry["text"]], entry["kind"], entry["meaning"], fault, confidence="possible",
            next=entry["check"],
        ),
        {"reason": entry["text"]},
    )  # fmt: skip


def _quoted(text: str) -> dict[str, Any] | None:
    """The last reason that the text quotes."""
    found = _expression().findall(text[:_LONGEST])
    return _by_text()[found[-1].lower()] if found else None


def _fault(entry: dict[str, Any], text: str) -> str:
    for expression, fault in entry.get("beside", ()):
        if re.search(expression, text[:_LONGEST]):
            return str(fault)
    return str(entry["fault"])


@cache
def _by_text() -> dict[str, dict[str, Any]]:
    return {entry["text"].lower(): entry for entry in entries("system_error")}


@cache
def _expression() -> re.Pattern[str]:
    words = "|".join(re.escape(entry["text"]) for entry in entries("system_error"))
    return compiled(rf"(?i)(?<!\w)(?:{words})(?!\w)")
