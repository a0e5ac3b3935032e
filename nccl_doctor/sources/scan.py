"""Reading a log block by block into counted events: the part of `nccl_log` that every byte passes.

One pass of a multi-literal automaton finds the blocks and the lines that tell something, so that a gigabyte of training
output costs one scan. Events are counted while reading: what repeats is one entry with its first and last line. Blocks full
of NCCL lines are read line by line, others only where something stands.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from nccl_doctor.sources import continued, heads, prefixes
from nccl_doctor.sources.continued import After
from nccl_doctor.sources.edges import ByText, Edges, Masks
from nccl_doctor.sources.gate import Gate
from nccl_doctor.sources.heads import Head
from nccl_doctor.sources.partial import Key, Partial
from nccl_doctor.sources.patterns import Grammar, Pattern, grammar

BLOCK = 1 << 18  # small enough for the cache of a core
LONGEST = 1 << 21  # a longer line is cut
AHEAD = 1 << 14  # bytes kept back at the end of a block, so that torn and multi-line records are seen whole
DENSE = 1500  # a block with an NCCL line in so many bytes is read line by line
SKIP = "skip"  # reader of patterns that are understood and hold no fact
TOKEN = heads.TOKEN.encode()
CHANNEL = heads.TOKEN + "INFO Channel "
_SAMPLE = 1 << 16  # bytes that tell how dense a block is
_MEMO = 50_000  # entries after which a memo is emptied
_MEMO_LENGTH = 200  # longer messages do not come twice
_LONG = 4_000  # only a longer line can hold a number with more digits than Python converts
_DIGITS = re.compile(r"(\d{20})\d{80,}")
_UNKNOWN = 2_000  # different unknown texts kept
_EDGE = re.compile(r"\d{1,9}(?:\[[0-9a-f]+\])? -> \d{1,9}(?:\[[0-9a-f]+\])?(?: \[(?:send|receive)\])? via \S*\w$").match
_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")


class Readable(Protocol):
    """Anything that gives bytes; at the end it gives none."""

    def read(self, size: int, /) -> bytes: ...


class Writer(NamedTuple):
    """Who wrote a line."""

    head: int
    stamp: float | None
    left: str  # what stands before `NCCL `


def _nothing(_count: int) -> list[str]:
    return []


class Scanner:
    """Reads one stretch of a log into a Partial."""

    def __init__(self, words: Grammar | None = None, marks: Iterable[bytes] = ()) -> None:
        """`marks` are literals of which the Partial says whether they stand in the log."""
        self.grammar = words or grammar()
        self.partial = Partial()
        self._writers: dict[str, Writer] = {}
        self._dated: dict[tuple[str, ...], tuple[int, int]] = {}  # parts around the dates -> head, which date counts
        self._edges: dict[str, ByText] = {}  # of writers without a stamp
        self._skipped: set[str] = set()  # `LEVEL text` that is understood and holds no fact
        self._masks = Masks()
        self._taken: dict[tuple[int, prefixes.Label | None], int] = {}  # pattern and writer -> last line of a record
        self._width: int | None = None  # at which the lines are wrapped, 0 where they are not
        by_literal: dict[bytes, list[Pattern]] = {}
        for pattern in self.grammar.text:
            for literal in pattern.literals:
                by_literal.setdefault(literal.encode(), []).append(pattern)
        self._rare = {literal.encode(): literal for literal in self.grammar.rare}
        self._present: frozenset[str] = frozenset()  # of the rare literals in this block
        self._marks = set(marks)
        self._gate = Gate(by_literal, (TOKEN, *self._rare, *self._marks))
        self._by_place = [by_literal[literal] for literal in self._gate.literals]

    def read(self, stream: Readable, limit: int | None = None) -> Partial:
        """Read a stream to its end, or `limit` bytes of it (which should end at a line). Call once."""
        self._read(stream, limit)
        self.partial.close()
        return self.partial

    def _read(self, stream: Readable, limit: int | None) -> None:
        rest, left = b"", limit
        while True:
            size = BLOCK if left is None else min(BLOCK, left)
            data = stream.read(size) if size else b""
            if left is not None:
                left -= len(data)
            self.partial.bytes += len(data)
            block = rest + data
            if self._width is None:
                self._width = continued.width(block)
            if not data:
                following = stream.read(AHEAD) if limit is not None else b""
                self._block(block + following, len(block))
                return
            cut = block.rfind(b"\n", 0, max(len(block) - AHEAD, 0)) + 1
            if self._width:
                cut = continued.cut_between(block, cut, self._width)
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
            whole = continued.unwrapped(block[:end], self._width)
            block, end = whole + block[end:], len(whole)
        first = self.partial.lines
        sample = min(end, _SAMPLE)
        if block.count(TOKEN, 0, sample) * DENSE > sample:
            self.partial.lines += self._dense(block, end, first)
            return
        places, marks = self._look(block)
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
        text = block[:end].decode("utf-8", "replace")
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = text.removesuffix("\n").split("\n")
        known, masks, others = self._edges, self._masks, []
        whole = "\r" not in text
        for number, line in enumerate(lines, first + 1):
            left, found, rest = line.partition(CHANNEL)
            if found:
                channel, _, edge = rest.partition(" : ")
                try:
                    entry = known[left][edge]
                except KeyError:
                    if whole and self._new_edge(left, edge, channel, number):
                        continue
                else:
                    entry.mask |= masks[channel]
                    entry.n += 1
                    entry.last = number
                    continue
            others.append(number)
        if others:
            self._others(lines, others, first, block[end:], whole)
        return len(lines)

    def _others(self, lines: list[str], numbers: list[int], first: int, behind: bytes, whole: bool) -> None:
        """Those of a block's lines that are no plain Channel lines. `behind` follows the last one."""
        apart = "\n".join([lines[number - first - 1] for number in numbers]).encode() + b"\n"
        places, _ = self._look(apart)

        def after(number: int) -> After:
            def following(count: int) -> list[str]:
                at = number - first
                more = count - len(lines) + at
                rest = behind.decode("utf-8", "replace").replace("\r\n", "\n").split("\n") if more > 0 else []
                return [*lines[at : at + count], *rest][:count]

            return following

        skipped, writers, spans, understood = self._skipped, self._writers, self.partial.spans, 0
        for number in numbers:
            line = lines[number - first - 1]
            left, found, rest = line.partition(heads.TOKEN)
            if not found:
                continue
            writer = writers.get(left)
            if writer is not None:
                if rest in skipped:
                    span = spans[writer.head]
                    span.n += 1
                    span.last = number
                    understood += 1
                    continue
                level, _, body = rest.partition(" ")
                if (
                    whole
                    and level in heads.LEVELS
                    and heads.TOKEN not in rest
                    and line[0] != "{"
                    and len(line) < _LONG
                    and not rest.endswith(prefixes.CLOSING)
                    and not body.startswith("Channel ")
                ):
                    self._said(writer, rest, level, body, number, after(number))
                    continue
            self._nccl_line(line, number, after(number))
        self.partial.nccl_lines += understood
        self.partial.understood += understood
        if places:
            self._texts(apart + behind, len(apart), numbers, places)

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

    def _writer(self, left: str) -> Writer:
        """Who wrote a line, from all that stands before `NCCL `."""
        known = self._writers.get(left)
        if known is not None:
            return known
        dates = _DATE.findall(left)
        parts = tuple(_DATE.split(left)) if dates else ()
        if parts in self._dated:  # time stamps differ from line to line: only what stands around them is parsed once
            number, which = self._dated[parts]
            return Writer(number, prefixes.epoch(dates[which]), left)
        head = heads.parse(prefixes.clean(left))
        stamp = head.label.stamp
        number = self.partial.head(head._replace(label=head.label._replace(stamp=None)))
        writer = Writer(number, stamp, left)
        if stamp is None:
            if len(self._writers) > _MEMO:
                self._writers.clear()
                self._edges.clear()
            self._writers[left] = writer
            self._edges[left] = self.partial.edges[number]
        else:
            stamps = [prefixes.epoch(date) for date in dates]
            if stamp in stamps and len(self._dated) < _MEMO:
                self._dated[parts] = number, len(stamps) - 1 - stamps[::-1].index(stamp)
        return writer

    def _nccl_line(self, line: str, number: int, after: After) -> None:
        """The records of a line: one, or several where a carriage return wiped the line or two writers shared it."""
        if line.startswith("{"):
            line = prefixes.opened(line)
        line = _bounded(line)
        for piece in line.split("\r") if "\r" in line else (line,):
            left, found, rest = piece.partition(heads.TOKEN)
            while found:
                if heads.TOKEN in rest and (inner := heads.GLUED.search(rest)):
                    self._record(left, rest[: inner.start()], number, _nothing)
                    left, found, rest = rest[inner.start() :].partition(heads.TOKEN)
                else:
                    if heads.TOKEN in rest and (whole := heads.record(left + heads.TOKEN + rest)):  # prose names NCCL
                        left, level, body = whole
                        rest = f"{level} {body}"
                    self._record(left, rest, number, after)
                    break

    def _record(self, left: str, rest: str, number: int, after: After) -> None:
        """One record: `left` is its head, `rest` its level and its message."""
        if rest.endswith(prefixes.CLOSING):
            rest = prefixes.closed(rest)
        level, _, body = rest.partition(" ")
        if level in heads.LEVELS and heads.begins(left):
            self._said(self._writer(left), rest, level, body, number, after)

    def _said(self, writer: Writer, rest: str, level: str, body: str, number: int, after: After) -> None:
        """One record of a known writer: `rest` is its level and its message."""
        repeat = 1
        if "[repeated " in body:
            body, repeat = prefixes.unfold(body)
        if body.startswith(("Channel ", "Ring ")) and " via " in body and self._edge(writer, body, number):
            return
        partial = self.partial
        partial.nccl_lines += 1
        partial.spans[writer.head].add(number, writer.stamp)
        if rest in self._skipped:
            partial.understood += 1
            return
        text = body.strip()
        pattern, match = self.grammar.find(text, level, self._present)
        if (pattern is None or pattern.reader != SKIP) and (not text.isprintable() or "&" in text):
            text = prefixes.clean(body).strip()
            pattern, match = self.grammar.find(text, level, self._present)
        if pattern is not None and pattern.reader == SKIP and level not in heads.SHOWN:
            if len(rest) < _MEMO_LENGTH:
                if len(self._skipped) > _MEMO:
                    self._skipped.clear()
                self._skipped.add(rest)
            partial.understood += 1
            return
        if pattern is None or pattern.lines:
            pattern, text = self._continued(pattern, text, level, after, partial.heads[writer.head].label)
        if pattern is None:
            if text and len(partial.unknown) < _UNKNOWN:
                partial.unknown[body] = partial.unknown.get(body, 0) + 1
            if text and level not in heads.SHOWN:
                return
        partial.understood += 1
        if pattern is not None and pattern.reader == "collective":
            self._call(writer, pattern, text, number)
        elif pattern is not None:
            if match is not None and pattern.tells_rank:
                partial.member(writer.head, match)
            partial.count(Key(writer.head, pattern.order, level, text), repeat, number, writer.stamp, writer.left)
        elif text:  # a WARN or ATTN line is always shown, known or not
            partial.count(Key(writer.head, -1, level, text[:500]), repeat, number, writer.stamp, writer.left)

    def _new_edge(self, left: str, edge: str, channel: str, number: int) -> bool:
        """Note the first channel line of an edge; False where it may be anything else, or more than that."""
        edges = self._edges.get(left)
        if edges is None or left.startswith("{") or not _EDGE(edge):
            return False
        edges[edge] = Edges(self._masks[channel], 1, number, number, channel, left)
        return True

    def _edge(self, writer: Writer, body: str, number: int) -> bool:
        """Note a channel line; False where it is something else, or torn."""
        channel, _, edge = body.rstrip().partition(" : ")
        channel = channel.partition(" ")[2]
        edges = self.partial.edges[writer.head]
        entry = edges.get(edge)
        if entry is None:
            if " -> " not in edge or " via " not in edge or edge.endswith((" via", "[send]", "[receive]")):
                return False
            entry = edges[edge] = Edges(0, 0, number, number, channel, writer.left)
        entry.mask |= self._masks[channel]
        entry.n += 1
        entry.last = number
        if writer.stamp is not None:
            self.partial.spans[writer.head].stamp = writer.stamp
        return True

    def _call(self, writer: Writer, pattern: Pattern, text: str, number: int) -> None:
        """Note a collective without what differs from call to call: opCount and buffers."""
        match = pattern.compiled.match(text)
        if match is None:
            return
        shape = (
            f"{match['function']}: opCount 0 sendbuff 0 recvbuff 0 {text[text.find('count ', match.end('first_op')) :]}"
        )
        key = Key(writer.head, pattern.order, "INFO", shape)
        self.partial.call(key, int(match["first_op"], 16), number, writer.stamp, writer.left, text)

    def _continued(
        self, pattern: Pattern | None, body: str, level: str, after: After, label: prefixes.Label
    ) -> tuple[Pattern | None, str]:
        """The whole text of a record of several lines, or of one that was torn or wrapped over two."""
        if pattern is not None:
            rows = continued.following(after, pattern.lines, label)
            whole = _bounded("\n".join([body, *(row.text for row in rows)]))
            return pattern, whole if pattern.match(whole, level) is not None else body
        for row in continued.following(after, 1, label):
            text = _bounded(row.text)
            for whole in (body + text, f"{body} {text.strip()}") if text.strip() else ():
                pattern = self.grammar.nccl(whole, level, self._present)
                if pattern is not None:
                    return pattern, whole
        return None, body

    def _text_line(self, line: str, numbers: Sequence[int], at: int, after: After, patterns: list[Pattern]) -> None:
        """The line with number `numbers[at]`."""
        number = numbers[at]
        line = _bounded(prefixes.clean(prefixes.opened(line)))
        record = heads.record(line)
        if record is not None:
            patterns = [pattern for pattern in patterns if pattern.nccl_too]
            if not patterns:
                return
            left, _, text = record
            label = heads.parse(left).label
        else:
            label, text = prefixes.split(line)
        left = line[: len(line) - len(text)] if line.endswith(text) else ""
        for pattern in patterns:
            whole = continued.joined(pattern, text, after, label)
            if whole is None:
                continue
            end = at + whole.distance
            last = numbers[end] if end < len(numbers) else numbers[-1] + end - len(numbers) + 1
            place = (pattern.order, continued.who(label))
            if last <= self._taken.get(place, 0):  # part of the record before it
                continue
            if whole.distance:
                self._taken[place] = last
            head = Head(label.host, label.pid, None, None, None, label._replace(stamp=None, repeat=1), True)
            key = Key(self.partial.head(head), pattern.order, "", _bounded(whole.text))
            self.partial.count(key, label.repeat, number, label.stamp, left)


def _bounded(text: str) -> str:
    """A text without numbers of more digits than Python converts."""
    return _DIGITS.sub(r"\1", text) if len(text) > _LONG else text


def _around(block: bytes, at: int) -> tuple[str, int, int, After]:
    """The line that holds an offset, without what carriage returns wiped: (text, start of the line, end, what follows)."""
    start = block.rfind(b"\n", 0, at) + 1
    stop = block.find(b"\n", at)
    stop = len(block) if stop < 0 else stop
    bar = block.rfind(b"\r", start, at) + 1
    done = block.find(b"\r", at, stop)
    done = stop if done < 0 else done

    def after(count: int) -> list[str]:
        return block[stop + 1 : stop + 1 + AHEAD].decode("utf-8", "replace").split("\n", count)[:count]

    return block[max(start, bar) : done].decode("utf-8", "replace"), start, done, after
