"""Lines of other programs that differ only in digits and hexadecimal numbers are read once.

A template says of all lines of a shape (`common.digit_shapes`) that hold the same literals: where their prefixes have who wrote
them, where their text begins, and which patterns match it. Patterns that ask which digit it is are matched with each line, and
what depends on the lines behind is known by their shapes. A line that no template covers goes through `TextLines`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.timestamps import whole_seconds_end
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_checks import kind_of
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.block_lines import BlockLines
from nccl_doctor.log.counts import EventKey
from nccl_doctor.log.line_patterns import CATALOGUE, LAST_ERROR, Pattern
from nccl_doctor.log.multiline import LineBehind
from nccl_doctor.log.texts.text_lines import (
    HEADLESS,
    Asked,
    LiteralPatterns,
    TextLines,
    hour_of,
    is_dated,
)

_MEMO = 10_000  # templates, writers, hours and records of several lines remembered

_IDLE_SHAPES = 256  # of lines behind those of one template remembered

_Who = Callable[[str], Hashable]  # the parts of a line that say who wrote it


class Hit(NamedTuple):
    """A line that holds literals of text patterns."""

    raw: bytes  # what no carriage return wiped
    literals: tuple[int, ...]
    at: int  # number in the block
    start: int  # offset in the block
    stop: int


class _Writer(NamedTuple):
    """Who wrote a line."""

    header: int
    writer: multiline.Writer | None


class _Writers:
    """Those who wrote lines that name them at the same places, whatever the text behind: most hosts of a capture print the same lines."""

    __slots__ = ("counted", "names", "who")

    def __init__(self, who: _Who) -> None:
        self.who = who
        self.names: dict[Hashable, multiline.Writer | None] = {}  # by what the words say
        self.counted: dict[Hashable, _Writer] = {}

    def name(self, line: str, who: Hashable) -> multiline.Writer | None:
        """Who wrote a line."""
        if who in self.names:
            return self.names[who]
        if len(self.names) > _MEMO:
            self.names.clear()
        writer = self.names[who] = multiline.writer_of(multiline.parts(line).label)
        return writer


class _Outcome(NamedTuple):
    """What lines of a template say for which the same of the patterns match that ask for digits."""

    counted: tuple[Pattern, ...]  # that match
    dated: bool  # whether one of them counts apart for each hour
    behind: tuple[Pattern, ...]  # that may match together with the lines behind
    lines: tuple[tuple[int, int], ...]  # how many lines behind decide, and of how many that they look at
    has_codes: bool  # whether the text holds hexadecimal numbers
    missed: set[
        tuple[tuple[bytes, ...], ...]
    ]  # shapes of such lines, and of a text with codes, with which none of `behind` matches


class _Idle:
    """With which lines behind it a line of a template says nothing."""

    __slots__ = ("always", "lines", "of_any", "shapes")

    def __init__(self) -> None:
        self.always = False
        self.of_any = False  # it names no writer, so that those lines may have any prefix
        self.lines = 0  # how many decide it
        self.shapes: set[bytes] = set()  # of those lines, where they have the prefix of the line


class _Template(NamedTuple):
    """Lines of one shape that hold the same literals."""

    start: int  # where the text begins
    writers: _Writers
    exact: tuple[Pattern, ...]  # patterns that ask for digits
    outcomes: dict[tuple[bool, ...], _Outcome | None]  # by which of `exact` match; None where each line is read alone
    idle: _Idle
    stamp: tuple[str, int, int] | None = None  # where the time is that counts, and its kind
    clock: int = 0  # where the seconds of a time end that does not

    def stamp_of(self, line: str) -> float | None:
        """The time stamp in the prefixes of a line."""
        return None if self.stamp is None else prefixes.seconds(self.stamp[0], line[self.stamp[1] : self.stamp[2]])


def _nobody(_line: str) -> Hashable:
    return ()


_ALONE = _Template(0, _Writers(_nobody), (), {}, _Idle())  # stands for shapes of which each line is read alone
_IDLE = _Template(
    0, _Writers(_nobody), (), {}, _Idle()
)  # for those that count for nothing: records of NCCL, which a `Classifier` reads


class TextTemplates:
    """Counts lines by their templates, and hands the others to a `TextLines`."""

    def __init__(self, lines: TextLines, counts: Any, literals: LiteralPatterns) -> None:
        self._lines = lines
        self._counts = counts
        self._literals = literals
        self._templates: dict[
            tuple[Any, ...], _Template
        ] = {}  # by shape, literals, and the kinds of the words that decided
        self._writers: dict[tuple[tuple[str, int, int], ...], _Writers] = {}  # by the places that name them
        self._seen: set[tuple[Any, ...]] = set()  # the same of lines that came once
        self._words: dict[bytes, tuple[tuple[int, int], ...]] = {}  # shape -> where words are whose own digits decided
        self._looks_behind = False  # whether some lines are read together with those behind them
        self._hours: dict[str, int | None] = {}  # what is in front of a line, up to the seconds -> its hour

    def add(self, hits: Sequence[Hit], numbers: Sequence[int], lines: BlockLines) -> None:
        """Count lines of a block, given in their order; `numbers[hit.at]` is the number of one, and `lines` gives those behind it."""
        shapes = digit_shapes.shapes_of([hit.raw for hit in hits])
        found = [self._template(hit, shape) for hit, shape in zip(hits, shapes, strict=True)]
        hits, shapes, found = self._not_idle(hits, shapes, found, lines)
        if self._looks_behind:
            for (raw, _, _, start, stop), template in zip(hits, found, strict=True):
                if template.outcomes and len(raw) == stop - start:
                    line = raw.decode("ascii")
                    writer = template.writers.name(line, template.writers.who(line))
                    lines.note(start, stop, LineBehind(len(raw), line[template.start :], writer, False))
        for hit, shape, template in zip(hits, shapes, found, strict=True):
            if template is _IDLE:
                continue
            if template is _ALONE or not self._add(template, hit, shape, numbers[hit.at], lines):
                text, behind = hit.raw.decode("utf-8", "replace"), partial(lines.behind, hit.stop)
                self._lines.add(text, numbers, hit.at, behind, self._literals.asked(hit.literals))

    def _not_idle(
        self, hits: Sequence[Hit], shapes: list[bytes], found: list[_Template], lines: BlockLines
    ) -> tuple[Sequence[Hit], list[bytes], list[_Template]]:
        """Those of the lines that may say something, alone or together with the lines behind them."""
        asked = [at for at, template in enumerate(found) if template.idle.shapes]
        kept = {at for at, template in enumerate(found) if not template.idle.always}
        following = [lines.next_lines(hits[at].stop, found[at].idle.lines) for at in asked]
        for at, behind, shape in zip(asked, following, _shapes_of_several(following), strict=True):
            raw, template = hits[at].raw, found[at]
            begin = b"\n" + raw[: template.start]
            if (
                shape in template.idle.shapes
                and (template.idle.of_any or behind.startswith(begin))
                and (template.idle.of_any or template.idle.lines == 1 or behind.count(begin) == template.idle.lines)
                and len(raw) == hits[at].stop - hits[at].start
            ):
                kept.remove(at)
        if len(kept) == len(found):
            return hits, shapes, found
        order = sorted(kept)
        return [hits[at] for at in order], [shapes[at] for at in order], [found[at] for at in order]

    def _template(self, hit: Hit, shape: bytes) -> _Template:
        """The template of a line; `shape` is empty where it is too long or not ASCII."""
        if not shape:
            return _ALONE
        raw, literals, *_ = hit
        words = self._words.get(shape)
        key: tuple[Any, ...] = (shape, literals)
        if words is not None:
            line = raw.decode("ascii")
            key = (*key, *[kind_of(line[begin:end]) for begin, end in words])
        template = self._templates.get(key)
        if template is None:
            return self._new(raw.decode("ascii"), shape, literals) if key in self._seen else self._first(key)
        return template

    def _add(self, template: _Template, hit: Hit, shape: bytes, number: int, lines: BlockLines) -> bool:
        """Count a line of a template; False where it has to be read alone."""
        line = hit.raw.decode("ascii")
        text = line[template.start :]
        matched = tuple([self._lines.matches(pattern, text) for pattern in template.exact]) if template.exact else ()
        outcome = template.outcomes.get(matched)
        if outcome is None:
            if matched in template.outcomes:
                return False
            outcome = self._outcome(template, line, shape, self._literals.asked(hit.literals))
            template.outcomes[matched] = outcome
            if outcome is None:
                return False
            self._looks_behind = self._looks_behind or bool(outcome.lines)
        if not outcome.counted and not outcome.lines:
            template.idle.always = not template.exact
            return True
        writers = template.writers
        who = writers.who(line)
        behind = partial(lines.behind, hit.stop)
        if outcome.lines and not self._stands_alone(outcome, text, writers.name(line, who), behind):
            return False
        if not outcome.counted:
            if len(outcome.lines) == 1 and not template.exact and not outcome.has_codes:
                template.idle.of_any = writers.name(line, who) is None
                self._note_idle(template, outcome, line, hit.stop, lines)
            return True
        writer = writers.counted.get(who)
        if writer is None:
            writer = self._writer(writers, line, who)
        hour = self._hour(template, line) if outcome.dated else None
        for pattern in outcome.counted:
            if self._lines.is_covered(pattern, writer.writer, number):
                continue
            key = (writer.header, pattern.order, "", text, hour if outcome.dated and is_dated(pattern) else None)
            if not self._counts.repeat(key, number):
                self._counts.count(EventKey(*key), 1, number, template.stamp_of(line), line[: template.start])
        return True

    def _note_idle(self, template: _Template, outcome: _Outcome, line: str, stop: int, lines: BlockLines) -> None:
        """Remember the shapes of the lines behind a line where they decided that it says nothing."""
        idle, count, left = template.idle, outcome.lines[0][0], line[: template.start]
        following = list(islice(lines.behind(stop), count))
        missed = (tuple([_shape_of(one.text) for one in following]),)
        if len(following) < count or missed not in outcome.missed:
            return
        told = "".join(f"\n{left}{one.text}" for one in following).encode()
        whole = lines.next_lines(stop, count) if idle.of_any else told
        if not whole or len(whole) > digit_shapes.LONGEST or not whole.isascii() or nccl_header.TOKEN.encode() in whole:
            return
        for one, raw in zip(following, whole.decode().split("\n")[1:], strict=True):
            found = prefixes.layout(raw)
            if one.is_record or found is None or found.end != len(raw) - len(one.text):
                return
            if any(idle.of_any or end > found.end for _, end in found.words):
                return
        if len(idle.shapes) > _IDLE_SHAPES:
            idle.shapes.clear()
        idle.lines = count
        idle.shapes.update(_shapes_of_several([whole]))

    def _writer(self, writers: _Writers, line: str, who: Hashable) -> _Writer:
        if len(writers.counted) > _MEMO:
            writers.counted.clear()
        header = self._lines.speaker(multiline.parts(line).label)
        writer = writers.counted[who] = _Writer(header, writers.name(line, who))
        return writer

    def _hour(self, template: _Template, line: str) -> int | None:
        """The hour in which a line was written."""
        left = line[: template.start]
        stamp = template.stamp_of(line)
        if stamp is not None or not template.clock:
            return hour_of(left, stamp)
        clock = left[: template.clock]
        if clock not in self._hours:
            hour = hour_of(clock, None)
            if hour is None:
                return hour_of(left, None)
            if len(self._hours) > _MEMO:
                self._hours.clear()
            self._hours[clock] = hour
        return self._hours[clock]

    def _stands_alone(
        self,
        outcome: _Outcome,
        text: str,
        writer: multiline.Writer | None,
        behind_it: Callable[[], Iterable[LineBehind]],
    ) -> bool:
        """Whether no pattern matches the text together with the lines behind it."""
        behind = multiline.LinesBehind(behind_it, writer)
        rows = [[row.text for row in behind.rows(*reach)] for reach in outcome.lines]
        if outcome.has_codes:
            rows.append([text])
        shapes = tuple([tuple([_shape_of(row) for row in of]) for of in rows])
        if shapes in outcome.missed:
            return True
        misses = self._lines.misses
        if any(multiline.joined(pattern, text, behind, misses) for pattern in outcome.behind):
            return False
        if all(row.isascii() and len(row) <= digit_shapes.LONGEST for row in chain(*rows)) and not any(
            multiline.may_join(pattern, text, behind) for pattern in outcome.behind
        ):
            if len(outcome.missed) > _MEMO:
                outcome.missed.clear()
            outcome.missed.add(shapes)
        return True

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
            self._writers.clear()
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
        names = tuple(field for field in fields if field[0] in prefixes.NAMES)
        writers = self._writers.get(names)
        if writers is None:
            spans = [slice(begin, end) for _, begin, end in names]
            writers = self._writers[names] = _Writers(itemgetter(*spans) if spans else _nobody)
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
        return _Template(
            start,
            writers,
            tuple(exact),
            {},
            _Idle(),
            stamps[-1] if stamps else None,
            whole_seconds_end(line[:start]),
        )

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
        behind = tuple(pattern for pattern, is_alone in known.steps if not is_alone)
        lines = tuple(sorted({(pattern.deciding, pattern.lines or 1) for pattern in behind}))
        return _Outcome(tuple(counted), any(map(is_dated, counted)), behind, lines, bool(variants), set())


def _shapes_of_several(texts: Sequence[bytes]) -> list[bytes]:
    """The shapes of texts of several lines."""
    return digit_shapes.shape_of(b"\0".join(texts)).split(b"\0") if texts else []


@lru_cache(512)
def _shape_of(text: str) -> bytes:
    return digit_shapes.shape_of(text.encode())
