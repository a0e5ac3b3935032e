"""Reads a log block by block: the part of the log engine that every byte passes.

One pass of a multi-literal automaton (`inputs.prefilter`) finds the blocks and lines of interest, so that a gigabyte of training
output costs one scan. Repeated events are counted while reading: one entry with its first and last line. Blocks full of NCCL
lines are read line by line; in other blocks only the lines that hold a literal.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefilter import Prefilter, prefilter
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import nccl_header
from nccl_doctor.log.block_lines import BlockLines, around
from nccl_doctor.log.classifier import LONG, Classifier
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.line_patterns import Grammar, grammar
from nccl_doctor.log.texts.text_lines import TextLines, literal_patterns
from nccl_doctor.log.texts.text_templates import Hit, TextTemplates

if TYPE_CHECKING:
    from nccl_doctor.log.groups.grouped_counts import GroupedCounts

BLOCK = 1 << 18  # small enough for the cache of a core
DENSE_BLOCK = 1 << 20  # large enough that many lines of a block are equal
LONGEST = 1 << 21  # a longer line is cut
AHEAD = 1 << 14  # bytes kept back at the end of a block, so that torn and multi-line records are seen whole
LEAD = 2 * AHEAD  # bytes before a part in which records are looked for that go on in it
DENSE = 1500  # a block with an NCCL line in so many bytes is read line by line
TOKEN = nccl_header.TOKEN.encode()
LARGE = 1 << 20  # bytes of dense blocks from which numpy is worth its import
MANY_BYTES = 256 << 20  # bytes of any blocks from which it is
_DOCKER = b'{"log":'
_ESCAPED = ((rb"\u003c", b"<"), (rb"\u003e", b">"), (rb"\u0026", b"&"))
_docker_line = compiled(
    rb'^\{"log": ?"([^"\\\n]*(?:\\u00(?:3[ce]|26)[^"\\\n]*)*)(?:\\n)?", ?"stream": ?"std(?:out|err)", ?"time": ?"([^"\\\n]+)"\}$',
    re.MULTILINE,
)
_LEVELS = tuple(f"{level} ".encode() for level in nccl_header.LEVELS)
_SAMPLE = 1 << 16  # bytes that tell how dense a block is


class Scanner:
    """Reads one part of a log: finds the lines that matter and hands them to a classifier."""

    def __init__(
        self, words: Grammar | None = None, marks: frozenset[bytes] = frozenset(), *, large: bool = False
    ) -> None:
        """`marks` are literals of which the counts say whether they occur in the log.

        `large` says that so much will be read that it pays to load numpy; else that is found out while reading.
        """
        self._classifier = Classifier(words or grammar())
        self.counts = self._classifier.counts
        self._was_dense = False  # the block before, which tells what to expect of the next one
        self._large = large
        self._dense_bytes = 0  # read line by line
        self._grouped: GroupedCounts | None = None
        known = self._classifier.grammar
        self._marks = marks
        self._rare, self._prefilter = _literals(known, marks)
        self._literals = literal_patterns(known)
        self._lines = TextLines(self._classifier)
        self._templates = TextTemplates(self._lines, self.counts, self._literals)

    def begin_behind(self, lead: bytes, following: bytes) -> None:
        """Note how far records go on that begin in `lead`, the whole lines before what is read; `following` is its start."""
        before = Scanner(self._classifier.grammar, self._marks, large=self._large)
        before._block(lead + following, len(lead))
        self._lines.begin_behind(before._lines, before.counts.lines)

    def read(self, stream: Readable, limit: int | None = None) -> LogCounts:
        """Read a stream to its end, or `limit` bytes of it (which should end at a line). Call once."""
        self._read_blocks(stream, limit)
        if self._grouped is not None:
            self._grouped.close()
        self.counts.close()
        return self.counts

    def _read_blocks(self, stream: Readable, limit: int | None) -> None:
        rest, left = b"", limit
        while True:
            size = DENSE_BLOCK if self._was_dense else BLOCK
            size = size if left is None else min(size, left)
            data = stream.read(size) if size else b""
            if left is not None:
                left -= len(data)
            self.counts.bytes += len(data)
            block = rest + data
            if not data:
                following = stream.read(AHEAD) if limit is not None else b""
                self._block(block + following, len(block))
                return
            cut = self._cut(block)
            if cut:
                self._block(block, cut)
            rest = block[cut:]

    def _cut(self, block: bytes) -> int:
        """The end of the last line that can be read now; 0 where more of the stream is needed."""
        cut = block.rfind(b"\n", 0, max(len(block) - AHEAD, 0)) + 1
        if not cut and len(block) > LONGEST:
            return len(block)
        return cut

    def _block(self, block: bytes, end: int) -> None:
        """Read `block[:end]`; the bytes behind it serve records that continue there."""
        if not end:
            return
        if block.startswith(_DOCKER):
            opened = _opened(block[:end])
            block, end = opened + _opened(block[end:]), len(opened)
        first = self.counts.lines
        dense = self._was_dense and _is_dense(block, end)
        if not dense:
            places, marks = self._scan(block)
            dense = TOKEN in marks and _is_dense(block, end)
        self._was_dense = dense
        if dense:
            self.counts.lines += self._dense(block, end, first)
            return
        if TOKEN in marks:
            count = self._sparse(block, end, first)
        else:
            count = self._newlines(block, end) + (not block.endswith(b"\n", 0, end))
        self.counts.lines += count
        if places:
            self._texts(block, end, range(first + 1, first + 1 + count), places)

    def _newlines(self, block: bytes, end: int) -> int:
        """How many lines end in `block[:end]`; numpy counts them three times as fast, once so much was read that it pays to load it."""
        if self.counts.bytes < MANY_BYTES:
            return block.count(b"\n", 0, end)
        import numpy as np

        return int(np.count_nonzero(np.frombuffer(block, np.uint8, end) == ord("\n")))

    def _scan(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        """The offsets of literals of text patterns, and which marks occur."""
        places, marks = self._prefilter.scan(block)
        self.counts.marks |= marks & self._marks
        self._classifier.present = self._rare_of(marks)
        return places, marks

    def _rare_of(self, marks: set[bytes]) -> frozenset[str]:
        return frozenset(self._rare[mark] for mark in marks if mark in self._rare)

    def _present(self, text: bytes) -> frozenset[str]:
        """The rare literals of the grammar that a text holds."""
        return self._rare_of(self._prefilter.scan(text)[1])

    def _dense(self, block: bytes, end: int, first: int) -> int:
        """Read every line of a block; equal lines are counted with numpy once it is worth its import. Returns how many lines."""
        if b"\r" in block:
            text = block[:end].replace(b"\r\n", b"\n")
            block, end = text + block[end:].replace(b"\r\n", b"\n"), len(text)
        self._dense_bytes += end
        if self._large or self._dense_bytes >= LARGE:
            return self._dense_groups(block, end, first)
        lines = block[:end].removesuffix(b"\n").split(b"\n")
        stops = [*accumulate((len(line) + 1 for line in lines), initial=-1)][1:]
        self._single_lines(b"\n".join([*lines, b""]), range(first + 1, first + 1 + len(lines)), stops, block, end)
        return len(lines)

    def _dense_groups(self, block: bytes, end: int, first: int) -> int:
        """Count equal lines of a block together, and read the others one by one. Returns how many lines it has."""
        from nccl_doctor.log.groups.grouped_counts import GroupedCounts

        if self._grouped is None:
            self._grouped = GroupedCounts(self._classifier, self._present)
        grouped = self._grouped.add(block, end, first + 1)
        lines = grouped.lines
        others = lines.others(grouped.known)
        if len(others):
            numbers = (others + (first + 1)).tolist()
            self._single_lines(lines.joined(others), numbers, lines.stops[others].tolist(), block, end)
        self._grouped.note_times(grouped)
        return len(lines.stops)

    def _single_lines(self, apart: bytes, numbers: Sequence[int], stops: Iterable[int], block: bytes, end: int) -> None:
        """Read lines of `block[:end]` one by one: their text, their numbers, where they stop.

        The conditions of the shortest way to a record are inline: a call for each line costs 6% of a dense log.
        """
        near = apart + block[end:]
        places, _ = self._scan(near)
        lines = apart.decode("utf-8", "replace").split("\n")
        whole = b"\r" not in apart
        classifier, spans, understood, after = self._classifier, self.counts.spans, 0, BlockLines(block, AHEAD).after
        skipped, writers, add_record = classifier.skipped, classifier.writers, classifier.add_record
        for number, line, stop in zip(numbers, lines, stops, strict=False):
            left, token, rest = line.partition(nccl_header.TOKEN)
            if not token:
                continue
            writer = writers.get(left)
            if writer is not None:
                if rest in skipped:
                    spans[writer.header].add(number, None)
                    understood += 1
                    continue
                level, _, body = rest.partition(" ")
                if (
                    whole
                    and level in nccl_header.LEVELS
                    and nccl_header.TOKEN not in rest
                    and line[0] != "{"
                    and len(line) < LONG
                    and not rest.endswith(prefixes.CLOSING)
                ):
                    add_record(writer, rest, level, body, number, after(stop))
                    continue
            classifier.add_nccl_line(line, number, after(stop))
        self.counts.nccl_lines += understood
        self.counts.understood += understood
        if places:
            self._texts(near, len(apart), numbers, places)

    def _sparse(self, block: bytes, end: int, number: int) -> int:
        """Read the NCCL lines of a block. Returns how many lines it has."""
        first, counted, at = number, 0, block.find(TOKEN, 0, end)
        after = BlockLines(block, AHEAD).after
        while at >= 0:
            start, begin, done, stop = around(block, at)
            number += block.count(b"\n", counted, start)
            counted = start
            line = block[begin:done].decode("utf-8", "replace")
            self._classifier.add_nccl_line(line, number + 1, after(stop))
            at = block.find(TOKEN, done, end)
        return number - first + block.count(b"\n", counted, end) + (not block.endswith(b"\n", 0, end))

    def _texts(self, block: bytes, end: int, numbers: Sequence[int], places: list[tuple[int, int]]) -> None:
        """Read the lines that hold literals of text patterns. `numbers` are those of the lines of `block[:end]`."""
        at, literals = [place for place, _ in places], [literal for _, literal in places]
        hits = []
        wiped = b"\r" in block
        counted = line_at = index = 0
        while index < len(at) and at[index] < end:
            if wiped:
                start, begin, done, stop = around(block, at[index])
            else:
                start = begin = block.rfind(b"\n", 0, at[index]) + 1
                stop = block.find(b"\n", at[index])
                done = stop = len(block) if stop < 0 else stop
            first = index
            while index < len(at) and at[index] < done:
                index += 1
            line_at += block.count(b"\n", counted, start)
            counted = start
            line, of_line = block[begin:done], tuple(literals[first:index])
            if TOKEN not in line or self._literals.asked(of_line).of_records or not self._is_known_record(line):
                hits.append(Hit(line, of_line, line_at, start, stop))
        self._templates.add(hits, numbers, BlockLines(block, AHEAD))

    def _is_known_record(self, line: bytes) -> bool:
        """Whether a line is a record of NCCL for certain: one of a writer whose records were read."""
        left, _, rest = line.partition(TOKEN)
        return rest.startswith(_LEVELS) and left.decode("utf-8", "replace") in self._classifier.writers


@cache
def _literals(known: Grammar, marks: frozenset[bytes]) -> tuple[dict[bytes, str], Prefilter]:
    """The rare literals of a grammar, and what finds these, those of its text patterns and the marks."""
    rare = {literal.encode(): literal for literal in known.rare}
    return rare, prefilter(known.literals, frozenset((TOKEN, *rare, *marks)))


def _opened(lines: bytes) -> bytes:
    """Records of Docker's json-file driver as `docker logs -t` shows them; those with other escapes than Docker's stay as they are."""
    return _docker_line.sub(_opened_line, lines)


def _opened_line(found: re.Match[bytes]) -> bytes:
    text, time = found.groups()
    if b"\\" in text:
        for escape, character in _ESCAPED:
            text = text.replace(escape, character)
    return bytes(time + b" " + text)


def _is_dense(block: bytes, end: int) -> bool:
    sample = min(end, _SAMPLE)
    return block.count(TOKEN, 0, sample) * DENSE > sample
