"""The message catalogue: what programs print when something is wrong, and what it means (`messages/**/*.toml`).

A file holds `program`, `title`, optionally `where`, then `[family.NAME]` tables with values that its messages share, and
`[[message]]` entries. A template in `match` is fixed text with `{name}`, `{name:d}` (a number), `{name:x}` (hexadecimal or a
pointer) or `{}` (anything) in the gaps. In a file of ``where = "record"`` it begins where the text behind `NCCL WARN`
begins, or behind a tag such as `NET/IB :`; in one of ``where = "line"`` it is searched in the whole line.

Messages are found by the rarest word of their fixed text, so that a look-up costs a few dictionary accesses.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.levels import CONFIDENCES, SEVERITIES
from nccl_doctor.common.parse_cache import remembered, remembered_toml
from nccl_doctor.knowledge import templates
from nccl_doctor.knowledge.templates import (
    WORD,
    compile_template,
    fixed_parts,
    numbered_parts,
    place_of,
    squeezed,
    text_parts,
    words_of,
    zeroed_word,
)

FOLDER = Path(__file__).parent / "messages"
CLASSES = FOLDER / "classes.toml"
RECORD, LINE = templates.RECORD, templates.LINE
LONGEST = 2_000  # characters of a text that are looked at
ROLES = ("origin", "echo")
ELSEWHERE = ("peer", "timeout")  # classes of messages that say of themselves that something else failed
HERE = (
    "local-resource",
    "hardware",
    "driver",
    "configuration",
    "version",
)  # classes of what failed where it was printed
_SHORTEST = 6  # characters of fixed text without blanks
_SHORT_LITERAL, _SHARED = 5, 20  # characters of a text by which so many templates are found together
_LITERAL = 8  # characters of the fixed text by which the lines of a program are found


class CatalogueProblem(Exception):
    """A file of the catalogue that breaks its own rules; the text names file and message."""


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


class Hit(NamedTuple):
    """A message of the catalogue that a text is, and what stands in the gaps."""

    message: KnownMessage
    fields: dict[str, str]


def rarest_words(messages: Sequence[KnownMessage]) -> list[list[str]]:
    """For each message the word by which each of its templates is found: the one that the fewest templates hold."""
    words = [[words_of(template) for template in message.match] for message in messages]
    counts = Counter(word for templates in words for template in templates for word in set(template))
    return [
        [min(template, key=lambda word: (counts[word], -len(word))) for template in templates] for templates in words
    ]


class _Kept(Sequence[KnownMessage]):
    """Messages out of the cache, each made when somebody asks for it: a look-up needs few of them."""

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self._entries = entries
        self._made: dict[int, KnownMessage] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, number: Any) -> Any:
        message = self._made.get(number)
        if message is None:
            message = self._made[number] = KnownMessage(**self._entries[number])
        return message


def index_of(messages: Sequence[KnownMessage]) -> dict[str, list[tuple[int, int, str]]]:
    """For each word by which templates are found: the numbers of their messages, their own within the message, and a text that
    each of them contains."""
    index: dict[str, list[tuple[int, int, str]]] = {}
    for number, words in enumerate(rarest_words(messages)):
        for template, word in enumerate(words):
            index.setdefault(word, []).append((number, template, max(messages[number].parts[template], key=len)))
    return index


def info_leads(messages: Iterable[KnownMessage]) -> set[str]:
    """The first four characters of the messages that NCCL prints at the level INFO."""
    return {template[:4] for message in messages if _is_info(message) for template in message.match}


def info_words(messages: Sequence[KnownMessage], index: "Index") -> set[str]:
    """The words by which messages are found that NCCL prints at the level INFO."""
    return {word for word, found in index.items() if any(_is_info(messages[number]) for number, *_ in found)}


def _is_info(message: KnownMessage) -> bool:
    return message.where == RECORD and message.level == "INFO"


def numbered_by_word(messages: Sequence[KnownMessage]) -> dict[str, list[list[str]]]:
    """The fixed texts, digits as 0, of templates for lines that hold a digit, by the word by which each is found."""
    found: dict[str, list[list[str]]] = {}
    for message, words in zip(messages, rarest_words(messages), strict=True):
        for template, word in zip(message.match, words, strict=True):
            parts = numbered_parts(template) if message.where == LINE else []
            if parts:
                found.setdefault(zeroed_word(word), []).append(parts)
    return found


def _lines(messages: Iterable[KnownMessage]) -> Iterator[str]:
    """The templates that are searched in whole lines."""
    return (template for message in messages if message.where == LINE for template in message.match)


Index = Mapping[str, Sequence[Sequence[Any]]]  # what `index_of` returns, also out of JSON


class Catalogue:
    """Finds messages in texts."""

    def __init__(
        self,
        messages: Iterable[KnownMessage],
        index: Index | None = None,
        leads: Iterable[str] | None = None,
        numbered: Mapping[str, Sequence[Sequence[str]]] | None = None,
        words: Iterable[str] | None = None,
    ) -> None:
        """`index`, `leads`, `numbered` and `words` are `index_of`, `info_leads`, `numbered_by_word` and `info_words`, where kept."""
        self.messages: Sequence[KnownMessage] = messages if isinstance(messages, _Kept) else tuple(messages)
        self._by_word = index_of(self.messages) if index is None else index
        self.info_leads = frozenset(info_leads(self.messages) if leads is None else leads)
        self._info_words = frozenset(info_words(self.messages, self._by_word) if words is None else words)
        self._numbered = numbered_by_word(self.messages) if numbered is None else numbered
        self.find = lru_cache(20_000)(self._find)

    def tells_digits_apart(self, text: str) -> bool:
        """Whether the message that a line is may not be that of other texts of its shape (`common.digit_shapes`)."""
        zeroed = digit_shapes.zeroed(squeezed(text[:LONGEST]))
        return any(
            all(part in zeroed for part in parts)
            for word in self._numbered.keys() & WORD.findall(zeroed)
            for parts in self._numbered[word]
        )

    def find_info(self, text: str) -> Hit | None:
        """The message that the text of an `NCCL INFO` record is; cheap for nearly all of them."""
        if text[:4] not in self.info_leads or self._info_words.isdisjoint(WORD.findall(text)):
            return None
        hit = self.find(text, RECORD)
        return hit if hit is not None and hit.message.level == "INFO" else None

    def _find(self, text: str, where: str = "") -> Hit | None:
        """The message that the text of a record or line is; without `where`, of either.

        The most specific one counts. One that only says that something else failed gives way to one beside or inside it that says what.
        """
        text = squeezed(text[:LONGEST])
        best: Hit | None = None
        weight, fixed = 0, (0, 0)
        origins: list[tuple[KnownMessage, int]] = []
        for word in set(WORD.findall(text)) & self._by_word.keys():
            for message_number, number, part in self._by_word[word]:
                if part not in text:
                    continue
                message = self.messages[message_number]
                if where == LINE and message.where == RECORD:
                    continue
                parts = message.parts[number]
                if (message.weights[number] > weight or message.is_origin) and all(part in text for part in parts):
                    if message.is_origin:
                        origins.append((message, number))
                    match = message.found(number, text) if message.weights[number] > weight else None
                    if match is not None:
                        best, weight = Hit(message, match.groupdict()), message.weights[number]
                        fixed = place_of(text, match.start(), parts)
        if best is not None and best.message.is_echo:
            origins.sort(key=lambda origin: -origin[0].weights[origin[1]])
            for rest in (text[: fixed[0]], *filter(None, best.fields.values()), text[fixed[1] :]):
                for message, number in origins:
                    if (match := message.found(number, rest)) is not None:
                        return Hit(message, match.groupdict())
        return best

    def literals(self, known: Iterable[str]) -> list[str]:
        """Fixed texts that find every message of a line which holds none of the `known` ones."""
        known = tuple(known)
        lines = [text_parts(template) for template in _lines(self.messages)]
        left = [parts for parts in lines if not any(literal in part for part in parts for literal in known)]
        counts = Counter(part for parts in left for part in set(parts) if len(part) >= _SHORT_LITERAL)
        needed = {max(parts, key=lambda part: (counts[part] >= _SHARED, len(part))) for parts in left}
        return sorted(needed)


def catalogue_files() -> list[Path]:
    """The files of the catalogue."""
    return sorted(FOLDER.rglob("*.toml"))


@cache
def catalogue() -> Catalogue:
    """All messages. Raises CatalogueProblem on a broken file."""
    files = catalogue_files()
    kept = remembered(
        "messages", [*files, *map(Path, (__file__, templates.__file__, digit_shapes.__file__))], lambda: _parsed(files)
    )
    return Catalogue(_Kept(kept["messages"]), kept["index"], kept["leads"], kept["numbered"], kept["words"])


def _parsed(files: Iterable[Path]) -> dict[str, Any]:
    """What the files say, in a form that can be kept: without values that are the default."""
    messages = list(read(files))
    plain = asdict(KnownMessage("", "", "", "", [], "", ""))
    index = index_of(messages)
    return {
        "messages": [
            {name: value for name, value in asdict(message).items() if value != plain[name]} for message in messages
        ],
        "index": index,
        "words": sorted(info_words(messages, index)),
        "leads": sorted(info_leads(messages)),
        "numbered": numbered_by_word(messages),
    }


@cache
def classes() -> dict[str, MessageClass]:
    """The classes of messages by name."""
    content = remembered_toml("message-classes", CLASSES)
    return {name: MessageClass(name, **values) for name, values in content["class"].items()}


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
    import tomllib  # only where the messages are not kept

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
