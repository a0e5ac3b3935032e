"""Reading a log block by block into counted events: the part of `nccl_log` that every byte passes.

Lines of NCCL are found by ` NCCL `, other telling lines by one pass of a multi-literal automaton (hyperscan), so that a
gigabyte of training output costs one scan. Events are counted while reading: what repeats is one entry with its first and
last line. Where hyperscan is missing the same literals are searched one by one: slower, the same result.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from nccl_doctor.sources import heads, prefixes
from nccl_doctor.sources.heads import Head
from nccl_doctor.sources.patterns import Grammar, Match, Pattern, grammar

BLOCK = 8 << 20
AHEAD = 1 << 14  # bytes kept back at the end of a block, so that torn and multi-line records are seen whole
DENSE = 400  # a block with an NCCL line in so many bytes is read line by line
_MEMO = 200_000  # entries after which a memo is emptied
_UNKNOWN = 2_000  # different unknown WARN texts kept
SKIP = "skip"  # reader of patterns that are understood and hold no fact
TOKEN = b" NCCL "


class Key(NamedTuple):
    """What makes two events the same."""

    head: int
    pattern: int  # order of the pattern; -1 for a WARN line that no pattern knows
    level: str
    values: tuple[Any, ...]


class Event(NamedTuple):
    """How often and where an event was seen."""

    n: int
    first: int
    last: int
    stamp: float | None
    text: str


class Partial:
    """What one stretch of a log holds; stretches are merged in order."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.head_ids: dict[Head, int] = {}
        self.spans: list[list[Any]] = []  # per head: lines, first line, last line, last stamp
        self.events: dict[Key, list[Any]] = {}
        self.edges: dict[tuple[int, str], list[Any]] = {}  # (head, `0[0] -> 1[1] via …`): channel mask, n, first line, text
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
        return number

    def count(self, key: Key, line: int, stamp: float | None, text: str, n: int = 1, last: int | None = None) -> None:
        event = self.events.get(key)
        if event is None:
            self.events[key] = [n, line, last or line, stamp, text]
        else:
            event[0] += n
            event[2] = last or line

    def merge(self, other: "Partial") -> None:
        """Append what follows this stretch."""
        offset = self.lines
        ids = [self.head(head) for head in other.heads]
        for mine, span in zip(ids, other.spans, strict=True):
            old = self.spans[mine]
            first = old[1] if old[0] else span[1] + offset
            self.spans[mine] = [old[0] + span[0], first, span[2] + offset, span[3] if span[3] is not None else old[3]]
        for key, (n, first, last, stamp, text) in other.events.items():
            self.count(key._replace(head=ids[key.head]), first + offset, stamp, text, n, last + offset)
        for (head, edge), (mask, n, first, text) in other.edges.items():
            entry = self.edges.setdefault((ids[head], edge), [0, 0, first + offset, text])
            entry[0] |= mask
            entry[1] += n
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
        self._bodies: dict[str, Match | None] = {}
        self._channels: dict[str, int] = {}
        self._gate = Gate([literal.encode() for p in self.grammar.text for literal in p.literals])

    def read(self, stream: BinaryIO, limit: int | None = None) -> Partial:
        """Read a stream to its end, or `limit` bytes of it (which should end at a line)."""
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
        partial, lefts, edges, channels = self.partial, self._lefts, self.partial.edges, self._channels
        spans, token = partial.spans, heads.TOKEN
        for index in range(count):
            line = lines[index]
            at = line.find(token)
            if at < 0:
                continue
            if line.startswith("INFO Channel ", at + 6) and "\r" not in line and line.find(token, at + 6) < 0:
                known = lefts.get(line[:at])
                colon = line.find(" : ", at + 19)
                if known is not None and known[1] is None and colon > 0:
                    edge = line[colon + 3 :]
                    entry = edges.get((known[0], edge))
                    if entry is not None:
                        channel = line[at + 19 : colon]
                        mask = channels.get(channel)
                        if mask is None:
                            mask = self._mask(channel)
                        entry[0] |= mask
                        entry[1] += 1
                        span = spans[known[0]]
                        span[0] += 1
                        span[2] = number + index + 1
                        partial.nccl_lines += 1
                        partial.understood += 1
                        continue
            for piece in line.split("\r") if "\r" in line else (line,):
                self._nccl_line(piece, number + index + 1, lines, index)

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
        digits = channel.split("/")[0].strip()
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
        self._record(known[0], known[1], level, body, line, number, lines, index)
        if inner is not None:
            self._nccl_line(line[inner.start() :], number, lines, index)

    def _record(
        self, head: int, stamp: float | None, level: str, body: str, line: str, number: int, lines: list[str], index: int
    ) -> None:
        partial = self.partial
        partial.nccl_lines += 1
        span = partial.spans[head]
        if not span[0]:
            span[1] = number
        span[0] += 1
        span[2] = number
        span[3] = stamp if stamp is not None else span[3]
        if " -> " in body and " via " in body and body.startswith(("Channel ", "Ring ")):
            colon = body.find(" : ")
            edge = body[colon + 3 :].rstrip()
            if not edge.endswith((" via", "[send]", "[receive]")):
                channel = body[body.find(" ") + 1 : colon]
                entry = partial.edges.setdefault((head, edge), [0, 0, number, prefixes.clean(line)])
                entry[0] |= self._channels.get(channel) or self._mask(channel)
                entry[1] += 1
                partial.understood += 1
                return
        memo = self._bodies
        if body in memo:
            match = memo[body]
        else:
            if len(memo) > _MEMO:
                memo.clear()
            match = memo[body] = self.grammar.nccl(prefixes.clean(body).strip(), level)
        if match is None or match.pattern.lines:
            match = self._continued(match, body, level, lines, index)
        if match is not None:
            partial.understood += 1
            if match.pattern.reader == SKIP and level != "WARN":
                return
            values = tuple(match.fields.items())
            partial.count(Key(head, match.pattern.order, level, values), number, stamp, prefixes.clean(line))
        elif level == "WARN" and body.strip():
            partial.understood += 1  # a WARN is always shown, known or not
            key = Key(head, -1, level, (("text", body.strip()[:500]),))
            if len(partial.unknown) < _UNKNOWN or key in partial.events:
                partial.count(key, number, stamp, prefixes.clean(line))
        elif not body.strip():
            partial.understood += 1
        if match is None and len(partial.unknown) < _UNKNOWN:
            partial.unknown[body] = partial.unknown.get(body, 0) + 1

    def _continued(self, match: Match | None, body: str, level: str, lines: list[str], index: int) -> Match | None:
        """A record of several lines, or one that was torn or wrapped over two."""
        if match is not None:
            more = self._following(lines, index, match.pattern.lines)
            fields = match.pattern.match("\n".join([body, *more]), level)
            return Match(match.pattern, fields) if fields is not None else match
        tail = self._following(lines, index, 1)
        if not tail or not tail[0].strip():
            return None
        return self.grammar.nccl(body + tail[0], level) or self.grammar.nccl(f"{body} {tail[0].strip()}", level)

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
        if record is not None:
            text, patterns, label = record[1], self.grammar.nccl_too, heads.parse(line[:at]).label
        else:
            label, text = prefixes.split(line)
            patterns = self.grammar.candidates(text)  # type: ignore[assignment]
        for pattern in patterns:
            fields = self._text_match(pattern, text, lines, index)
            if fields is not None:
                head = Head(label.host, label.pid, None, None, None, label._replace(stamp=None), True)
                key = Key(self.partial.head(head), pattern.order, "", tuple(fields.items()))
                self.partial.count(key, number, label.stamp, line)

    def _text_match(self, pattern: Pattern, text: str, lines: list[str], index: int) -> dict[str, Any] | None:
        if pattern.lines:
            return pattern.match("\n".join([text, *self._following(lines, index, pattern.lines)]))
        fields = pattern.match(text)
        if fields is None and any(literal in text for literal in pattern.literals):
            for tail in self._following(lines, index, 1):
                fields = pattern.match(text + tail) or pattern.match(f"{text} {tail.strip()}")
        return fields


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
