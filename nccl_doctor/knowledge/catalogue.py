"""The message catalogue: what programs print when something is wrong, and what it means (`messages/**/*.toml`).

A file holds `program`, `title`, optionally `where`, then `[family.NAME]` tables with values that its messages share, and
`[[message]]` entries. A template in `match` is fixed text with `{name}`, `{name:d}` (a number), `{name:x}` (hexadecimal or a
pointer) or `{}` (anything) in the gaps. In a file of ``where = "record"`` it begins where the text behind `NCCL WARN`
begins, or behind a tag such as `NET/IB :`; in one of ``where = "line"`` it is searched in the whole line.

Messages are found by the rarest word of their fixed text, so that a look-up costs a few dictionary accesses.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.parse_cache import remembered_lines
from nccl_doctor.knowledge import known_message, templates
from nccl_doctor.knowledge.known_message import FOLDER, KnownMessage
from nccl_doctor.knowledge.templates import (
    LINE,
    RECORD,
    WORD,
    numbered_parts,
    place_of,
    squeezed,
    text_parts,
    words_of,
    zeroed_word,
)

# What is kept, each part read when it is needed.
PARTS = ("messages", "messages-index", "messages-info", "messages-numbered")
_HERE = Path(__file__)
_READER = _HERE.with_name("message_files.py")  # not imported where the messages are kept
CODE = [_HERE, _READER, *map(Path, (known_message.__file__, templates.__file__, digit_shapes.__file__))]
LONGEST = 2_000  # characters of a text that are looked at
_SHORT_LITERAL, _SHARED = 5, 20  # characters of a text by which so many templates are found together
_ORDINARY = frozenset(("seconds",))  # words that step lines of healthy jobs hold


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


class _KeptMessages(Sequence[KnownMessage]):
    """Messages out of the cache, each made when somebody asks for it: a look-up needs few of them."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self._entries = entries
        self._made: dict[int, KnownMessage] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, number: Any) -> Any:
        message = self._made.get(number)
        if message is None:
            message = self._made[number] = KnownMessage(**json.loads(self._entries[number]))
        return message


class _KeptIndex(Mapping[str, Sequence[Sequence[Any]]]):
    """What `index_of` returned, out of the cache: the entries of a word are parsed when somebody asks for it."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        words, *entries = lines
        self._entries: dict[str, Any] = dict(zip(json.loads(words), entries, strict=True))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def keys(self) -> KeysView[str]:
        return self._entries.keys()

    def __getitem__(self, word: str) -> Sequence[Sequence[Any]]:
        entry: Any = self._entries[word]
        if isinstance(entry, bytes):
            entry = self._entries[word] = json.loads(entry)
        return entry  # type: ignore[no-any-return]


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


def info_parts(messages: Sequence[KnownMessage], index: "Index") -> dict[str, list[str]]:
    """For each word by which messages are found that NCCL prints at the level INFO: a text that each of them contains."""
    parts: dict[str, list[str]] = {}
    for word, found in index.items():
        if mine := [part for number, _, part in found if _is_info(messages[number])]:
            parts[word] = mine
    return parts


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
    """Finds messages in texts. What it knows is made, or read, when a text needs it: most logs name few messages or none."""

    def __init__(self, messages: Iterable[KnownMessage]) -> None:
        self._given = tuple(messages)
        self.find = lru_cache(20_000)(self._find)

    @cached_property
    def messages(self) -> Sequence[KnownMessage]:
        """All messages, by their numbers."""
        return self._given

    @cached_property
    def info_leads(self) -> frozenset[str]:
        """As `info_leads` of the module."""
        return frozenset(info_leads(self.messages))

    @cached_property
    def _by_word(self) -> Index:
        return index_of(self.messages)

    @cached_property
    def _info_parts(self) -> Mapping[str, Sequence[str]]:
        return info_parts(self.messages, self._by_word)

    @cached_property
    def _numbered(self) -> Mapping[str, Sequence[Sequence[str]]]:
        return numbered_by_word(self.messages)

    def tells_digits_apart(self, text: str) -> bool:
        """Whether the message that a line is may not be that of other texts of its shape (`common.digit_shapes`)."""
        zeroed = digit_shapes.zeroed(squeezed(text[:LONGEST]))
        return any(
            all(part in zeroed for part in parts)
            for word in self._numbered.keys() & WORD.findall(zeroed)
            for parts in self._numbered[word]
        )

    def info_texts(self) -> set[str]:
        """Texts of which each message holds one that NCCL prints at the level INFO."""
        return {part for parts in self._info_parts.values() for part in parts}

    def find_info(self, text: str) -> Hit | None:
        """The message that the text of an `NCCL INFO` record is; cheap for nearly all of them."""
        if text[:4] not in self.info_leads:
            return None
        known, start = self._info_parts, squeezed(text[:LONGEST])
        if not any(part in start for word in known.keys() & WORD.findall(start) for part in known[word]):
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
                if (message.weights[number] > weight or message.may_be_origin) and all(part in text for part in parts):
                    if message.may_be_origin:
                        origins.append((message, number))
                    match = message.found(number, text) if message.weights[number] > weight else None
                    if match is not None:
                        best, weight = Hit(message, match.groupdict()), message.weights[number]
                        fixed = place_of(text, match.start(), parts)
        if best is not None and best.message.is_echo:
            if best.message.role != "echo":
                origins = [origin for origin in origins if origin[0].is_origin]
            origins.sort(key=lambda origin: (not origin[0].is_origin, -origin[0].weights[origin[1]]))
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
        shared = {part for part, count in counts.items() if count >= _SHARED} - _ORDINARY
        needed = {max(parts, key=lambda part: (part in shared, len(part))) for parts in left}
        return sorted(needed)


@cache
def catalogue_files() -> tuple[Path, ...]:
    """The files of the catalogue."""
    return tuple(sorted(FOLDER.rglob("*.toml")))


@cache
def catalogue() -> Catalogue:
    """All messages."""
    return _KeptCatalogue(())


class _KeptCatalogue(Catalogue):
    """The messages of the package, out of the cache."""

    @cached_property
    def messages(self) -> Sequence[KnownMessage]:
        return _KeptMessages(part("messages"))

    @cached_property
    def _by_word(self) -> Index:
        return _KeptIndex(part("messages-index"))

    @cached_property
    def info_leads(self) -> frozenset[str]:
        return frozenset(json.loads(part("messages-info")[0]))

    @cached_property
    def _info_parts(self) -> Mapping[str, Sequence[str]]:
        parts: Mapping[str, Sequence[str]] = json.loads(part("messages-info")[1])
        return parts

    @cached_property
    def _numbered(self) -> Mapping[str, Sequence[Sequence[str]]]:
        numbered: Mapping[str, Sequence[Sequence[str]]] = json.loads(part("messages-numbered")[0])
        return numbered


def part(name: str) -> list[bytes]:
    """One of `PARTS` of what the files of the catalogue say, as JSON. Raises CatalogueProblem on a broken file."""
    return remembered_lines(name, [*catalogue_files(), *CODE], lambda: _parsed()[name])


@cache
def _parsed() -> dict[str, list[Any]]:
    """What the files say, in a form that can be kept: without values that are the default."""
    from nccl_doctor.knowledge.message_files import read  # only where the messages are not kept

    messages = list(read(catalogue_files()))
    plain = asdict(KnownMessage("", "", "", "", [], "", ""))
    index = index_of(messages)
    return {
        "messages": [
            {name: value for name, value in asdict(message).items() if value != plain[name]} for message in messages
        ],
        "messages-index": [list(index), *index.values()],
        "messages-info": [sorted(info_leads(messages)), info_parts(messages, index)],
        "messages-numbered": [numbered_by_word(messages)],
    }
