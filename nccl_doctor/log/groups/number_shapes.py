"""Messages that hold no fact whatever numbers they name, such as `Cuda Alloc Size 4096 pointer 0x7f12ab000000`.

With NCCL_DEBUG_SUBSYS=ALL each line of this kind has numbers of its own, so that no two are equal. Here such lines count as
equal where they differ only in digits, and in the letters of `0x…`: one of them is parsed for all. A shape counts so only where
no pattern could match another line of it: what decides is its text without numbers.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log.groups import line_groups

if TYPE_CHECKING:
    from nccl_doctor.common.text_keys import Keys
    from nccl_doctor.log.classifier import Classifier
    from nccl_doctor.log.groups.line_groups import PlainLines
    from nccl_doctor.log.line_patterns import Pattern

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
    sentence = classifier.sentence("INFO", text)
    if sentence is None or sentence.pattern is not None:
        return False
    if any(may_hold(literal, plain) for literal in classifier.grammar.in_records):
        return False
    if any(plain.startswith(_plain(lead)) for lead in catalogue().info_leads):
        return False
    return _is_skipped(classifier.grammar.records("INFO"), text, plain)


def _is_skipped(patterns: "list[Pattern]", text: str, plain: str) -> bool:
    """Whether a pattern that holds no fact matches each text of the shape before any other could."""
    for pattern in patterns:
        if pattern.reader == "skip":
            if pattern.regex:
                if pattern.any_number and pattern.match(text) is not None:
                    return True
            elif any(not re.search(r"\d", start) and text.startswith(start) for start in pattern.starts):
                return True
        elif _may_match(pattern, plain):
            return False
    return False


def _may_match(pattern: "Pattern", plain: str) -> bool:
    if pattern.has and not may_hold(pattern.has, plain):
        return False
    return any(plain.startswith(_plain(opening.strip(_HEX))) for opening in pattern.openings)


def may_hold(literal: str, plain: str) -> bool:
    """Whether a text of this shape can hold a literal; its first and last characters may be digits of an address."""
    return _plain(literal.strip(_HEX)) in plain


@cache
def _plain(literal: str) -> str:
    """A literal of a pattern as it is in texts without numbers."""
    return re.sub(r"\d", "0", literal.replace("0x", f"0{chr(_X)}"))
