"""Lines of other programs that differ only in digits and hexadecimal numbers are read once.

A template says of all lines of a shape (`common.digit_shapes`) that hold the same literals: where their prefixes have who wrote
them, where their text begins, and which patterns match it. Patterns that ask which digit it is are matched with each line, and
what depends on the lines behind is known by their shapes. A line that no template covers goes through `TextLines`.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_checks import kind_of
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.counts import EventKey
from nccl_doctor.log.line_patterns import CATALOGUE, Pattern
from nccl_doctor.log.multiline import NextLines
from nccl_doctor.log.texts.text_lines import (
    HEADLESS,
    LAST_ERROR,
    Asked,
    LiteralPatterns,
    TextLines,
    hour_of,
    is_dated,
)

_MEMO = 10_000  # templates, writers and records of several lines remembered

After = Callable[[int], NextLines]


class _Writer(NamedTuple):
    """Who wrote a line."""

    header: int
    label: prefixes.Label
    writer: multiline.Writer | None


class _Outcome(NamedTuple):
    """What lines of a template say for which the same of the patterns match that ask for digits."""

    counted: tuple[Pattern, ...]  # that match
    dated: bool  # whether one of them counts apart for each hour
    remembered: tuple[Pattern, ...]  # that may match with the lines behind, as the shapes of those say
    asked: tuple[Pattern, ...]  # the same, but each line has to be tried
    lines: tuple[int, ...]  # numbers of lines behind that they look at
    missed: set[tuple[tuple[bytes, ...], ...]]  # shapes of such lines with which none of `remembered` matches


class _Template(NamedTuple):
    """Lines of one shape that hold the same literals."""

    start: int  # where the text begins
    names: tuple[slice, ...]  # where the prefixes say who wrote it
    exact: tuple[Pattern, ...]  # patterns that ask for digits
    writers: dict[tuple[str, ...], _Writer]
    outcomes: dict[tuple[bool, ...], _Outcome | None]  # by which of `exact` match; None where each line is read alone
    stamp: tuple[str, int, int] | None = None  # where the time is that counts, and its kind

    def stamp_of(self, line: str) -> float | None:
        """The time stamp in the prefixes of a line."""
        return None if self.stamp is None else prefixes.seconds(self.stamp[0], line[self.stamp[1] : self.stamp[2]])


_ALONE = _Template(0, (), (), {}, {})  # stands for shapes of which each line is read alone
_IDLE = _Template(0, (), (), {}, {})  # for those that count for nothing: records of NCCL, which a `Classifier` reads


class TextTemplates:
    """Counts lines by their templates, and hands the others to a `TextLines`."""

    def __init__(self, lines: TextLines, counts: Any, literals: LiteralPatterns) -> None:
        self._lines = lines
        self._counts = counts
        self._literals = literals
        self._templates: dict[
            tuple[Any, ...], _Template
        ] = {}  # by shape, literals, and the kinds of the words that decided
        self._seen: set[tuple[Any, ...]] = set()  # the same of lines that came once
        self._words: dict[bytes, tuple[tuple[int, int], ...]] = {}  # shape -> where words are whose own digits decided

    def add(
        self,
        raw: bytes,
        shape: bytes,
        literals: tuple[int, ...],
        numbers: Sequence[int],
        at: int,
        after: After,
        stop: int,
    ) -> None:
        """Count a line, the one with number `numbers[at]`; `shape` is empty where it is too long or not ASCII.

        `after(stop)` gives the lines behind it.
        """
        if not shape:
            self._lines.add(raw.decode("utf-8", "replace"), numbers, at, after(stop), self._literals.asked(literals))
            return
        line = raw.decode("ascii")
        words = self._words.get(shape)
        key = (
            (shape, literals)
            if words is None
            else (shape, literals, *[kind_of(line[begin:end]) for begin, end in words])
        )
        template = self._templates.get(key)
        if template is None:
            template = self._new(line, shape, literals) if key in self._seen else self._first(key)
        if template is _IDLE:
            return
        if template is _ALONE or not self._add(template, line, shape, literals, numbers[at], after, stop):
            self._lines.add(line, numbers, at, after(stop), self._literals.asked(literals))

    def _add(
        self,
        template: _Template,
        line: str,
        shape: bytes,
        literals: tuple[int, ...],
        number: int,
        after: After,
        stop: int,
    ) -> bool:
        """Count a line of a template; False where it has to be read alone."""
        text = line[template.start :]
        matched = tuple([self._lines.matches(pattern, text) for pattern in template.exact]) if template.exact else ()
        try:
            outcome = template.outcomes[matched]
        except KeyError:
            outcome = template.outcomes[matched] = self._outcome(template, line, shape, self._literals.asked(literals))
        if outcome is None:
            return False
        if not outcome.counted and not outcome.lines:
            return True
        who = tuple([line[name] for name in template.names])
        writer = template.writers.get(who)
        if writer is None:
            writer = self._writer(template, line, who)
        if outcome.lines and not self._stands_alone(outcome, text, writer.label, after(stop)):
            return False
        hour = hour_of(line[: template.start], template.stamp_of(line)) if outcome.dated else None
        for pattern in outcome.counted:
            if self._lines.is_covered(pattern, writer.writer, number):
                continue
            key = EventKey(writer.header, pattern.order, "", text, hour if is_dated(pattern) else None)
            if not self._counts.repeat(key, number):
                self._counts.count(key, 1, number, template.stamp_of(line), line[: template.start])
        return True

    def _writer(self, template: _Template, line: str, who: tuple[str, ...]) -> _Writer:
        label = multiline.parts(line).label
        if len(template.writers) > _MEMO:
            template.writers.clear()
        writer = template.writers[who] = _Writer(self._lines.speaker(label), label, multiline.writer_of(label))
        return writer

    def _stands_alone(self, outcome: _Outcome, text: str, label: prefixes.Label, after: NextLines) -> bool:
        """Whether no pattern matches the text together with the lines behind it."""
        misses, behind = self._lines.misses, multiline.LinesBehind(after, label)
        if outcome.remembered:
            rows = [[row.text for row in behind.rows(n)] for n in outcome.lines]
            shapes = tuple([tuple([digit_shapes.shape_of(row.encode()) for row in of]) for of in rows])
            if shapes not in outcome.missed:
                if any(multiline.joined(pattern, text, behind, misses) for pattern in outcome.remembered):
                    return False
                if all(row.isascii() and len(row) <= digit_shapes.LONGEST for row in chain(*rows)):
                    if len(outcome.missed) > _MEMO:
                        outcome.missed.clear()
                    outcome.missed.add(shapes)
        return not any(multiline.joined(pattern, text, behind, misses) for pattern in outcome.asked)

    def _first(self, key: tuple[Any, ...]) -> _Template:
        """The template for the first line of a kind: most of them stay the only one."""
        if len(self._seen) > _MEMO:
            self._seen.clear()
        self._seen.add(key)
        return _ALONE

    def _new(self, line: str, shape: bytes, literals: tuple[int, ...]) -> _Template:
        """The template of a line, remembered."""
        if len(self._templates) > _MEMO:
            self._templates.clear()
            self._words.clear()
        found, asked = prefixes.layout(line), self._literals.asked(literals)
        if found is not None and nccl_header.TOKEN in line:
            if multiline.is_record(line) and not asked.of_records:
                self._templates[shape, literals] = _IDLE
                return _IDLE
            found = None
        words = self._words.get(shape, ())
        if found is not None and found.words:
            words = self._words[shape] = tuple(dict.fromkeys((*words, *found.words)))
        template = self._made(line, shape, found, asked)
        key = (shape, literals, *[kind_of(line[begin:end]) for begin, end in words])
        self._templates[key] = template
        return template

    def _made(self, line: str, shape: bytes, found: prefixes.Found | None, asked: Asked) -> _Template:
        whole, label, text, _ = multiline.parts(line)
        if found is None or whole != line or label.repeat != 1 or not line.endswith(text):
            return _ALONE
        start = len(line) - len(text)
        variants = digit_shapes.variants(line, shape)
        if any(prefixes.layout(variant) != found for variant in variants):
            return _ALONE
        fields = found.fields if start else ()
        names = tuple(slice(begin, end) for name, begin, end in fields if name in prefixes.NAMES)
        stamps = [field for field in fields if field[0] not in prefixes.NAMES]
        texts = [text, *(variant[start:] for variant in variants)]
        exact = [
            pattern
            for pattern in asked.patterns
            if pattern.digits and not pattern.lines and any(map(pattern.may_match_shape, texts))
        ]
        known = self._lines.asked_alone(asked, text)
        is_known = any(is_alone and pattern not in exact for pattern, is_alone in known.steps)
        if not is_known and catalogue().tells_digits_apart(text):
            exact += [pattern for pattern in asked.patterns if pattern.reader == CATALOGUE]
        return _Template(start, names, tuple(exact), {}, {}, stamps[-1] if stamps else None)

    def _outcome(self, template: _Template, line: str, shape: bytes, asked: Asked) -> _Outcome | None:
        """What lines say for which the same of the exact patterns match."""
        text = line[template.start :]
        if any(pattern.reader == HEADLESS and self._lines.matches(pattern, text) for pattern in asked.patterns):
            return None
        known = self._lines.asked_alone(asked, text)
        variants = digit_shapes.variants(line, shape)
        if any(self._lines.asked_alone(asked, variant[template.start :]) != known for variant in variants):
            return None
        counted = [pattern for pattern, is_alone in known.steps if is_alone]
        if not counted and known.fallback is not None:
            counted = [known.fallback]
        if any(pattern.reader in (HEADLESS, LAST_ERROR) for pattern in counted):
            return None
        behind = [pattern for pattern, is_alone in known.steps if not is_alone]
        is_exact = [bool(variants) or pattern.digits or pattern.reader in (HEADLESS, LAST_ERROR) for pattern in behind]
        remembered = [pattern for pattern, exact in zip(behind, is_exact, strict=True) if not exact]
        tried = [pattern for pattern, exact in zip(behind, is_exact, strict=True) if exact]
        lines = tuple(sorted({pattern.lines or 1 for pattern in remembered} or {1})) if behind else ()
        return _Outcome(tuple(counted), any(map(is_dated, counted)), tuple(remembered), tuple(tried), lines, set())
