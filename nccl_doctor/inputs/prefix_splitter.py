"""Takes the launcher prefixes off many lines of a stream at once.

Lines that differ in digits only have their prefixes at the same places, see `prefixes.layout`, so a prefix is looked for once for all
lines of a shape. The words whose digits matter, because they name the writer, are read from each line.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, groupby, takewhile
from operator import itemgetter

from nccl_doctor.common import digit_shapes
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_checks import MOST_TOLD, kind_of
from nccl_doctor.inputs.prefixes import NOTHING, ZEROS, Label, Peeled

_FEW, _MANY = 8, 512  # lines that are looked at together behind one with another prefix, and in the middle
_SHAPES = 1 << 14  # texts without digits that are remembered
_TOGETHER = 1 << 6  # new lines whose hexadecimal numbers are looked for at once
_RUNS = 1 << 6  # texts of many lines without digits that are remembered
_KINDS = 1 << 8  # of prefixes
_SHORT = 4  # runs of fewer lines than this, so many one after another, are of prefixes that change with each line

_LEAST_BLOCK, _BLOCK = 1 << 11, 1 << 15  # bytes that are cut into lines at once where no run of one writer is found
_WORD = re.compile(rb"[\w.-]{1,252}: ")
_RUN = re.compile(rb"([\w.-]{1,252}: )[^\n]*(?:\n\1[^\n]*){0,4000}")  # lines behind one word

_FORM_SHAPES = 1 << 13  # remembered
_LONGEST = 500  # bytes of a line whose shape is remembered
_WRITERS = 1 << 14  # remembered of lines of one form

Find = Callable[[bytes], Peeled | None]  # the prefixes of a line; None for a line that does not speak for its shape
Single = Callable[[bytes], tuple[Label, bytes] | None]  # label and text of a line; None for one to leave out


class _Form:
    """Where lines of some shapes have their prefixes, and the words whose digits matter."""

    __slots__ = ("end", "labels", "text_of", "words", "words_of")

    def __init__(self, end: int, words: tuple[tuple[int, int], ...]) -> None:
        self.end = end
        self.words = words
        self.words_of = itemgetter(*([slice(*word) for word in words] or [slice(0)]))  # one text, or several
        self.text_of = itemgetter(slice(end, None))
        self.labels: dict[object, Label | None] = {}  # by what the words say; None for lines to leave out


class PrefixForms:
    """Takes the prefixes off the lines of a stream; `left_out` are lines without one."""

    def __init__(self, find: Find, single: Single, *, left_out: bool) -> None:
        self._find = find
        self._single_line = single
        self._left_out = left_out
        self._known: dict[bytes, _Form] = {}  # line without digits -> its form
        self._forms: dict[tuple[int, tuple[tuple[int, int], ...]], _Form] = {}
        self._single = _Form(0, ())  # of lines that are looked at one by one
        self._labels: dict[tuple[Label, bool], Label] = {}  # one for each writer, and one for lines without a prefix

    def runs(self, lines: Sequence[bytes], data: bytes) -> Iterator[tuple[Label, int, list[bytes]]]:
        """Label, place of the first, and texts of neighbouring lines of one writer; `data` are the lines with the ends between them."""
        shapes = data.translate(ZEROS).split(b"\n")
        forms = list(map(self._known.get, shapes))
        if None in forms:
            forms = [form or self._form(*pair) for form, *pair in zip(forms, shapes, lines, strict=True)]
        end = 0
        for form, same in groupby(forms):
            start, end = end, end + len(list(same))
            yield from self._of(form or self._single, lines, start, end)

    def _of(
        self, form: _Form, lines: Sequence[bytes], start: int, stop: int
    ) -> Iterator[tuple[Label, int, list[bytes]]]:
        """The runs of lines of a form, from place `start` to `stop`."""
        if form is self._single:
            for at in range(start, stop):
                if (found := self._single_line(lines[at])) is not None:
                    yield found[0], at, [found[1]]
            return
        end = start
        for words, same in groupby(map(form.words_of, lines[start:stop])):
            first, end = end, end + len(list(same))
            if words not in form.labels and not self._learn(form, words, lines[first]):
                yield from self._of(self._single, lines, first, end)
            elif (label := form.labels[words]) is not None:
                yield label, first, list(map(form.text_of, lines[first:end]))

    def _learn(self, form: _Form, words: object, line: bytes) -> bool:
        """Keep what words say that were not seen in this form; False where they show that the digits of others matter, too."""
        found = self._find(line)
        if found is None or (found.end, found.words) != (form.end, form.words):
            self._known[line.translate(ZEROS)] = self._single
            return False
        if len(form.labels) >= _WRITERS:
            form.labels.clear()
        label = self._labels.setdefault((found.label, bool(found.end)), found.label)
        form.labels[words] = None if self._left_out and not found.end else label
        return True

    def _form(self, shape: bytes, line: bytes) -> _Form:
        """The form of a line of a shape that is new, or that came for the first time in this block."""
        known = self._known.get(shape)
        if known is not None:
            return known
        found = self._find(line) if len(line) <= _LONGEST else None
        if found is None or not line[: max([found.end, *(stop for _, stop in found.words)])].isascii():
            return self._single
        known = self._forms.setdefault((found.end, found.words), _Form(found.end, found.words))
        if len(self._known) >= _FORM_SHAPES:
            self._known.clear()
        self._known[shape] = known
        return known


class _Behind:
    """What was found behind prefixes of one kind."""

    __slots__ = ("codes", "lines", "runs", "whole")

    def __init__(self) -> None:
        self.codes: set[bytes] = set()  # shapes of texts with hexadecimal numbers that have no further prefix
        self.lines: dict[bytes, bool] = {}  # text without digits -> has no further prefix
        self.runs: set[bytes] = set()  # the same of several lines of which none has one
        self.whole: set[bytes] = set()  # the same of runs with their prefixes


def _surely(word: str | None) -> frozenset[str]:
    """The word, if it can be nothing else than a host where no number follows."""
    return frozenset((word,)) if word is not None and kind_of(word) == (False, False) else frozenset()


class PrefixSplitter:
    """Takes the prefixes off many lines, as `prefixes.split` does off one; without the time stamps, which differ on each line.

    A line that goes on with a number behind the host of the line before it has that host, too; alone, `node01: 97 %` may be about a device.

    Most lines have the prefix of the line before them, and differ from an earlier line in digits only: these are not examined
    again, see `prefixes.layout`.
    """

    def __init__(self, opened: Callable[[str], str] = str) -> None:
        """`opened` gives the line that another one wraps."""
        self._opened = opened
        self._prefix = b""
        self._label = NOTHING
        self._most = _FEW
        self._block = _LEAST_BLOCK  # the next one: larger where no run was found in the one before
        self._run = 0  # lines since the prefix was another; the next writer may have as many
        self._short = 0  # short runs one after another
        self._forms = PrefixForms(self._found, self._single_line, left_out=False)
        self._behind: dict[object, _Behind] = {}  # by the kind of the prefix
        # Prefixes that are one word: its field, and what was found behind; None where the digits of the word matter.
        self._alike: dict[bytes, tuple[str, _Behind | None]] = {}
        self._known = self._behind.setdefault(b"", _Behind())  # of the kind of the prefix

    def split(self, data: bytes) -> Iterator[tuple[Label, list[str]]]:
        """The lines of a text, which ends behind the last character of the last one: as many as have the same label, and their texts."""
        at = 0
        while at <= len(data):
            word = _WORD.match(data, at) if self._short < _SHORT else None
            is_run = word is not None and (word[0] == self._prefix or self._switch(word[0]))
            if is_run and (run := _RUN.match(data, at)) is not None:
                at = yield from self._run_of(data, at, run)
            else:
                at = yield from self._some(data, at)

    def _run_of(self, data: bytes, at: int, run: re.Match[bytes]) -> Generator[tuple[Label, list[str]], None, int]:
        """The lines of a run that begins at a place with the prefix; returns the place behind them."""
        shape = run[0].translate(prefixes.ZEROS)
        if shape in self._known.whole:
            begin = self._prefix.decode("ascii")
            texts = run[0].decode("utf-8", "replace")[len(begin) :].split("\n" + begin)
            self._short = self._short + 1 if len(texts) < _SHORT else 0
            yield self._label, texts
            return run.end() + 1
        text = (b"\n" + run[0]).replace(b"\n" + self._prefix, b"\n")[1:]
        texts = self._plain(text)
        lines = text.count(b"\n") + 1
        self._short = self._short + 1 if lines < _SHORT else 0
        if len(texts) == lines and b"\r" not in text:
            if len(self._known.whole) >= _RUNS:
                self._known.whole.clear()
            self._known.whole.add(shape)
        if texts:
            yield self._label, texts
        if len(texts) == lines:
            return run.end() + 1
        for _ in texts:
            at = data.index(b"\n", at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield self._single(data[at:end].rstrip(b"\r"))
        return end + 1

    def _some(self, data: bytes, at: int) -> Generator[tuple[Label, list[str]], None, int]:
        """Some lines from a place on, up to one with which a run may begin; returns the place behind them."""
        whole = data.rfind(b"\n", at, at + self._block) if len(data) > at + self._block else len(data)
        end = whole if whole >= 0 else data.find(b"\n", at)
        lines = data[at : len(data) if end < 0 else end].split(b"\n")
        place = 0
        while place < len(lines):
            texts = self._same(lines[place : place + self._most]) if lines[place].startswith(self._prefix) else []
            if texts:
                yield self._label, texts
                place += len(texts)
                self._run += len(texts)
            if len(texts) == self._most:
                self._most = min(2 * self._most, _MANY)
            elif place < len(lines):
                self._most, self._short = min(self._run or _FEW, _MANY), self._short + 1 if self._run < _SHORT else 0
                self._run = 0
                if self._short >= _SHORT:
                    many = lines[place : place + _MANY]
                    yield from self._changing(many)
                    place += len(many)
                    run = _RUN.match(b"\n".join(lines[place : place + _SHORT]))
                    self._short = 0 if run is not None and run[0].count(b"\n") + 1 >= _SHORT else self._short
                else:
                    yield self._single(lines[place].rstrip(b"\r"))
                    place += 1
                if self._prefix.endswith(b": ") and self._short < _SHORT:
                    break
        if place == len(lines):
            self._block = min(2 * self._block, _BLOCK)
            return (len(data) if end < 0 else end) + 1
        self._block = _LEAST_BLOCK
        return at + sum(map(len, lines[:place])) + place

    def _changing(self, lines: Sequence[bytes]) -> Iterator[tuple[Label, list[str]]]:
        """The same of lines with prefixes that change."""
        data = b"\n".join(lines)
        if b"\r" in data:
            lines = [line.rstrip(b"\r") for line in lines]
            data = b"\n".join(lines)
        together: list[bytes] = []
        last = NOTHING
        for label, _, texts in self._forms.runs(lines, data):
            if label is not last and together:
                yield last, [text.decode("utf-8", "replace") for text in together]
                together = []
            last = label
            together += texts
        if together:
            yield last, [text.decode("utf-8", "replace") for text in together]

    def _found(self, raw: bytes) -> Peeled | None:
        line = raw.decode("utf-8", "replace")
        found = prefixes.layout(line) if self._opened(line) == line else None
        if found is None:
            return None
        label, text = prefixes.split(line, timeless=True)
        named = (span for name, *span in found.fields if name in prefixes.NAMES)
        words = tuple(dict.fromkeys((start, stop) for start, stop in (*named, *found.words)))
        return Peeled(label, found.end, words) if line[found.end :] == text else None

    def _single_line(self, raw: bytes) -> tuple[Label, bytes]:
        line = self._opened(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
        label, text = prefixes.split(prefixes.clean(line), timeless=True)
        return label, text.encode("utf-8", "replace")

    def _same(self, lines: Sequence[bytes]) -> list[str]:
        """The texts of the first lines, as far as they have the prefix and no other."""
        begin = b"\n" + self._prefix
        text = b"\n" + b"\n".join(lines)
        if text.count(begin) < len(lines):
            lines = list(takewhile(lambda line: line.startswith(self._prefix), lines))
            text = b"\n" + b"\n".join(lines)
        return self._plain(text.replace(begin, b"\n")[1:]) if lines else []

    def _plain(self, text: bytes) -> list[str]:
        """The first lines behind the prefix, as far as they have no other."""
        if b"\r" in text:
            text = b"\n".join(line.rstrip(b"\r") for line in text.split(b"\n"))
        shape = text.translate(prefixes.ZEROS)
        texts = text.decode("utf-8", "replace").split("\n")
        if shape in self._known.runs:
            return texts
        shapes = shape.split(b"\n")
        plain = len(shapes)
        if not all(map(self._known.lines.get, shapes)):
            lines = text.split(b"\n")
            parts = (slice(at, at + _TOGETHER) for at in range(0, plain, _TOGETHER))
            are_plain = chain.from_iterable(self._are_plain(shapes[part], lines[part]) for part in parts)
            plain = next((at for at, is_plain in enumerate(are_plain) if not is_plain), plain)
        if plain == len(shapes) > 1:
            if len(self._known.runs) >= _RUNS:
                self._known.runs.clear()
            self._known.runs.add(shape)
        return texts[:plain]

    def _are_plain(self, shapes: Sequence[bytes], texts: Sequence[bytes]) -> Iterator[bool]:
        """Whether each of these texts has no further prefix."""
        lines = self._known.lines
        new = [at for at, shape in enumerate(shapes) if shape not in lines]
        coded = dict(zip(new, digit_shapes.shapes_of([texts[at] for at in new]), strict=True))
        for at, (shape, text) in enumerate(zip(shapes, texts, strict=True)):
            known = lines.get(shape)
            yield self._is_plain(shape, text, coded.get(at, b"")) if known is None else known

    def _is_plain(self, shape: bytes, text: bytes, coded: bytes) -> bool:
        """The same of a new text; in the shape `coded` its hexadecimal numbers are masked."""
        if coded in self._known.codes:
            return True
        line = text.decode("utf-8", "replace")
        is_plain = self._has_no_prefix(line)
        if is_plain and (variants := digit_shapes.variants(line, coded)) and all(map(self._has_no_prefix, variants)):
            if len(self._known.codes) >= _SHAPES:
                self._known.codes.clear()
            self._known.codes.add(coded)
        else:
            if len(self._known.lines) >= _SHAPES:
                self._known.lines.clear()
            self._known.lines[shape] = is_plain
        return is_plain

    def _has_no_prefix(self, text: str) -> bool:
        """Whether a text behind the prefix has no further one, whatever its digits are."""
        begin = self._prefix.decode("utf-8", "replace")
        line = begin + text
        found = prefixes.layout(line) if self._opened(line) == line else None
        size = len(begin)
        return (
            found is not None
            and all(end <= size for _, end in found.words)
            and (self._label, text)
            in (prefixes.split(line, timeless=True), prefixes.split(line, _surely(self._label.host), timeless=True))
        )

    def _switch(self, prefix: bytes) -> bool:
        """Whether a prefix is that of another writer of a known kind; its lines are looked for then."""
        shape = prefix.translate(prefixes.ZEROS)
        field, known = self._alike.get(shape, ("", None))
        word = prefix[:-2].decode("ascii", "replace")
        if field and known is None:
            known = self._behind.get((shape, (kind_of(word),)))
        if known is None:
            return False
        self._prefix, self._known = prefix, known
        self._label = Label(host=word) if field == "host" else Label(rank=int(word))
        return True

    def _single(self, raw: bytes) -> tuple[Label, list[str]]:
        line = self._opened(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
        label, text = prefixes.split(prefixes.clean(line), timeless=True)
        found = prefixes.layout(line)
        if found is not None and not all(name in prefixes.NAMES for name, *_ in found.fields):
            found = None  # another line has another time
        prefix = line[: found.end].encode() if found is not None else b""
        if found is not None and raw.startswith(prefix) and bool(prefix) == (label != NOTHING):
            kinds = tuple(kind_of(line[start:end]) for start, end in found.words if end <= found.end)
            self._prefix, self._label = prefix, label
            if len(self._behind) >= _KINDS:
                self._behind.clear()
                self._alike.clear()
            shape = prefix.translate(prefixes.ZEROS)
            self._known = self._behind.setdefault((shape, kinds), _Behind())
            fields = [name for name, *span in found.fields if prefix.isascii() and span == [0, len(prefix) - 2]]
            if prefix.endswith(b": ") and fields in (["host"], ["weak"]):
                self._alike[shape] = fields[0], None if kinds and len(prefix) <= MOST_TOLD + 2 else self._known
        return label, [text]
