"""A message of the catalogue, and the classes of messages (`messages/classes.toml`)."""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.common.parse_cache import remembered_toml
from nccl_doctor.knowledge.templates import RECORD, compile_template, squeezed, text_parts

FOLDER = Path(__file__).parent / "messages"
CLASSES = FOLDER / "classes.toml"
ELSEWHERE = ("peer", "timeout")  # classes of messages that say of themselves that something else failed
HERE = (
    "local-resource",
    "hardware",
    "driver",
    "configuration",
    "version",
)  # classes of what failed where it was printed


class MessageClass(NamedTuple):
    """What kind of fault a message reports, and what holds for all messages of the kind."""

    name: str
    meaning: str
    severity: str
    command: str  # what to do next where a message says nothing better


@dataclass(frozen=True)
class KnownMessage:
    """One message of a program."""

    id: str
    program: str
    title: str  # the program as people call it
    where: str
    match: list[str]
    kind: str  # its class: a name in classes.toml
    means: str
    fault: str = ""  # name of the rule that reports it; empty: the one of its class
    role: str = "origin"  # origin: what it reports began here; echo: something else failed first
    severity: str = ""  # empty: that of the class
    confidence: str = "likely"  # that a fault of this class is there
    proves: str = ""  # what the text proves by itself
    causes: list[str] = field(default_factory=list)  # likely ones first, each with what decides
    next: str = ""  # the next command
    level: str = "WARN"  # of NCCL records: INFO ones are looked up only where an entry says so
    since: str = ""
    until: str = ""
    file: str = ""  # where the source prints it
    sample: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Its name among all programs."""
        return f"{self.program}/{self.id}"

    @property
    def is_origin(self) -> bool:
        """Whether it says what failed where it was printed."""
        return self.role == "origin" and self.kind in HERE

    @property
    def may_be_origin(self) -> bool:
        """Whether something failed that did not say of itself that it failed elsewhere."""
        return self.role == "origin" and self.kind not in (*ELSEWHERE, "harmless")

    @property
    def is_echo(self) -> bool:
        """Whether it only says that something else failed."""
        return self.role == "echo" or self.kind in ELSEWHERE

    @cached_property
    def templates(self) -> list[re.Pattern[str]]:
        """The compiled templates."""
        return [compile_template(squeezed(template), self.where) for template in self.match]

    @cached_property
    def parts(self) -> list[list[str]]:
        """The fixed texts of each template, which a matching text contains."""
        return [text_parts(squeezed(template)) for template in self.match]

    @cached_property
    def weights(self) -> list[int]:
        """How much fixed text each template has: among several that match, the most specific one counts."""
        return [sum(map(len, parts)) for parts in self.parts]

    def found(self, number: int, text: str) -> re.Match[str] | None:
        """Where a text holds one of the templates."""
        template = self.templates[number]
        return template.match(text) if self.where == RECORD else template.search(text)

    def command(self) -> str:
        """What to do next."""
        return self.next or classes()[self.kind].command

    def grade(self) -> str:
        """How bad it is where nothing in the log shows that the program went on."""
        return self.severity or classes()[self.kind].severity


@cache
def classes() -> dict[str, MessageClass]:
    """The classes of messages by name."""
    content = remembered_toml("message-classes", CLASSES)
    return {name: MessageClass(name, **values) for name, values in content["class"].items()}
