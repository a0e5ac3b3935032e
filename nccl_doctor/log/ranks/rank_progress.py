"""Progress of ranks: which rank printed lines of which shape, how often and where last, in the last part of a log.

It needs no NCCL line: when 30 of 32 ranks printed `running step 12` last and two did not, the two are named. Lines without a label
count where the file is of one rank.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Progress
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_checks import kind_of
from nccl_doctor.log import nccl_header
from nccl_doctor.log.nccl_header import NcclHeader
from nccl_doctor.log.ranks.file_ranks import Writer
from nccl_doctor.log.ranks.rank_map import RankMap

_NCCL = nccl_header.TOKEN.encode()  # a line that holds it says nothing of a rank's progress
_NUMBER = compiled(r"0x[0-9a-fA-F]+|\d+(?:[.,:/]\d+)*")
_IN_TEXT = compiled(r"\b(?:[Gg]lobal |[Ll]ocal )?[Rr](?:ank|ANK)(?! ?==)[ =:_#]*(\d+)\b|\bworker[ _](\d+)\b")
_LETTERS = compiled(
    rb"(?<![x\xfe])\xfe"
)  # masks of a number with letters that is no code behind `0x`: not all of its signs are digits
_CODE = ("def ", "class ", "self,", "self.", "elif ", "return ")  # a program that a log shows
TAIL = 4 << 20  # bytes at the end of a log that are looked at
_SHAPES = 300  # different shapes kept per label
_MAX = 300  # characters of a line that make its shape
_SHORTEST = 4  # characters of a line that count
_MEMO = 10_000  # shapes remembered
_PADDED = compiled(rb" {0,5}(\d{1,6}):")
_BLANK = (b"", b"\r")
_REPORT, _REPORT_HEAD = b"Start of NVIDIA bug report log file", 300  # bytes in which it begins
_HOSTS = 64  # without ranks, of which all that they printed is kept


class ShapeCount:
    """Lines of one shape behind one label."""

    __slots__ = ("host", "last", "line", "n", "rank", "shape", "text")

    def __init__(self, rank: int | None, host: str | None) -> None:
        self.rank = rank
        self.host = host
        self.n = 0
        self.last = 0  # line of the tail
        self.line = b""  # that line, and its text without the label; None where that was not parsed
        self.text: str | None = None
        self.shape = b""


class RankProgress(NamedTuple):
    """The lines of the last part of a log, by label and shape."""

    seen: dict[tuple[str, str], ShapeCount]  # label, empty for lines without one; shape
    lines: int  # of that part

    @property
    def is_labelled(self) -> bool:
        """Whether a line says whose it is."""
        return any(label for label, _ in self.seen)


def of_programs(head: bytes, progress: RankProgress) -> RankProgress:
    """The progress in a log; none in the report of `nvidia-bug-report.sh`, whose `reg00: ` and ` 31: ` are no hosts and no tasks.

    Numbers that are padded wider than the largest of them, as Rust writes the frames of a stack and the causes of an error, are no
    tasks either: srun pads to the width of its largest.
    """
    if _REPORT in head[:_REPORT_HEAD]:
        return RankProgress({}, progress.lines)
    numbered = {key: _PADDED.match(entry.line) for key, entry in progress.seen.items() if entry.rank is not None}
    if not numbered or any(found is None or len(found[1]) == found.end() - 1 for found in numbered.values()):
        return progress
    return RankProgress({key: entry for key, entry in progress.seen.items() if key not in numbered}, progress.lines)


def collect(tail: bytes) -> RankProgress:
    """Count the labelled lines of the last part of a log, of which `TAIL` bytes are looked at.

    Lines that differ only in digits and codes are one shape and have their labels in the same place: the first one of a label is parsed.
    """
    tail = _whole_lines(tail)
    lines, raws = _Lines(), tail.split(b"\n")
    numbers: Sequence[int] = range(1, len(raws) + 1)
    if _NCCL in tail or b"\n\n" in tail or b"\n\r\n" in tail:
        numbers = [number for number, raw in enumerate(raws, 1) if raw not in _BLANK and _NCCL not in raw]
        raws = [raws[number - 1] for number in numbers]
    for number, raw, shape in zip(numbers, raws, digit_shapes.shapes_of(raws), strict=False):
        lines.add(number, raw, shape or digit_shapes.shape_of(raw))
    return lines.progress(tail.count(b"\n") + (not tail.endswith(b"\n") and bool(tail)))


def _whole_lines(tail: bytes) -> bytes:
    """The last `TAIL` bytes, from the first line that begins in them on: `01: step 12` of a line that was cut names another host."""
    if len(tail) <= TAIL:
        return tail
    before, tail = tail[-TAIL - 1], tail[-TAIL:]
    end = tail.find(b"\n")
    redrawn = b"\r" in tail[:end].rstrip(b"\r")  # what stands behind the last carriage return is whole
    return tail if before in b"\n\r" or end < 0 or redrawn else tail[end + 1 :]


class _Found(NamedTuple):
    """What a line says of a rank's progress."""

    name: str
    rank: int | None
    host: str | None
    text: str  # without the label
    number: tuple[
        tuple[int, int], ...
    ]  # where the number of a rank begins and ends that is in the text, not in a label


class _OfHosts(NamedTuple):
    """Lines of a shape that name a host and nothing else."""

    begin: int  # where the host is
    end: int
    template: str
    hosts: dict[bytes, str]


class _Lines:
    """Counts lines by label and shape."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], ShapeCount] = {}
        self._per_label: dict[str, int] = {}
        self._once: set[bytes] = set()  # shapes of lines that came once, or whose labels may be anywhere
        self._places: dict[bytes, tuple[tuple[int, int], ...]] = {}  # shape of a line -> where it says who wrote it
        self._counts: dict[
            tuple[bytes, ...], ShapeCount | None
        ] = {}  # shape and who wrote it; None where nothing counts

        self._words: dict[
            bytes, tuple[tuple[int, int], ...]
        ] = {}  # shape -> words whose own digits decide where prefixes end
        self._layouts: dict[tuple[Any, ...], prefixes.Found] = {}  # by shape and the kinds of these words
        self._as_layout: set[tuple[Any, ...]] = set()  # those of whose lines `_split` says the same
        self._labels: dict[tuple[Any, ...], prefixes.Label] = {}  # by layout and what the words say that name a writer
        self._of_hosts: dict[bytes, _OfHosts] = {}  # shape of lines that name a host and nothing else
        self._hosts: dict[tuple[Any, ...], dict[bytes, str]] = {}  # by layout: hosts as such lines write them

    def add(self, number: int, raw: bytes, shape: bytes) -> None:
        """Count a line."""
        if (of_hosts := self._of_hosts.get(shape)) is not None:
            begin, end, template, hosts = of_hosts
            if (host := hosts.get(raw[begin:end])) is not None:
                self._count_of_host(host, template, raw, shape, number)
                return
        places = self._places.get(shape)
        if places is None:
            count = self._parsed(raw, shape)
        else:
            try:
                count = self._counts[shape, *[raw[begin:end] for begin, end in places]]
            except KeyError:
                count = self._parsed(raw, shape)
            else:
                if count is not None:
                    count.text, count.shape = None, shape
        if count is not None:
            count.n += 1
            count.last, count.line = number, raw

    def _parsed(self, raw: bytes, shape: bytes) -> ShapeCount | None:
        """Where a line is counted; those of its writer that come after the second one of its shape are found by their bytes."""
        known = self._split(raw, shape)
        line, label, text = known or _split(raw)
        found = _found_in(line, label, text)
        count = None if found is None else self._count(found)
        places = self._places.get(shape) if known is not None else None
        if places is not None and (found is None or not found.number or found.number[0] in places):
            self._counts[shape, *[raw[begin:end] for begin, end in places]] = count
        elif shape not in self._once:
            if len(self._once) < _MEMO:
                self._once.add(shape)
        elif raw.isascii() and (layout := self._layout(raw.decode(), shape)) is not None:
            names = {(begin, end) for name, begin, end in layout.fields if name in prefixes.NAMES}
            places = (*self._places.get(shape, ()), *names, *layout.words, *(found.number if found is not None else ()))
            self._places[shape] = tuple(sorted({*places}))
            self._counts[shape, *[raw[begin:end] for begin, end in self._places[shape]]] = count
            if known is None and raw.decode() == line and line[layout.end :] == text:
                if len(self._labels) >= _MEMO:
                    self._labels.clear()
                self._labels[_names_in(line, layout)] = label
                self._as_layout.add(self._key(line, shape))
                self._remember_host(line, layout, label, shape, found)
        return count

    def _remember_host(
        self, line: str, layout: prefixes.Found, label: prefixes.Label, shape: bytes, found: _Found | None
    ) -> None:
        """Have lines of a shape counted by their host alone, where nothing else of them counts."""
        spans = [(begin, end) for name, begin, end in layout.fields if name in prefixes.NAMES]
        if found is None or found.number or len(spans) != 1 or {*layout.words} - {*spans} or _LETTERS.search(shape):
            return
        begin, end = spans[0]
        host = line[begin:end]
        if host == found.name == label.host and found.rank is None and len(self._hosts) < _MEMO:
            hosts = self._hosts.setdefault((layout.fields, layout.words, layout.end, kind_of(host)), {})
            hosts[host.encode()] = host
            self._of_hosts.setdefault(shape, _OfHosts(begin, end, _template(found.text), hosts))

    def _count_of_host(self, host: str, template: str, raw: bytes, shape: bytes, number: int) -> None:
        """Count a line that names a host and nothing else."""
        count = self._seen.get((host, template))
        if count is None:
            if self._per_label.get(host, 0) >= _SHAPES:
                return
            self._per_label[host] = self._per_label.get(host, 0) + 1
            count = self._seen[host, template] = ShapeCount(None, host)
        count.n += 1
        count.last, count.line, count.text, count.shape = number, raw, None, shape

    def _split(self, raw: bytes, shape: bytes) -> tuple[str, prefixes.Label, str] | None:
        """As `_split`, of a line whose shape and whose writer came before; None for another one."""
        if shape not in self._words or not raw.isascii():
            return None
        line = raw.decode()
        key = self._key(line, shape)
        layout = self._layouts.get(key) if key in self._as_layout else None
        label = None if layout is None else self._labels.get(_names_in(line, layout))
        return None if layout is None or label is None else (line, label, line[layout.end :])

    def _key(self, line: str, shape: bytes) -> tuple[Any, ...]:
        """What decides where the prefixes of a line are."""
        return shape, *[kind_of(line[begin:end]) for begin, end in self._words.get(shape, ())]

    def _layout(self, line: str, shape: bytes) -> prefixes.Found | None:
        """As `_layout`, which is asked once for all lines of a shape with words of the same kinds."""
        known = self._layouts.get(self._key(line, shape))
        if known is not None:
            return known
        found = _layout(line, shape)
        if found is not None:
            if len(self._layouts) >= _MEMO:
                self._layouts.clear()
                self._as_layout.clear()
            self._words[shape] = tuple(dict.fromkeys((*self._words.get(shape, ()), *found.words)))
            self._layouts[self._key(line, shape)] = found
        return found

    def _count(self, found: _Found) -> ShapeCount | None:
        """Where a line is counted; None where enough shapes of its label are kept."""
        key = (found.name, _template(found.text))
        count = self._seen.get(key)
        if count is None:
            if self._per_label.get(found.name, 0) >= _SHAPES:
                return None
            self._per_label[found.name] = self._per_label.get(found.name, 0) + 1
            count = self._seen[key] = ShapeCount(found.rank, found.host)
        count.text = found.text
        return count

    def progress(self, lines: int) -> RankProgress:
        """What was counted in so many lines."""
        return RankProgress(self._seen, lines)


def _layout(line: str, shape: bytes) -> prefixes.Found | None:
    """Where the prefixes are of all lines of a shape; None where they may differ."""
    found = prefixes.layout(line)
    return found if all(prefixes.layout(other) == found for other in digit_shapes.variants(line, shape)) else None


def _text_of(raw: bytes) -> str:
    """A line without what carriage returns wiped."""
    line = raw.decode("utf-8", "replace")
    if "\r" in line:
        line = line.strip("\r") if line.endswith("\r") else line.rpartition("\r")[2]
    return line


@lru_cache(_MEMO)  # many hosts print the same
def _template(text: str) -> str:
    return _NUMBER.sub("#", text)


def _names_in(line: str, layout: prefixes.Found) -> tuple[Any, ...]:
    """What a line says of its writer, and where."""
    return layout.fields, *[line[begin:end] for name, begin, end in layout.fields if name in prefixes.NAMES]


def _split(raw: bytes) -> tuple[str, prefixes.Label, str]:
    """A line, who wrote it, and its text without prefixes."""
    line = prefixes.clean(_text_of(raw))
    return line, *prefixes.split(line)


def _found_in(line: str, label: prefixes.Label, text: str) -> _Found | None:
    """What a line says of a rank's progress, without a name where it names no rank and no host."""
    if not line:
        return None
    host: str | None = None
    number: tuple[tuple[int, int], ...] = ()
    if label.rank is not None:
        name, rank, host = f"rank {label.rank}", label.rank, label.host
    elif label.host is not None and label.local_rank is None and label.pid is None:
        name, rank, host = label.host, None, label.host
    else:
        match = _IN_TEXT.search(text[:120])
        if match is None or text.lstrip().startswith(_CODE):
            own = label.host is None and label.local_rank is None and label.pid is None
            return _Found("", None, None, text[:_MAX], ()) if own and len(text := text.strip()) >= _SHORTEST else None
        rank = int(match[1] or match[2])
        name, host = f"rank {rank}", label.host
        start, end = match.span(1 if match[1] else 2)
        before = len(line) - len(text)
        number = ((before + start, before + end),)
        text = text[: match.start()] + "<rank>" + text[match.end() :]
    text = text.strip()[:_MAX]
    return _Found(name, rank, host, text, number) if len(text) >= _SHORTEST else None


def _telling(seen: dict[tuple[str, str], ShapeCount]) -> list[tuple[tuple[str, str], ShapeCount]]:
    """What rows are made of."""
    ends: dict[str, tuple[ShapeCount, ShapeCount]] = {}  # of the labels that name no rank, what came first and last
    for (name, _), entry in seen.items():
        if name and entry.rank is None:
            first, last = ends.get(name, (entry, entry))
            ends[name] = first, max(last, entry, key=lambda one: one.last)
    entries = list(seen.items())
    if len(ends) <= _HOSTS:
        return entries
    return [(key, entry) for key, entry in entries if entry.n > 1 or entry in ends.get(key[0], (entry,))]


def rows(
    facts: Facts, file: str, counted: RankProgress, lines: int, ranks: RankMap, owner: Writer | None
) -> Iterator[Progress]:
    """Rows for a log of so many lines.

    Of many hosts without ranks, such as nodes of which each shows its ports, the first and the last line count, and what came again.
    """
    before = lines - counted.lines
    for (name, shape), entry in _telling(counted.seen):
        rank, place = entry.rank, ranks.host(entry.host)
        if not name:
            if owner is None:
                continue
            place, rank = owner
            name = f"rank {rank}"
        if place is None and rank is not None:
            place = ranks.place(
                NcclHeader(None, None, None, None, None, nccl_header.NO_LABEL._replace(rank=rank), True)
            )
        ref = facts.evidence(file, before + entry.last, prefixes.clean(_text_of(entry.line)))
        text = entry.text
        if text is None:
            found = _found_in(*_split(entry.line))
            text = found.text if found is not None else ""
        values = " ".join(_NUMBER.findall(text)) or None
        yield Progress(name, rank, place, shape, entry.n, values, before + entry.last, ref)
