"""Messages that hold no fact whatever numbers they name, such as `Cuda Alloc Size 4096 pointer 0x7f12ab000000`.

With NCCL_DEBUG_SUBSYS=ALL each line of this kind has numbers of its own, so that no two are equal. Here such lines count as
equal where they differ only in digits, and in the letters of `0x…`: one of them is parsed for all. A shape counts so only where
no pattern could match another line of it: what decides is its text without numbers.
"""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log.groups import line_groups

if TYPE_CHECKING:
    from nccl_doctor.common.text_keys import Keys
    from nccl_doctor.log.classifier import Classifier
    from nccl_doctor.log.groups.line_groups import PlainLines
    from nccl_doctor.log.line_patterns import Grammar, Pattern

_ADDRESS = 16  # digits
_X = 1  # stands for the x of `0x` in a text without numbers, so that `0x7` and `5x7` differ
_MEMO = 20_000  # shapes; a log with more of them is read as if it had none
_HEX = "0123456789abcdefx"


class NumberShapes:
    """Gives lines one key that hold no fact and differ only in numbers."""

    def __init__(self, classifier: "Classifier") -> None:
        self._classifier = classifier
        self._free: dict[int, bool] = {}  # key of a shape -> whether none of its messages can hold a fact
        self.found = 0  # different messages of the last block that got the key of their shape

    def messages(self, block: bytes, lines: "PlainLines") -> "Keys":
        """The keys of the messages of lines."""
        self.found = 0
        level = np.frombuffer(block, np.uint8)[lines.at + len("NCCL ")]
        which = np.flatnonzero((lines.kind == line_groups.TEXT) & (level == ord("I")))
        if not len(which) or len(self._free) > _MEMO:
            return lines.message
        zeroed = numberless(block)
        texts = lines.chosen(which)
        shapes, at, of = np.unique(line_groups.text_keys(zeroed, texts), return_index=True, return_inverse=True)
        free = []
        for shape, place in zip(shapes.tolist(), at.tolist(), strict=True):
            known = self._free.get(shape)
            if known is None:
                begin, end = int(texts.text[place]), int(texts.end[place])
                text, plain = (part[begin:end].decode("utf-8", "replace") for part in (block, bytes(zeroed[begin:end])))
                known = self._free[shape] = holds_no_fact(self._classifier, text, plain[: end - begin])
            free.append(known)
        is_free = np.array(free, bool)[of]
        self.found = len(np.unique(lines.message[which[is_free]]))
        message = lines.message.copy()
        message[which[is_free]] = ~shapes[of[is_free]]
        return message


def numberless(block: bytes) -> bytearray:
    """A block in which each digit is 0, also the letters of addresses behind `0x`, whose x becomes `_X`."""
    zeroed = bytearray(block)
    text = np.frombuffer(zeroed, np.uint8)
    at = np.flatnonzero((text[:-1] == ord("0")) & (text[1:] == ord("x"))) + 1
    text[(text - np.uint8(ord("0"))) < 10] = ord("0")
    text[at] = _X
    at = at[at < len(text) - _ADDRESS - 1] + 1
    for _ in range(_ADDRESS):
        letter = (text[at] - np.uint8(ord("a"))) < 6
        text[at[letter]] = ord("0")
        at = at[letter | (text[at] == ord("0"))] + 1
    return zeroed


def holds_no_fact(classifier: "Classifier", text: str, plain: str) -> bool:
    """Whether no message of the same shape holds a fact; `plain` is the text without numbers."""
    if not _is_skipped(classifier.grammar, text, _short(plain)):
        return False
    sentence = classifier.sentence("INFO", text)
    return sentence is not None and sentence.pattern is None


def _is_skipped(grammar: "Grammar", text: str, short: str) -> bool:
    """Whether a pattern that holds no fact matches each text of the shape before any other could.

    `short` is the text without numbers, each of them as one digit: most shapes of a log differ in the lengths of numbers.
    """
    skip = _skip_of(grammar, short)
    return skip is not None and (not skip.regex or skip.match(text) is not None)


@lru_cache(_MEMO)
def _skip_of(grammar: "Grammar", short: str) -> "Pattern | None":
    """The pattern without a fact that is asked before all others that might match texts of a shape."""
    deciders = _deciders(grammar)
    if any(literal in short for literal in deciders.anywhere) or short.startswith(deciders.leads):
        return None
    for pattern, has, starts in deciders.records:
        if short.startswith(starts) and has in short:
            return pattern if pattern.reader == "skip" else None
    return None


class _Deciders(NamedTuple):
    """What the texts of a shape may hold or begin with, without numbers."""

    anywhere: tuple[str, ...]  # literals of patterns of texts
    leads: tuple[str, ...]  # of messages that the catalogue knows
    records: list[tuple["Pattern", str, tuple[str, ...]]]  # each with what its messages hold and begin with


@cache
def _deciders(grammar: "Grammar") -> _Deciders:
    records = []
    for pattern in grammar.records("INFO"):
        if pattern.reader != "skip":
            starts = tuple(_short(_plain(opening.rstrip(_HEX))) for opening in pattern.openings)
            records.append((pattern, _short(_plain(pattern.has.strip(_HEX))), starts))
        elif pattern.regex and pattern.any_number:
            records.append((pattern, "", ("",)))
        elif not pattern.regex:
            starts = tuple(_short(start) for start in pattern.starts if not re.search(r"\d", start))
            records.append((pattern, "", starts))
    anywhere = tuple(_short(_plain(literal.strip(_HEX))) for literal in grammar.in_records)
    return _Deciders(anywhere, tuple(_short(_plain(lead)) for lead in catalogue().info_leads), records)


def _short(plain: str) -> str:
    return re.sub("0+", "0", plain)


def may_hold(literal: str, plain: str) -> bool:
    """Whether a text of this shape can hold a literal; its first and last characters may be digits of an address."""
    return _plain(literal.strip(_HEX)) in plain


@cache
def _plain(literal: str) -> str:
    """A literal of a pattern as it is in texts without numbers."""
    return re.sub(r"\d", "0", literal.replace("0x", f"0{chr(_X)}"))
