"""Decides what a line of another program than NCCL says, and counts it."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from re import Match
from typing import NamedTuple, TypeVar

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.timestamps import moment
from nccl_doctor.inputs import prefixes
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.classifier import LONG, SKIP, Classifier, bounded
from nccl_doctor.log.counts import EventKey
from nccl_doctor.log.line_patterns import LAST_ERROR, Grammar, Pattern
from nccl_doctor.log.multiline import LineBehind
from nccl_doctor.log.nccl_header import NcclHeader

HEADLESS = "headless"  # reader of patterns for lines of NCCL whose header was cut off or has another tag
_SHAPES = 10_000  # texts and shapes remembered
_KERNEL_FILES = ("kernel", "host")  # pattern files of what the kernel prints, whose logs cover weeks
_LEAP_YEAR = 2000  # for dates without a year

Key = TypeVar("Key")


class Asked(NamedTuple):
    """The text patterns of which a literal is in a line, in their order."""

    number: int
    patterns: list[Pattern]
    by_shape: bool  # whether none of them tells lines apart that differ only in digits
    of_records: bool  # whether one of them is searched in records of NCCL too


class LiteralPatterns:
    """Finds the text patterns of literals, which are given as the prefilter numbers them."""

    def __init__(self, grammar: Grammar) -> None:
        by_literal: dict[bytes, list[Pattern]] = {}
        for pattern in grammar.text:
            for literal in pattern.literals:
                by_literal.setdefault(literal.encode(), []).append(pattern)
        self._by_literal = [by_literal[literal] for literal in sorted(by_literal)]
        self._asked: dict[frozenset[int], Asked] = {}
        self._numbers = 0  # given so far

    def asked(self, literals: Iterable[int]) -> Asked:
        """The patterns of the literals of a line."""
        key = frozenset(literals)
        asked = self._asked.get(key)
        if asked is None:
            patterns = {pattern.order: pattern for literal in key for pattern in self._by_literal[literal]}
            in_order = [patterns[order] for order in sorted(patterns)]
            by_shape = not any(pattern.digits for pattern in in_order)
            if len(self._asked) > _SHAPES:
                self._asked.clear()
            self._numbers += 1
            of_records = any(pattern.nccl_too for pattern in in_order)
            asked = self._asked[key] = Asked(self._numbers, in_order, by_shape, of_records)
        return asked


literal_patterns = cache(LiteralPatterns)


class TextLines:
    """Counts what lines say that hold literals of text patterns. The scanner chooses the lines."""

    def __init__(self, classifier: Classifier) -> None:
        self._grammar = classifier.grammar
        self._counts = classifier.counts
        self.misses: multiline.Misses = set()
        self._known: dict[tuple[int, bytes], multiline.Alone] = {}  # asked patterns, and a text or its shape
        self._once: set[tuple[int, bytes]] = set()  # the same of what came once
        self._speakers: dict[tuple[object, ...], int] = {}  # who wrote lines of other programs -> header
        self._last_lines: dict[tuple[int, multiline.Writer | None], int] = {}  # pattern and writer -> end of a record
        self._covered: dict[multiline.Writer | None, int] = {}  # writer -> end of its last record of several lines
        self._whole: dict[multiline.Writer | None, int] = {}  # the same of a record that no other pattern reads

    def begin_behind(self, before: "TextLines", lines: int) -> None:
        """Note how far the records go on that another reader found in the `lines` lines before."""
        self._last_lines |= _beyond(before._last_lines, lines)
        self._covered |= _beyond(before._covered, lines)
        self._whole |= _beyond(before._whole, lines)

    def add(
        self, raw: str, numbers: Sequence[int], at: int, behind_it: Callable[[], Iterable[LineBehind]], asked: Asked
    ) -> None:
        """Count the patterns that match the line with number `numbers[at]`, which holds a literal of each.

        `behind_it` gives the lines behind it.
        """
        opened = bounded(prefixes.opened(raw))
        short = len(opened) < LONG
        if (multiline.is_record if short else multiline.is_record.__wrapped__)(opened):
            if not asked.of_records:
                return
            patterns = [pattern for pattern in asked.patterns if pattern.nccl_too]
            line = prefixes.clean(opened)
            left, _, text = nccl_header.split_record(line) or (line, "", "")
            label = nccl_header.parse_header(left).label
            known = multiline.alone(patterns, text)
        else:
            line, label, text, _ = (multiline.parts if short else multiline.parts.__wrapped__)(opened)
            known = self._alone(asked, text)
        left = line[: len(line) - len(text)] if line.endswith(text) else ""
        writer = multiline.writer_of(label)
        behind = multiline.LinesBehind(behind_it, writer)
        for pattern, joined in multiline.matches(known, text, behind, self.misses):
            end = at + joined.distance
            last = numbers[end] if end < len(numbers) else numbers[-1] + end - len(numbers) + 1
            if self.is_covered(pattern, writer, last):
                continue
            if joined.distance:
                if pattern.whole:
                    self._whole[writer] = last
                self._last_lines[pattern.order, writer] = last
                self._covered[writer] = max(last, self._covered.get(writer, 0))
            self._add_text(pattern, bounded(joined.text), label, left, numbers[at], last)

    def is_covered(self, pattern: Pattern, writer: multiline.Writer | None, last: int) -> bool:
        """Whether what a pattern found, up to line `last`, is part of a record of the same writer that was counted before."""
        if not self._last_lines:
            return False
        if last <= self._last_lines.get((pattern.order, writer), 0):
            return True
        return last <= (self._covered if pattern.fallback else self._whole).get(writer, 0)

    def asked_alone(self, asked: Asked, text: str) -> multiline.Alone:
        """What a text says without the lines behind it."""
        return multiline.alone([p for p in asked.patterns if p.reader != HEADLESS or self.matches(p, text)], text)

    def matches(self, pattern: Pattern, text: str) -> bool:
        """Whether a pattern matches a text; one for lines without header only where the message in it is known."""
        return (self._headless(pattern, text) if pattern.reader == HEADLESS else pattern.match(text)) is not None

    def _alone(self, asked: Asked, text: str) -> multiline.Alone:
        """The same, remembered for all texts of its shape where that holds for them."""
        written = text.encode()
        by_shape = asked.by_shape and len(written) <= digit_shapes.LONGEST and text.isascii()
        key = asked.number, digit_shapes.shape_of(written) if by_shape else written
        known = self._known.get(key)
        if known is not None:
            return known
        known = self.asked_alone(asked, text)
        if len(written) > digit_shapes.LONGEST:
            return known
        if key not in self._once:
            if len(self._once) > _SHAPES:
                self._once.clear()
            self._once.add(key)
            return known
        if by_shape and not any(is_alone for _, is_alone in known.steps) and catalogue().tells_digits_apart(text):
            return known
        if len(self._known) > _SHAPES:
            self._known.clear()
        self._known[key] = known
        return known

    def _headless(self, pattern: Pattern, text: str) -> tuple[Pattern, Match[str]] | None:
        """The pattern of the message in a line of NCCL without `NCCL LEVEL`, and where it stands; None where it holds no known one."""
        match = pattern.compiled.search(text)
        if match is None:
            return None
        level = (match["level"] or match["bare"] or "").strip()
        for one in (level,) if level else ("WARN", "INFO"):
            known = self._grammar.nccl(match["text"].rstrip(), one)
            if known is not None and known.reader != SKIP:
                return known, match
        return None

    def _add_text(self, pattern: Pattern, body: str, label: prefixes.Label, left: str, number: int, last: int) -> None:
        """Count the text of a record that starts at line `number` and ends at line `last`."""
        if pattern.reader == LAST_ERROR:
            match = pattern.compiled.search(body)
            repeated = self._repeated(pattern, match["text"]) if match else None
            if match is None or repeated is None:
                return
            pattern, body, number = repeated, match["text"], last
        speaker = source = None
        if pattern.reader == HEADLESS:
            whole = self._headless(pattern, body)
            if whole is None:
                return
            pattern, match = whole
            left, body = left + body[: match.start("text")], match["text"].rstrip()
            speaker = self._header_before(left, label)
            source = match["source"]
        if speaker is None:
            speaker = self.speaker(label, source)
        hour = hour_of(left, label.stamp) if is_dated(pattern) else None
        key = EventKey(speaker, pattern.order, "", body, hour)
        self._counts.count(key, label.repeat, number, label.stamp, left)

    def _repeated(self, pattern: Pattern, text: str) -> Pattern | None:
        """The pattern of a warning of NCCL that another program repeats; None where it is not known.

        It is also None where patterns of the text alone know it: they count it as a line of its own.
        """
        record = self._grammar.nccl(text, "WARN")
        if record is not None and (record.file == "ib" or record.name.startswith("ofi-")):
            return record
        if any(one.match(text) is not None for one in self._grammar.candidates(text) if not one.fallback):
            return None
        return record or (pattern if catalogue().find(text) is not None else None)

    def _header_before(self, left: str, label: prefixes.Label) -> int | None:
        """The number of the whole header before a message of NCCL 2.0 to 2.2, which has no tag `NCCL`; None where it is cut off."""
        header = nccl_header.parse_header(left.rstrip().removesuffix("INFO").removesuffix("WARN"))
        if header.host is None or header.pid is None:
            return None
        return self._counts.header_id(header._replace(label=label._replace(stamp=None, repeat=1)))

    def speaker(self, label: prefixes.Label, source: str | None = None) -> int:
        """The number of the header of a writer."""
        who = (*label[:4], source)
        speaker = self._speakers.get(who)
        if speaker is None:
            header = NcclHeader(label.host, label.pid, None, None, source, label._replace(stamp=None, repeat=1), True)
            speaker = self._speakers[who] = self._counts.header_id(header)
        return speaker


def _beyond(ends: dict[Key, int], lines: int) -> dict[Key, int]:
    """The ends that lie behind so many lines, counted from there."""
    return {key: end - lines for key, end in ends.items() if end > lines}


def is_dated(pattern: Pattern) -> bool:
    """Whether lines of a pattern count apart for each hour: an error of this hour is not that of another job last week."""
    return pattern.file in _KERNEL_FILES


def hour_of(left: str, stamp: float | None) -> int | None:
    """The hour in which a line was written, in any count; None where it names no date."""
    when = moment(left, _LEAP_YEAR) if stamp is None else None
    seconds = stamp if when is None else when.seconds
    return None if seconds is None else int(seconds // 3600)
