"""What an NCCL line or a line of another program says: counted as an event, a channel line, or an unknown text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nccl_doctor.inputs import prefixes
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.channel_counts import Edges, Masks
from nccl_doctor.log.counts import Key, Partial
from nccl_doctor.log.line_patterns import Grammar, Pattern
from nccl_doctor.log.multiline import After
from nccl_doctor.log.nccl_header import Head

LAST_ERROR = "last-error"  # reader of patterns that repeat a warning of NCCL
SKIP = "skip"  # reader of patterns that are understood and hold no fact
_MEMO = 50_000  # entries after which a memo is emptied
_MEMO_LENGTH = 200  # longer messages do not come twice
LONG = 4_000  # only a longer line can hold a number with more digits than Python converts
_DIGITS = re.compile(r"(\d{20})\d{80,}")
_UNKNOWN = 2_000  # different unknown texts kept
_EDGE = re.compile(r"\d{1,9}(?:\[[0-9a-f]+\])? -> \d{1,9}(?:\[[0-9a-f]+\])?(?: \[(?:send|receive)\])? via \S*\w$").match
_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")


class Writer(NamedTuple):
    """Who wrote a line."""

    head: int
    stamp: float | None
    left: str  # what stands before `NCCL `


def _nothing(_count: int) -> list[str]:
    return []


class Records:
    """Counts what lines say. Which lines are looked at is the scanner's business."""

    def __init__(self, words: Grammar) -> None:
        self.grammar = words
        self.partial = Partial()
        self._writers: dict[str, Writer] = {}
        self._dated: dict[tuple[str, ...], tuple[int, int]] = {}  # parts around the dates -> head, which date counts
        self._skipped: set[str] = set()  # `LEVEL text` that is understood and holds no fact
        self._masks = Masks()
        self._taken: dict[tuple[int, multiline.Writer | None], int] = {}  # pattern and writer -> last line of a record
        self._present: frozenset[str] = frozenset()  # of the grammar's rare literals near these lines

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
        head = nccl_header.parse(prefixes.clean(left))
        stamp = head.label.stamp
        number = self.partial.head(head._replace(label=head.label._replace(stamp=None)))
        writer = Writer(number, stamp, left)
        if stamp is None:
            if len(self._writers) > _MEMO:
                self._writers.clear()
            self._writers[left] = writer
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
            left, found, rest = piece.partition(nccl_header.TOKEN)
            while found:
                if nccl_header.TOKEN in rest and (inner := nccl_header.GLUED.search(rest)):
                    self._record(left, rest[: inner.start()], number, _nothing)
                    left, found, rest = rest[inner.start() :].partition(nccl_header.TOKEN)
                else:
                    if nccl_header.TOKEN in rest and (
                        whole := nccl_header.record(left + nccl_header.TOKEN + rest)
                    ):  # prose names NCCL
                        left, level, body = whole
                        rest = f"{level} {body}"
                    self._record(left, rest, number, after)
                    break

    def _record(self, left: str, rest: str, number: int, after: After) -> None:
        """One record: `left` is its head, `rest` its level and its message."""
        if rest.endswith(prefixes.CLOSING):
            rest = prefixes.closed(rest)
        level, _, body = rest.partition(" ")
        if level in nccl_header.LEVELS and nccl_header.begins(left):
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
        pattern = self.grammar.nccl(text, level, self._present)
        if (pattern is None or pattern.reader != SKIP) and (not text.isprintable() or "&" in text):
            text = prefixes.clean(body).strip()
            pattern = self.grammar.nccl(text, level, self._present)
        if pattern is not None and pattern.reader == SKIP and level not in nccl_header.SHOWN:
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
            if text and level not in nccl_header.SHOWN:
                return
        partial.understood += 1
        if pattern is not None and pattern.reader == "collective":
            self._call(writer, pattern, text, number)
        elif pattern is not None:
            partial.count(Key(writer.head, pattern.order, level, text), repeat, number, writer.stamp, writer.left)
        elif text:  # a WARN or ATTN line is always shown, known or not
            partial.count(Key(writer.head, -1, level, text[:500]), repeat, number, writer.stamp, writer.left)

    def _plain_edge(self, writer: Writer, number: int, channel: str, edge: str) -> Edges | None:
        """Where Channel lines like this one are counted; None where it may be anything else, or more than that."""
        edges = self.partial.edges[writer.head]
        entry = edges.get(edge)
        if entry is None and _EDGE(edge):
            entry = edges[edge] = Edges(0, 0, number, number, channel, writer.left)
        return entry

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
        elif number < entry.first:  # plain lines of a block are counted before the others
            entry.first, entry.channel, entry.left = number, channel, writer.left
        entry.mask |= self._masks[channel]
        entry.n += 1
        entry.last = max(entry.last, number)
        if writer.stamp is not None:
            span = self.partial.spans[writer.head]
            span.stamp, span.stamped = writer.stamp, number
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
            rows = multiline.following(after, pattern.lines, label)
            whole = _bounded("\n".join([body, *(row.text for row in rows)]))
            return pattern, whole if pattern.match(whole, level) is not None else body
        for row in multiline.following(after, 1, label):
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
        record = nccl_header.record(line)
        if record is not None:
            patterns = [pattern for pattern in patterns if pattern.nccl_too]
            if not patterns:
                return
            left, _, text = record
            label = nccl_header.parse(left).label
        else:
            label, text = prefixes.split(line)
        left = line[: len(line) - len(text)] if line.endswith(text) else ""
        for pattern, whole in multiline.matches(patterns, text, after, label):
            end = at + whole.distance
            last = numbers[end] if end < len(numbers) else numbers[-1] + end - len(numbers) + 1
            place = (pattern.order, multiline.who(label))
            if last <= self._taken.get(place, 0):  # part of the record before it
                continue
            if whole.distance:
                self._taken[place] = last
            body = _bounded(whole.text)
            if pattern.reader == LAST_ERROR:
                match = pattern.compiled.search(body)
                repeated = self.grammar.nccl(match["text"], "WARN") if match else None
                # Of verbs and libfabric; for the others there are patterns of the text alone.
                if match is None or repeated is None or not (repeated.file == "ib" or repeated.name.startswith("ofi-")):
                    continue
                pattern, body, number = repeated, match["text"], last
            head = Head(label.host, label.pid, None, None, None, label._replace(stamp=None, repeat=1), True)
            key = Key(self.partial.head(head), pattern.order, "", body)
            self.partial.count(key, label.repeat, number, label.stamp, left)


def _bounded(text: str) -> str:
    """A text without numbers of more digits than Python converts."""
    return _DIGITS.sub(r"\1", text) if len(text) > LONG else text
