"""Captures of which every line is behind the prefix of a launcher: the lines of each writer apart, without it.

    0: JobID|JobName|State                      srun -l
    node01: GPU: 0                              pdsh, clush
    [pod/train-0/main] # TYPE node_cpu_seconds_total counter
    2026-05-07T12:00:00.000000001Z stdout F {"nccl_version": "2.28.7", …

Only as many prefixes are taken off as it takes to recognise what is behind them: a time stamp that a program wrote itself stays.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nccl_doctor.common import budgets
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.prefix_splitter import PrefixForms
from nccl_doctor.inputs.prefixes import NOTHING, Label, Peeled
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LineNumbers

_MOST_PREFIXES = 3
_SHARE = 0.9  # of the lines that must have a prefix; a launcher's own messages have none
_FEWEST = 2  # lines
_WRITERS = 4_096
_BLOCK = 1 << 20
# srun pads its number, `  3: `; an empty line may have lost its blank.
_LABEL_WORD = re.compile(r" {0,5}([A-Za-z0-9][\w.-]{0,252}):(?: |$)")
_RUN_OF_WORD = re.compile(rb"( {0,5}[A-Za-z0-9][\w.-]{0,252}: )[^\n]*(?:\n\1[^\n]*){0,4000}")

Peel = Callable[[str], Peeled]  # finds one prefix


class Behind(NamedTuple):
    """What may be behind the prefixes of a capture."""

    text: bytes  # the first lines of the first writer
    peels: tuple[Peel, ...]  # what takes the prefixes off, the outermost first
    several: bool  # writers


class Part(NamedTuple):
    """The lines of one writer."""

    label: Label
    stream: Readable
    source_line: Callable[[int], int]  # from its lines to those of the whole stream


def _word(line: str) -> Peeled:
    """What srun, pdsh and clush write: whatever word stands before the colon, as all lines have one."""
    found = _LABEL_WORD.match(line)
    if found is None:
        return Peeled(NOTHING, 0, ())
    word = found[1]
    label = Label(rank=int(word)) if word.isdecimal() and len(word) < 8 else Label(host=word)
    return Peeled(label, found.end(), (found.span(1),))


def unlabelled(head: bytes) -> Iterator[Behind]:
    """What is behind one prefix, behind two, …, as long as nearly all lines have them."""
    text = head[: head.rfind(b"\n") + 1] or head
    lines = [_decoded(line) for line in text.split(b"\n")]
    peels: tuple[Peel, ...] = ()
    several = False
    for _ in range(_MOST_PREFIXES):
        found = next(((peel, peeled) for peel in (_word, prefixes.peel) if (peeled := _peeled(peel, lines))), None)
        if found is None:
            return
        peel, peeled = found
        peels = (*peels, peel)
        writers = [(of.host, of.rank) for of, _ in peeled]
        several = several or len(set(writers)) > 1
        lines = [line for writer, (_, line) in zip(writers, peeled, strict=True) if writer == writers[0]]
        yield Behind(_joined(lines), peels, several)


def _peeled(peel: Peel, lines: Sequence[str]) -> list[tuple[Label, str]]:
    """The lines without a prefix; none unless nearly all have one, the first among them."""
    written = [line for line in lines if line.strip()]
    if len(written) < _FEWEST or not peel(written[0]).end:
        return []
    found = [(of.label, line[of.end :]) for line in written if (of := peel(line)).end]
    return found if len(found) >= _SHARE * len(written) else []


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def peel_all(peels: Sequence[Peel], line: str) -> Peeled:
    """Take so many prefixes off a line; one that ends at 0 for a line that lacks one of them."""
    label, end = NOTHING, 0
    words: tuple[tuple[int, int], ...] = ()
    for peel in peels:
        outer, size, named = peel(line[end:])
        words += tuple((start + end, stop + end) for start, stop in named)
        if not size:
            return Peeled(NOTHING, 0, words)
        end += size
        label = Label(rank=outer.rank if outer.rank is not None else label.rank, host=outer.host or label.host)
    return Peeled(label, end, words)


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").rstrip("\r").removeprefix("\ufeff")


class _Written(NamedTuple):
    """Lines of one writer."""

    label: Label
    runs: list[tuple[int, int]]  # of neighbouring lines: number of the first, how many
    texts: list[bytes]  # without the prefixes


def _written(stream: Readable, peels: Sequence[Peel]) -> Iterator[_Written]:
    """What each writer wrote in a block, one block after the other.

    Lines without the prefixes, which are messages of the launcher, are left out.
    """

    def found(line: bytes) -> Peeled | None:
        return None if line.startswith(b"\xef") else peel_all(peels, _decoded(line))

    def single(line: bytes) -> tuple[Label, bytes] | None:
        text = _decoded(line)
        label, end, _ = peel_all(peels, text)
        return (label, text[end:].encode("utf-8", "surrogateescape")) if end else None

    forms = PrefixForms(found, single, left_out=True)
    for data, number in blocks(stream, _BLOCK):
        data = data.removesuffix(b"\n")
        if tuple(peels) == (_word,) and (written := _of_words(data, number)) is not None:
            yield from written.values()
            continue
        written = {}
        for label, first, texts in forms.runs(data.split(b"\n"), data):
            of = written.get(label) or written.setdefault(label, _Written(label, [], []))
            of.runs.append((number + first, len(texts)))
            of.texts.extend(texts)
        for of in written.values():
            if b"\r" in data:
                of.texts[:] = [text.rstrip(b"\r") for text in of.texts]
            yield of


def _of_words(data: bytes, number: int) -> dict[Label, _Written] | None:
    """What each writer wrote in a block, each with a word before all its lines; None where a line has none or another end."""
    written: dict[Label, _Written] = {}
    at = 0
    if b"\r" in data:
        return None
    while at <= len(data):
        run = _RUN_OF_WORD.match(data, at)
        if run is None:
            return None
        text = (b"\n" + run[0]).replace(b"\n" + run[1], b"\n")[1:]
        label = _word(run[1].decode("ascii")).label
        of = written.get(label) or written.setdefault(label, _Written(label, [], []))
        lines = text.count(b"\n") + 1
        of.runs.append((number, lines))
        of.texts.append(text)
        number += lines
        at = run.end() + 1
    return written


class Parts:
    """The parts of a stream. The lines of the first writer are read as they come, those of others held until their turn."""

    def __init__(self, stream: Readable, peels: Sequence[Peel]) -> None:
        self.problem: str | None = None  # what was left out
        self._written = _written(stream, peels)
        self._writers: dict[tuple[str | None, int | None], _Writer] = {}
        self._order: list[_Writer] = []
        self._held = 0

    def __iter__(self) -> Iterator[Part]:
        """Each part must be read before the next one is asked for."""
        done = 0
        while done < len(self._order) or self._next():
            writer = self._order[done]
            yield Part(writer.label, writer, writer.numbers.source_line)
            while self._next():  # what its reader left
                pass
            done += 1

    def _next(self) -> bool:
        """Give the next lines to their writer; False at the end."""
        written = next(self._written, None)
        if written is None:
            return False
        key = written.label.host, written.label.rank
        writer = self._writers.get(key)
        if writer is None:
            if len(self._writers) >= _WRITERS:
                self.problem = f"more than {_WRITERS:,} writers"
                return True
            writer = self._writers[key] = _Writer(written.label, self._next)
            self._order.append(writer)
        text = b"\n".join(written.texts) + b"\n"
        if writer is not self._order[0]:
            self._held += len(text)
            if self._held > budgets.limit("held"):
                self.problem = budgets.reached("held")
                return True
        writer.take(written.runs, text)
        return True


class _Writer:
    """The lines of one writer, as a stream."""

    def __init__(self, label: Label, more: Callable[[], bool]) -> None:
        self.label = label
        self.numbers = LineNumbers()
        self._more = more
        self._ready = bytearray()

    def take(self, runs: Sequence[tuple[int, int]], text: bytes) -> None:
        for first, lines in runs:
            self.numbers.add(first, lines)
        self._ready += text

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        while len(self._ready) < size and self._more():
            pass
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data
