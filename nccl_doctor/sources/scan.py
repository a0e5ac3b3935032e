"""Reading a log block by block into counted events: the part of `nccl_log` that every byte passes.

Lines of NCCL are found by ` NCCL `, other telling lines by one pass of a multi-literal automaton (hyperscan), so that a
gigabyte of training output costs one scan. Events are counted while reading: what repeats is one entry with its first and
last line. Where hyperscan is missing the same literals are searched one by one: slower, the same result.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from nccl_doctor.sources import heads, prefixes
from nccl_doctor.sources.heads import Head
from nccl_doctor.sources.patterns import Grammar, Pattern, grammar

BLOCK = 8 << 20
AHEAD = 1 << 14  # bytes kept back at the end of a block, so that torn and multi-line records are seen whole
DENSE = 400  # a block with an NCCL line in so many bytes is read line by line
_MEMO = 50_000  # entries after which a memo is emptied
_MEMO_LENGTH = 200  # longer messages do not come twice
_UNKNOWN = 2_000  # different unknown WARN texts kept
SKIP = "skip"  # reader of patterns that are understood and hold no fact
TOKEN = b" NCCL "


class Readable(Protocol):
    """Anything that gives bytes; at the end it gives none."""

    def read(self, size: int, /) -> bytes: ...


class Key(NamedTuple):
    """What makes two events the same."""

    head: int
    pattern: int  # order of the pattern; -1 for a WARN line that no pattern knows
    level: str
    body: str  # what the pattern matched: the message, or the text without launcher prefix


class Event:
    """How often and where an event was seen."""

    __slots__ = ("first", "last", "left", "n", "stamp")

    def __init__(self, n: int, first: int, last: int, stamp: float | None, left: str) -> None:
        self.n = n
        self.first = first
        self.last = last
        self.stamp = stamp
        self.left = left  # all that stood before the message in the first of them


class Edges:
    """Channel lines of one process for one edge of a graph."""

    __slots__ = ("channel", "first", "left", "mask", "n")

    def __init__(self, channel: str, mask: int, first: int, left: str) -> None:
        self.mask = mask  # one bit a channel
        self.n = 1
        self.first = first
        self.left = left
        self.channel = channel  # `00/0` of the first line


class Partial:
    """What one stretch of a log holds; stretches are merged in order."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.head_ids: dict[Head, int] = {}
        self.spans: list[list[Any]] = []  # per head: lines, first line, last line, last stamp
        self.events: dict[Key, Event] = {}
        self.edges: list[dict[str, Edges]] = []  # per head: `0[0] -> 1[1] via …`
        self.lines = 0
        self.bytes = 0
        self.nccl_lines = 0
        self.understood = 0
        self.unknown: dict[str, int] = {}  # samples of messages that no pattern knows

    def head(self, head: Head) -> int:
        number = self.head_ids.get(head)
        if number is None:
            number = self.head_ids[head] = len(self.heads)
            self.heads.append(head)
            self.spans.append([0, 0, 0, None])
            self.edges.append({})
        return number

    def count(self, key: Key, line: int, stamp: float | None, left: str) -> None:
        event = self.events.get(key)
        if event is None:
            self.events[key] = Event(1, line, line, stamp, left)
        else:
            event.n += 1
            event.last = line

    def merge(self, other: "Partial") -> None:
        """Append what follows this stretch."""
        offset = self.lines
        ids = [self.head(head) for head in other.heads]
        for mine, span in zip(ids, other.spans, strict=True):
            old = self.spans[mine]
            first = old[1] if old[0] else span[1] + offset
            self.spans[mine] = [old[0] + span[0], first, span[2] + offset, span[3] if span[3] is not None else old[3]]
        for key, event in other.events.items():
            mine_key = key._replace(head=ids[key.head])
            known = self.events.get(mine_key)
            if known is None:
                event.first += offset
                event.last += offset
                self.events[mine_key] = event
            else:
                known.n += event.n
                known.last = event.last + offset
        for mine, edges in zip(ids, other.edges, strict=True):
            for text, edge in edges.items():
                old_edge = self.edges[mine].get(text)
                if old_edge is None:
                    edge.first += offset
                    self.edges[mine][text] = edge
                else:
                    old_edge.mask |= edge.mask
                    old_edge.n += edge.n
        for body, n in other.unknown.items():
            self.unknown[body] = self.unknown.get(body, 0) + n
        self.lines += other.lines
        self.bytes += other.bytes
        self.nccl_lines += other.nccl_lines
        self.understood += other.understood


class Scanner:
    """Reads one stretch of a log into a Partial."""

    def __init__(self, words: Grammar | None = None) -> None:
        self.grammar = words or grammar()
        self.partial = Partial()
        self._lefts: dict[str, tuple[int, float | None]] = {}
        self._bodies: dict[str, Any] = {}  # `LEVEL text` of messages that hold no fact
        self._channels: dict[str, int] = {}
        self._gate = Gate([literal.encode() for p in self.grammar.text for literal in p.literals])

    def read(self, stream: Readable, limit: int | None = None) -> Partial:
        """Read a stream to its end, or `limit` bytes of it (which should end at a line)."""
        collecting = gc.isenabled()
        gc.disable()  # millions of counted entries, no cycles: collecting would only walk them again and again
        try:
            return self._read(stream, limit)
        finally:
            if collecting:
                gc.enable()

    def _read(self, stream: Readable, limit: int | None) -> Partial:
        rest, left = b"", limit
        while True:
            size = BLOCK if left is None else min(BLOCK, left)
            data = stream.read(size) if size else b""
            if left is not None:
                left -= len(data)
            self.partial.bytes += len(data)
            block = rest + data
            if not data:
                self.block(block, len(block))
                return self.partial
            cut = block.rfind(b"\n", 0, max(len(block) - AHEAD, 0)) + 1
            if not cut and len(block) > 4 * BLOCK:  # a line without end
                cut = len(block)
            if cut:
                self.block(block, cut)
                rest = block[cut:]
            else:
                rest = block

    def block(self, block: bytes, end: int) -> None:
        """Read `block[:end]`; what lies behind serves lines that go on."""
        if not end:
            return
        first = self.partial.lines
        self.partial.lines += block.count(b"\n", 0, end) + (end == len(block) and not block.endswith(b"\n"))
        hits = [hit for hit in self._gate.hits(block) if hit < end]
        if block.count(TOKEN, 0, end) * DENSE > end:
            self._dense(block, end, first)
        else:
            self._lines_at(block, self._tokens(block, end), first, self._nccl_line)
        self._lines_at(block, hits, first, self._text_line)

    def _dense(self, block: bytes, end: int, number: int) -> None:
        lines = block.decode("utf-8", "replace").split("\n")
        count = block.count(b"\n", 0, end) + (end == len(block))
        bars = b"\r" in block
        lefts, bodies, channels = self._lefts, self._bodies, self._channels
        token, skip = heads.TOKEN, SKIP
        here: dict[str, Edges] = {}  # edges of the process that wrote the last channel line
        run, width, head, seen = "\n", 0, 0, 0
        for index in range(count):
            line = lines[index]
            if line.startswith(run):
                colon = line.find(" : ", width)
                entry = here.get(line[colon + 3 :])
                if entry is not None:
                    channel = line[width:colon]
                    entry.mask |= channels.get(channel) or self._mask(channel)
                    entry.n += 1
                    seen += 1
                    continue
            at = line.find(token)
            if at < 0:
                continue
            left = line[:at]
            known = lefts.get(left)
            if known is None or known[1] is not None or bars:
                for piece in line.split("\r") if bars else (line,):
                    self._nccl_line(piece, number + index + 1, lines, index)
                continue
            if seen:
                self._seen(head, seen, number + index)
                seen = 0
            head = known[0]
            if line.startswith("INFO Channel ", at + 6):
                run, here, width = line[: at + 19], self.partial.edges[head], at + 19
                colon = line.find(" : ", width)
                if colon > 0 and self._edge(head, line[width:colon], line[colon + 3 :], number + index + 1, left):
                    seen = 1
                    continue
            elif bodies.get(line[at + 6 :]) is skip:
                self._seen(head, 1, number + index + 1)
                continue
            self._nccl_line(line, number + index + 1, lines, index)
        if seen:
            self._seen(head, seen, number + count)

    def _seen(self, head: int, n: int, last: int) -> None:
        """Count understood lines of a head that was seen before."""
        span = self.partial.spans[head]
        span[0] += n
        span[2] = last
        self.partial.nccl_lines += n
        self.partial.understood += n

    def _edge(self, head: int, channel: str, edge: str, number: int, left: str) -> bool:
        """Note a channel line; False where it is something else, torn or glued to another."""
        entry = self.partial.edges[head].get(edge)
        if entry is None:
            if " -> " not in edge or " via " not in edge or heads.TOKEN in edge:
                return False
            if edge.endswith((" via", " via ", "[send]", "[receive]", "\r")):
                return False
            entry = self.partial.edges[head][edge] = Edges(channel, 0, number, left)
            entry.n = 0
        entry.mask |= self._channels.get(channel) or self._mask(channel)
        entry.n += 1
        return True

    def _tokens(self, block: bytes, end: int) -> Iterator[int]:
        at = block.find(TOKEN, 0, end)
        while at >= 0:
            yield at
            stop = block.find(b"\n", at)
            at = block.find(TOKEN, stop, end) if stop >= 0 else -1

    def _lines_at(self, block: bytes, offsets: Any, number: int, use: Any) -> None:
        """Call `use` once for each line that holds one of these offsets (ascending)."""
        counted, done = 0, -1
        for at in offsets:
            if at < done:
                continue
            start = block.rfind(b"\n", 0, at) + 1
            stop = block.find(b"\n", at)
            stop = len(block) if stop < 0 else stop
            bar = block.rfind(b"\r", start, at) + 1
            number += block.count(b"\n", counted, start)
            counted = start
            done = block.find(b"\r", at, stop)
            done = stop if done < 0 else done
            line = block[max(start, bar) : done].decode("utf-8", "replace")
            following = block[stop + 1 : stop + 1 + AHEAD].decode("utf-8", "replace").split("\n")
            use(line, number + 1, [line, *following], 0)

    def _mask(self, channel: str) -> int:
        digits = channel.partition("/")[0].strip()
        mask = 1 << int(digits) if digits.isdigit() and len(digits) < 4 else 0
        self._channels[channel] = mask
        return mask

    def _nccl_line(self, line: str, number: int, lines: list[str], index: int) -> None:
        at = line.find(heads.TOKEN)
        if at < 0:
            return
        parsed = heads.level_of(line[at + 6 :])
        if parsed is None:
            return
        level, body = parsed
        inner = heads.GLUED.search(line, at + 6) if line.find(heads.TOKEN, at + 6) >= 0 else None
        if inner is not None:
            body = body[: len(body) - (len(line) - inner.start())]
        left = line[:at]
        known = self._lefts.get(left)
        if known is None:
            head = heads.parse(prefixes.clean(left))
            if len(self._lefts) > _MEMO:
                self._lefts.clear()
            known = (self.partial.head(head._replace(label=head.label._replace(stamp=None))), head.label.stamp)
            self._lefts[left] = known
        self._record(known[0], known[1], level, body, left, number, lines, index)
        if inner is not None:
            self._nccl_line(line[inner.start() :], number, lines, index)

    def _record(
        self,
        head: int,
        stamp: float | None,
        level: str,
        body: str,
        left: str,
        number: int,
        lines: list[str],
        index: int,
    ) -> None:
        partial = self.partial
        partial.nccl_lines += 1
        span = partial.spans[head]
        if not span[0]:
            span[1] = number
        span[0] += 1
        span[2] = number
        span[3] = stamp if stamp is not None else span[3]
        if body.startswith(("Channel ", "Ring ")) and " via " in body:
            channel, _, edge = body.rstrip().partition(" : ")
            if self._edge(head, channel.partition(" ")[2], edge, number, left):
                partial.understood += 1
                return
        known = f"{level} {body}"
        memo = self._bodies.get(known)
        if memo is SKIP:
            partial.understood += 1
            return
        text = (body if body.isprintable() else prefixes.clean(body)).strip()
        if memo is None:
            memo = self.grammar.nccl(text, level)
            if memo is not None and memo.reader == SKIP and level != "WARN":
                if len(self._bodies) > _MEMO:
                    self._bodies.clear()
                if len(body) < _MEMO_LENGTH:
                    self._bodies[known] = SKIP
                partial.understood += 1
                return
        pattern, text = self._continued(memo, text, level, lines, index)
        if pattern is not None:
            partial.understood += 1
            partial.count(Key(head, pattern.order, level, text), number, stamp, left)
        elif not text:
            partial.understood += 1
        else:
            if level == "WARN":  # always shown, known or not
                partial.understood += 1
                partial.count(Key(head, -1, level, text[:500]), number, stamp, left)
            if len(partial.unknown) < _UNKNOWN:
                partial.unknown[body] = partial.unknown.get(body, 0) + 1

    def _continued(
        self, pattern: Pattern | None, body: str, level: str, lines: list[str], index: int
    ) -> tuple[Pattern | None, str]:
        """The whole text of a record of several lines, or of one that was torn or wrapped over two."""
        if pattern is not None:
            if not pattern.lines:
                return pattern, body
            whole = "\n".join([body, *self._following(lines, index, pattern.lines)])
            return pattern, whole if pattern.match(whole, level) is not None else body
        tail = self._following(lines, index, 1)
        if tail and tail[0].strip():
            for whole in (body + tail[0], f"{body} {tail[0].strip()}"):
                pattern = self.grammar.nccl(whole, level)
                if pattern is not None:
                    return pattern, whole
        return None, body

    def _following(self, lines: list[str], index: int, count: int) -> list[str]:
        """Up to `count` following lines without their launcher prefix, ending before the next NCCL record."""
        texts = []
        for line in lines[index + 1 : index + 1 + count]:
            if heads.TOKEN in line and heads.GLUED.search(line):
                break
            texts.append(prefixes.split(prefixes.clean(line))[1])
        return texts

    def _text_line(self, line: str, number: int, lines: list[str], index: int) -> None:
        line = prefixes.clean(line)
        at = line.find(heads.TOKEN)
        record = heads.level_of(line[at + 6 :]) if at >= 0 else None
        patterns: Iterable[Pattern]
        if record is not None:
            text, patterns, label = record[1], self.grammar.nccl_too, heads.parse(line[:at]).label
        else:
            label, text = prefixes.split(line)
            patterns = self.grammar.candidates(text)
        left = line[: len(line) - len(text)] if line.endswith(text) else ""
        for pattern in patterns:
            whole = self._text_match(pattern, text, lines, index)
            if whole is not None:
                head = Head(label.host, label.pid, None, None, None, label._replace(stamp=None), True)
                self.partial.count(Key(self.partial.head(head), pattern.order, "", whole), number, label.stamp, left)

    def _text_match(self, pattern: Pattern, text: str, lines: list[str], index: int) -> str | None:
        if pattern.lines:
            whole = "\n".join([text, *self._following(lines, index, pattern.lines)])
            return whole if pattern.match(whole) is not None else None
        if pattern.match(text) is not None:
            return text
        if any(literal in text for literal in pattern.literals):
            for tail in self._following(lines, index, 1):
                for whole in (text + tail, f"{text} {tail.strip()}"):
                    if pattern.match(whole) is not None:
                        return whole
        return None


class Gate:
    """Finds every place where one of many literals stands."""

    def __init__(self, literals: list[bytes]) -> None:
        self._literals = sorted(set(literals))
        self._db: Any = None
        try:
            import hyperscan
        except ImportError:
            return
        if self._literals:
            import re

            self._db = hyperscan.Database()
            self._db.compile(
                expressions=[re.escape(literal) for literal in self._literals], ids=list(range(len(self._literals)))
            )

    def hits(self, block: bytes) -> list[int]:
        """Ascending offsets of the last byte of each place."""
        found: list[int] = []
        if self._db is not None:
            self._db.scan(block, match_event_handler=lambda _id, _from, to, _flags, _ctx: found.append(to - 1))
            found.sort()
            return found
        for literal in self._literals:
            at = block.find(literal)
            while at >= 0:
                found.append(at + len(literal) - 1)
                at = block.find(literal, at + 1)
        return sorted(found)
