"""What all messages of one shape are: messages that differ in digits only, and in the letters of hexadecimal numbers.

A shape is a text in which each number is one 0, the x of `0x` is `X`, and each hexadecimal code is one `CODE`. Whether a pattern might
match any text of a shape is read from the fixed texts that the pattern needs, so that it may be a pattern too many, never one too few.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.knowledge.templates import squeezed
from nccl_doctor.log.groups.required_texts import required_texts

if TYPE_CHECKING:
    from nccl_doctor.log.classifier import Classifier
    from nccl_doctor.log.line_patterns import Grammar, Pattern

X = 1  # stands for the x of `0x`, so that `0x7` and `5x7` differ
CODE = 2  # stands for a word of digits and letters up to f with both, so that `12345` and `12a45` differ
SHORTEST_CODE, LONGEST_CODE = 4, 64  # characters
_HEX = "0123456789abcdefx"
_RUNS = re.compile(f"00+|{chr(CODE)}{chr(CODE)}+")
_WORDS = re.compile(rf"(?<!\w)[0-9a-f]{{{SHORTEST_CODE},{LONGEST_CODE}}}(?!\w)", re.ASCII)

Held = frozenset[int]  # numbers of literals that a shape holds


class Kind(Enum):
    """What all messages of a shape are."""

    OTHER = 0  # some may hold a fact
    FREE = 1  # they are known and hold no fact
    UNKNOWN = 2  # nothing knows them


class ShapeKinds:
    """Finds what messages of shapes are."""

    def __init__(self, classifier: "Classifier") -> None:
        self._classifier = classifier

    def kinds(self, texts: Sequence[str], shapes: Sequence[str]) -> list[Kind]:
        """The kind of each shape; each text has the shape at its place."""
        deciders = _deciders(self._classifier.grammar)
        held = deciders.held(shapes)
        return [self._kind(*one, deciders) for one in zip(texts, shapes, held, strict=True)]

    def _kind(self, text: str, shape: str, held: Held, deciders: "_Deciders") -> Kind:
        may_be_free = False
        for decider in deciders.asked(shape, held):
            if not decider.is_free:
                return Kind.OTHER
            if decider.is_certain and decider.pattern.match(text) is not None:
                sentence = self._classifier.sentence("INFO", text)
                return Kind.FREE if sentence is not None and sentence.pattern is None else Kind.OTHER
            may_be_free |= not decider.is_certain
        return Kind.UNKNOWN if not may_be_free and self._classifier.is_unknown("INFO", text) else Kind.OTHER


class _Decider(NamedTuple):
    """A pattern that may match texts of a shape."""

    pattern: "Pattern"
    is_free: bool  # it holds no fact
    is_certain: bool = False  # it matches all texts of a shape or none
    starts: tuple[str, ...] = ("",)  # what its messages begin with, as it is in shapes
    has: tuple[Held, ...] = (Held(),)  # alternatives of what they hold

    def may_match(self, shape: str, held: Held) -> bool:
        """Whether it might match texts of a shape."""
        return shape.startswith(self.starts) and any(parts <= held for parts in self.has)


class _Deciders:
    """What decides about shapes, in the order in which it is asked."""

    def __init__(self, grammar: "Grammar") -> None:
        numbers: dict[str, int] = {}

        def number(literals: Iterable[str]) -> Held:
            return Held(numbers.setdefault(one, len(numbers)) for one in in_shapes(literals) if one)

        records = [decider for pattern in grammar.records("INFO") for decider in _of_pattern(pattern, number)]
        self._catalogued = _Decider(grammar.catalogued or records[-1].pattern, False)
        self._anywhere = number(literal.strip(_HEX) for literal in grammar.in_records)
        parts = [part.strip(_HEX) for part in catalogue().info_texts()]
        self._parts, self._texts = number(parts), in_shapes(parts)
        self._leads = in_shapes(lead.rstrip(_HEX) for lead in catalogue().info_leads)
        self._records = records
        self._of_first: dict[str, list[_Decider]] = {}  # by the first character of a message
        self._prefilter = prefilter(frozenset(one.encode() for one in numbers), name="shapes")
        self._number = np.array([numbers[literal.decode()] for literal in self._prefilter.literals])

    def held(self, shapes: Sequence[str]) -> list[Held]:
        """The literals that each of the shapes holds."""
        block = "\n".join(shapes).encode()
        at, which = self._prefilter.places(block)
        of = np.searchsorted(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")), at)
        held: list[set[int]] = [set() for _ in shapes]
        for shape, literal in zip(of.tolist(), self._number[which].tolist(), strict=True):
            held[shape].add(literal)
        return [Held(one) for one in held]

    def asked(self, shape: str, held: Held) -> Iterator[_Decider]:
        """The patterns that might match texts of a shape, up to one that holds a fact."""
        if not self._anywhere.isdisjoint(held) or self._may_be_catalogued(shape, held):
            yield self._catalogued
            return
        first = shape[:1]
        if first not in self._of_first:
            self._of_first[first] = [
                one for one in self._records if any(not start or start[0] == first for start in one.starts)
            ]
        for decider in self._of_first[first]:
            if decider.may_match(shape, held):
                yield decider

    def _may_be_catalogued(self, shape: str, held: Held) -> bool:
        if not shape.startswith(self._leads):
            return False
        start = squeezed(shape)
        return not self._parts.isdisjoint(held) if start == shape else any(part in start for part in self._texts)


_deciders = cache(_Deciders)


def _of_pattern(pattern: "Pattern", number: "Callable[[Iterable[str]], Held]") -> Iterator[_Decider]:
    is_free = pattern.reader == "skip"
    if is_free and not pattern.regex:
        numbered = [start for start in pattern.starts if re.search(r"\d", start)]
        yield _Decider(pattern, True, True, in_shapes(start for start in pattern.starts if start not in numbered))
        if numbered:
            yield _Decider(pattern, True, False, in_shapes(start.rstrip(_HEX) for start in numbered))
        return
    needed = required_texts(pattern.regex) if pattern.regex else ((),)
    has = tuple(number(text.strip(_HEX) for text in (pattern.has, *texts)) for texts in needed)
    starts = in_shapes(opening.rstrip(_HEX) for opening in pattern.openings)
    yield _Decider(pattern, is_free, is_free and pattern.any_number, starts, has)


def in_shapes(literals: Iterable[str]) -> tuple[str, ...]:
    """Literals as they are in shapes of texts that hold them, each once. None should begin or end inside a number."""
    return tuple({_in_shape(literal): None for literal in literals})


def _in_shape(literal: str) -> str:
    plain = re.sub(r"\d", "0", _WORDS.sub(_coded, literal).replace("0x", f"0{chr(X)}"))
    return _RUNS.sub(lambda run: run[0][0], plain)


def _coded(word: re.Match[str]) -> str:
    return word[0] if word[0].isdecimal() or word[0].isalpha() else chr(CODE)
