"""Reading a log block by block: the part of `nccl_log` that every byte passes.

One pass of a multi-literal automaton finds the blocks and the lines that tell something, so that a gigabyte of training
output costs one scan. Events are counted while reading: what repeats is one entry with its first and last line. Blocks full
of NCCL lines are read line by line, others only where something stands.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefilter import gate
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.channel_counts import Edges
from nccl_doctor.log.classifier import LONG, Records
from nccl_doctor.log.counts import Partial, Span
from nccl_doctor.log.line_patterns import Grammar, Pattern, grammar
from nccl_doctor.log.multiline import After

if TYPE_CHECKING:
    from nccl_doctor.log.line_groups import Tally

BLOCK = 1 << 18  # small enough for the cache of a core
DENSE_BLOCK = 1 << 20  # large enough that lines which are alike stand together
LONGEST = 1 << 21  # a longer line is cut
AHEAD = 1 << 14  # bytes kept back at the end of a block, so that torn and multi-line records are seen whole
DENSE = 1500  # a block with an NCCL line in so many bytes is read line by line
TOKEN = nccl_header.TOKEN.encode()
KNOWN = 1 << 20  # texts of lines that are counted together
LARGE = 1 << 20  # bytes read line by line that are worth it to load numpy
_KEPT = 4 << 20  # bytes; once so much was freed, glibc keeps freed memory instead of taking it anew for each block
_SAMPLE = 1 << 16  # bytes that tell how dense a block is


class Counting(NamedTuple):
    """What lines that are alike count for."""

    span: Span  # of their writer
    entry: Edges | Span
    timed: bool  # a time stands in front of them


class Scanner(Records):
    """Reads one stretch of a log into a Partial."""

    read_densely = 0  # bytes that all scanners of this process read line by line

    def __init__(self, words: Grammar | None = None, marks: Iterable[bytes] = ()) -> None:
        """`marks` are literals of which the Partial says whether they stand in the log."""
        super().__init__(words or grammar())
        self._was_dense = False  # the block before, which tells what to expect of the next one
        self._tally: Tally[Counting] | None = None
        self._timeless = False  # whether times were left out when the lines of this block were counted
        self._width: int | None = None  # at which the lines are wrapped, 0 where they are not
        by_literal: dict[bytes, list[Pattern]] = {}
        for pattern in self.grammar.text:
            for literal in pattern.literals:
                by_literal.setdefault(literal.encode(), []).append(pattern)
        self._rare = {literal.encode(): literal for literal in self.grammar.rare}
        self._marks = set(marks)
        self._gate = gate(frozenset(by_literal), frozenset((TOKEN, *self._rare, *self._marks)))
        self._by_place = [by_literal[literal] for literal in self._gate.literals]

    def read(self, stream: Readable, limit: int | None = None) -> Partial:
        """Read a stream to its end, or `limit` bytes of it (which should end at a line). Call once."""
        self._read(stream, limit)
        self._add_up()
        self.partial.close()
        return self.partial

    def _read(self, stream: Readable, limit: int | None) -> None:
        rest, left = b"", limit
        while True:
            size = DENSE_BLOCK if self._was_dense else BLOCK
            size = size if left is None else min(size, left)
            data = stream.read(size) if size else b""
            if left is not None:
                left -= len(data)
            self.partial.bytes += len(data)
            block = rest + data
            if self._width is None:
                self._width = multiline.width(block)
            if not data:
                following = stream.read(AHEAD) if limit is not None else b""
                self._block(block + following, len(block))
                return
            cut = block.rfind(b"\n", 0, max(len(block) - AHEAD, 0)) + 1
            if self._width:
                cut = multiline.cut_between(block, cut, self._width)
            if not cut and len(block) > LONGEST:  # a line without end
                cut = len(block)
            if cut:
                self._block(block, cut)
                rest = block[cut:]
            else:
                rest = block

    def _block(self, block: bytes, end: int) -> None:
        """Read `block[:end]`; what lies behind serves lines that go on."""
        if not end:
            return
        if self._width:
            whole = multiline.unwrapped(block[:end], self._width)
            block, end = whole + block[end:], len(whole)
        first = self.partial.lines
        dense = self._was_dense and _is_dense(block, end)
        if not dense:
            places, marks = self._look(block)
            dense = TOKEN in marks and _is_dense(block, end)
        self._was_dense = dense
        if dense:
            self.partial.lines += self._dense(block, end, first)
            return
        if TOKEN in marks:
            count = self._sparse(block, end, first)
        else:
            count = block.count(b"\n", 0, end) + (not block.endswith(b"\n", 0, end))
        self.partial.lines += count
        if places:
            self._texts(block, end, range(first + 1, first + 1 + count), places)

    def _look(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        """Where literals of text patterns stand, and which marks stand anywhere."""
        places, marks = self._gate.scan(block)
        self.partial.marks |= marks & self._marks
        self._present = frozenset(self._rare[mark] for mark in marks if mark in self._rare)
        return places, marks

    def _dense(self, block: bytes, end: int, first: int) -> int:
        """Every line of a block; Channel lines, of which there may be millions, by the shortest way. Returns how many."""
        if b"\r" in block:
            text = block[:end].replace(b"\r\n", b"\n")
            block, end = text + block[end:].replace(b"\r\n", b"\n"), len(text)
        Scanner.read_densely += end
        if Scanner.read_densely < LARGE and "numpy" not in sys.modules:
            lines = block[:end].removesuffix(b"\n").split(b"\n")
            stops = [*accumulate((len(line) + 1 for line in lines), initial=-1)][1:]
            self._others(b"\n".join([*lines, b""]), range(first + 1, first + 1 + len(lines)), stops, block, end)
            return len(lines)
        from nccl_doctor.log.line_groups import Lines, Tally

        if self._tally is None or len(self._tally) > KNOWN:
            self._add_up()
            self._tally = Tally()
            bytearray(_KEPT)
        found = Lines(block, end)
        self._timeless = found.dated
        counted = self._tally.add(found, first + 1, self._entry)
        others = found.others(counted.known)
        if len(others):
            numbers = (others + (first + 1)).tolist()
            self._others(found.text(others), numbers, found.stops[others].tolist(), block, end)
        if found.dated:
            self._note_times(self._tally.closings(found, counted), first + 1)
        return len(found.stops)

    def _entry(self, number: int, left: str, channel: str | None, text: str) -> Counting | None:
        """What lines like this one count for; None where they may be anything else, or more than that."""
        if channel is None and f"INFO {text}" not in self._skipped:
            return None
        writer = self._writers.get(left)
        if writer is None:
            if nccl_header.TOKEN in left or left.startswith("{") or not nccl_header.begins(left):
                return None
            writer = self._writer(left)
        if writer.stamp is not None and not self._timeless:
            return None
        span = self.partial.spans[writer.head]
        entry = span if channel is None else self._plain_edge(writer, number, channel, text)
        return None if entry is None else Counting(span, entry, writer.stamp is not None)

    def _note_times(self, closings: Iterable[tuple[Counting, int, str]], offset: int) -> None:
        """Note when each writer wrote the last of the lines that were counted together."""
        last = {counting.span: (number, left) for counting, number, left in closings if counting.timed}
        for span, (number, left) in last.items():
            if number + offset > span.stamped and (stamp := self._writer(left).stamp) is not None:
                span.stamp, span.stamped = stamp, number + offset

    def _add_up(self) -> None:
        """Add what was counted to what it counts for."""
        for (_, entry, _), mask, n, first, last in self._tally.taken() if self._tally else ():
            if isinstance(entry, Span):
                entry.extend(n, first, last, None)
                self.partial.nccl_lines += n
                self.partial.understood += n
            else:
                entry.extend(mask, n, last)

    def _others(self, apart: bytes, numbers: Sequence[int], stops: Iterable[int], block: bytes, end: int) -> None:
        """Lines of `block[:end]` that are no plain Channel lines: their text, their numbers, where they stop."""
        near = apart + block[end:]
        places, _ = self._look(near)
        lines = apart.decode("utf-8", "replace").split("\n")
        whole = b"\r" not in apart
        skipped, writers, spans, understood = self._skipped, self._writers, self.partial.spans, 0
        for number, line, stop in zip(numbers, lines, stops, strict=False):
            left, found, rest = line.partition(nccl_header.TOKEN)
            if not found:
                continue
            writer = writers.get(left)
            if writer is not None:
                if rest in skipped:
                    spans[writer.head].add(number, None)
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
                    and not body.startswith("Channel ")
                ):
                    self._said(writer, rest, level, body, number, _after(block, stop))
                    continue
            self._nccl_line(line, number, _after(block, stop))
        self.partial.nccl_lines += understood
        self.partial.understood += understood
        if places:
            self._texts(near, len(apart), numbers, places)

    def _sparse(self, block: bytes, end: int, number: int) -> int:
        first, counted, at = number, 0, block.find(TOKEN, 0, end)
        while at >= 0:
            line, start, done, after = _around(block, at)
            number += block.count(b"\n", counted, start)
            counted = start
            self._nccl_line(line, number + 1, after)
            at = block.find(TOKEN, done, end)
        return number - first + block.count(b"\n", counted, end) + (not block.endswith(b"\n", 0, end))

    def _texts(self, block: bytes, end: int, numbers: Sequence[int], places: list[tuple[int, int]]) -> None:
        """The lines in which literals of text patterns stand. `numbers` are those of the lines of `block[:end]`."""
        counted = line_at = index = 0
        while index < len(places) and places[index][0] < end:
            line, start, done, after = _around(block, places[index][0])
            patterns: dict[int, Pattern] = {}
            while index < len(places) and places[index][0] < done:
                for pattern in self._by_place[places[index][1]]:
                    patterns[pattern.order] = pattern
                index += 1
            line_at += block.count(b"\n", counted, start)
            counted = start
            self._text_line(line, numbers, line_at, after, [patterns[order] for order in sorted(patterns)])


def _is_dense(block: bytes, end: int) -> bool:
    sample = min(end, _SAMPLE)
    return block.count(TOKEN, 0, sample) * DENSE > sample


def _around(block: bytes, at: int) -> tuple[str, int, int, After]:
    """The line that holds an offset, without what carriage returns wiped: (text, start of the line, end, what follows)."""
    start = block.rfind(b"\n", 0, at) + 1
    stop = block.find(b"\n", at)
    stop = len(block) if stop < 0 else stop
    bar = block.rfind(b"\r", start, at) + 1
    done = block.find(b"\r", at, stop)
    done = stop if done < 0 else done

    return block[max(start, bar) : done].decode("utf-8", "replace"), start, done, _after(block, stop)


def _after(block: bytes, stop: int) -> After:
    """Gives the lines behind the one that stops there."""

    def following(count: int) -> list[str]:
        return block[stop + 1 : stop + 1 + AHEAD].decode("utf-8", "replace").split("\n", count)[:count]

    return following
