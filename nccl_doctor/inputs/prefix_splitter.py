"""Takes the launcher prefixes off many lines of a stream at once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_checks import kind_of
from nccl_doctor.inputs.prefixes import NOTHING, Label

_FEW, _MANY = 8, 512  # lines that are looked at together behind one with another prefix, and in the middle
_SHAPES = 1 << 14  # texts without digits that are remembered
_RUNS = 1 << 6  # texts of many lines without digits that are remembered
_KINDS = 1 << 8  # of prefixes


class _Behind:
    """What was found behind prefixes of one kind."""

    __slots__ = ("lines", "runs")

    def __init__(self) -> None:
        self.lines: dict[bytes, bool] = {}  # text without digits -> has no further prefix
        self.runs: set[bytes] = set()  # the same of several lines of which none has one


class PrefixSplitter:
    """Takes the prefixes off many lines, as `prefixes.split` does off one.

    Most lines have the prefix of the line before them, and differ from an earlier line in digits only: these are not examined
    again, see `prefixes.layout`.
    """

    def __init__(self, opened: Callable[[str], str] = str) -> None:
        """`opened` gives the line that another one wraps."""
        self._opened = opened
        self._prefix = b""
        self._label = NOTHING
        self._most = _FEW
        self._run = 0  # lines since the prefix was another; the next writer may have as many
        self._behind: dict[object, _Behind] = {}  # by the kind of the prefix
        self._alike: dict[
            bytes, tuple[str, bool]
        ] = {}  # prefixes that are one word: its field, and whether its digits matter
        self._known = self._behind.setdefault(b"", _Behind())  # of the kind of the prefix

    def split(self, lines: Sequence[bytes]) -> Iterator[tuple[Label, list[str]]]:
        """The lines one after another, without line ends: as many as have the same label, and their texts."""
        at = 0
        while at < len(lines):
            texts = self._same(lines[at : at + self._most]) if lines[at].startswith(self._prefix) else []
            if texts:
                yield self._label, texts
                at += len(texts)
                self._run += len(texts)
            if len(texts) == self._most:
                self._most = min(2 * self._most, _MANY)
            elif at < len(lines):
                self._most, self._run = min(self._run or _FEW, _MANY), 0
                if not self._switch(lines[at]):
                    yield self._single(lines[at].rstrip(b"\r"))
                    at += 1

    def _same(self, lines: Sequence[bytes]) -> list[str]:
        """The texts of the first lines, as far as they have the prefix and no other."""
        begin = b"\n" + self._prefix
        text = b"\n" + b"\n".join(lines)
        if text.count(begin) < len(lines):
            lines = list(takewhile(lambda line: line.startswith(self._prefix), lines))
            text = b"\n" + b"\n".join(lines)
        text = text.replace(begin, b"\n")[1:]
        if b"\r" in text:
            text = b"\n".join(line.rstrip(b"\r") for line in text.split(b"\n"))
        shape = text.translate(prefixes.ZEROS)
        plain = len(lines)
        if lines and shape not in self._known.runs:
            shapes = shape.split(b"\n")
            if not all(map(self._known.lines.get, shapes)):
                pairs = zip(shapes, text.split(b"\n"), strict=True)
                plain = next((at for at, pair in enumerate(pairs) if not self._is_plain(*pair)), plain)
            if plain == len(lines) > 1:
                if len(self._known.runs) >= _RUNS:
                    self._known.runs.clear()
                self._known.runs.add(shape)
        return text.decode("utf-8", "replace").split("\n")[:plain]

    def _is_plain(self, shape: bytes, text: bytes) -> bool:
        lines = self._known.lines
        known = lines.get(shape)
        if known is None:
            if len(lines) >= _SHAPES:
                lines.clear()
            line = (self._prefix + text).decode("utf-8", "replace")
            found = prefixes.layout(line) if self._opened(line) == line else None
            size = len(line) - len(text.decode("utf-8", "replace"))
            known = lines[shape] = (
                found is not None
                and all(end <= size for _, end in found.words)
                and prefixes.split(line) == (self._label, line[size:])
            )
        return known

    def _switch(self, raw: bytes) -> bool:
        """Whether a line has the prefix of another writer of a known kind, which `_same` then looks for."""
        prefix = raw[: raw.find(b": ") + 2]
        shape = prefix.translate(prefixes.ZEROS)
        field, asked = self._alike.get(shape, ("", False))
        word = prefix[:-2].decode("ascii", "replace")
        known = self._behind.get((shape, (kind_of(word),) if asked else ())) if field else None
        if known is None or prefix == self._prefix:
            return False
        self._prefix, self._known = prefix, known
        self._label = Label(host=word) if field == "host" else Label(rank=int(word))
        return True

    def _single(self, raw: bytes) -> tuple[Label, list[str]]:
        line = self._opened(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
        label, text = prefixes.split(prefixes.clean(line))
        found = prefixes.layout(line) if label.stamp is None else None
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
                self._alike[shape] = fields[0], bool(kinds)
        return label, [text]
