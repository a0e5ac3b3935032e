"""Decides what a record of NCCL says: a channel line, a known message, or an unknown text; and counts it."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes
from nccl_doctor.knowledge.catalogue import catalogue
from nccl_doctor.log import multiline, nccl_header
from nccl_doctor.log.channel_counts import ChannelCounts, ChannelMasks
from nccl_doctor.log.counts import CollectiveCalls, EventKey, LogCounts
from nccl_doctor.log.line_patterns import Grammar, Pattern
from nccl_doctor.log.multiline import NextLines

COLLECTIVE = "collective"  # reader of patterns of collective calls
SKIP = "skip"  # reader of patterns that are understood and hold no fact
_MEMO = 50_000  # entries after which a memo is emptied
_MEMO_LENGTH = 200  # longer messages do not come twice
LONG = 4_000  # only a longer line can hold a number with more digits than Python converts
_DIGITS = compiled(r"(\d{20})\d{80,}")
_ODD = (" via ", "[repeated ", "&", *prefixes.CLOSING)  # parts of messages that are not read alone
_SHAPES = 10_000  # texts and shapes remembered
_LEVELS = tuple(f"{level} " for level in nccl_header.LEVELS)
_Time = tuple[str, int, int]  # kind of a time stamp, and where it begins and ends
_TRACE_CLOCK = compiled(r"\] (\d{1,12}\.\d{6,9} )[\w.-]{1,80}:\d")  # of NCCL_DEBUG=TRACE: microseconds since the start
DATE = compiled(r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")


class Writer(NamedTuple):
    """Who wrote a line."""

    header: int  # number in the counts
    stamp: float | None
    left: str  # the text before `NCCL `


class Sentence(NamedTuple):
    """What all lines with one message say."""

    level: str
    text: str
    pattern: int | None  # order of the pattern; None where the message is understood and holds no fact


def _nothing(_count: int) -> list[str]:
    return []


class Classifier:
    """Counts what lines say. The scanner chooses the lines."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.counts = LogCounts()
        self.writers: dict[str, Writer] = {}  # text before `NCCL ` -> who wrote it, where it has no time stamp
        self.skipped: set[str] = set()  # `LEVEL text` that is understood and holds no fact
        self.present: frozenset[str] = frozenset()  # of the grammar's rare literals near the lines that come next
        self._unread: set[tuple[str, str]] = set()  # levels and messages that `sentence` did not know
        self._times: dict[bytes, tuple[_Time, ...]] = {}  # the text before `NCCL `, digits as 0 -> where its times are
        self._dated: dict[tuple[str, ...], tuple[int, int]] = {}  # parts around the times -> header, which time counts
        self._masks = ChannelMasks()

    def writer(self, left: str) -> Writer:
        """Who wrote a line, from the text before `NCCL `."""
        known = self.writers.get(left)
        if known is not None:
            return known
        clock = _TRACE_CLOCK.search(left)
        if clock is not None:  # which differs from line to line
            return self.writer(left[: clock.start(1)] + left[clock.end(1) :])._replace(left=left)
        shape = left.encode("utf-8", "replace").translate(prefixes.ZEROS)
        times = self._times.get(shape)
        dated = self._dated.get(_without(left, times)) if times else None
        if times and dated is not None:  # time stamps differ from line to line: the text around them is parsed once
            number, which = dated
            return Writer(number, _seconds(left, times[which]), left)
        header = nccl_header.parse_header(prefixes.clean(left))
        stamp = header.label.stamp
        plain = header if stamp is None else header._replace(label=header.label._replace(stamp=None))
        number = self.counts.header_id(plain)
        writer = Writer(number, stamp, left)
        if stamp is None:
            if len(self.writers) > _MEMO:
                self.writers.clear()
            self.writers[left] = writer
        elif len(self._dated) < _MEMO and len(self._times) < _MEMO:
            if times is None:
                times = self._times[shape] = _times_in(left)
            shown = [_seconds(left, time) for time in times]
            if stamp in shown:
                self._dated[_without(left, times)] = number, shown.index(stamp)
        return writer

    def add_nccl_line(self, line: str, number: int, after: NextLines) -> None:
        """Count the records of a line: one, or several where a carriage return wiped the line or two writers shared it."""
        if line.startswith("{"):
            line = prefixes.opened(line)
        line = bounded(line)
        for piece in line.split("\r") if "\r" in line else (line,):
            *glued, last = nccl_header.glued_records(piece)
            for record in glued:
                left, _, rest = record.partition(nccl_header.TOKEN)
                self._add_split_record(left, rest, number, _nothing)
            left, token, rest = last.partition(nccl_header.TOKEN)
            if nccl_header.TOKEN in rest and (found := nccl_header.split_record(last)):  # prose names NCCL
                left, level, body = found
                rest = f"{level} {body}"
            if token:
                self._add_split_record(left, rest, number, after)

    def _add_split_record(self, left: str, rest: str, number: int, after: NextLines) -> None:
        """Count one record: `left` is its header, `rest` its level and its message."""
        if rest.endswith(prefixes.CLOSING):
            rest = prefixes.closed(rest)
        level, _, body = rest.partition(" ")
        if level in nccl_header.LEVELS and nccl_header.can_precede_record(left):
            self.add_record(self.writer(left), rest, level, body, number, after)

    def add_record(self, writer: Writer, rest: str, level: str, body: str, number: int, after: NextLines) -> None:
        """Count one record of a known writer: `rest` is its level and its message, `body` the message alone."""
        repeat = 1
        if "[repeated " in body:
            body, repeat = prefixes.unfold(body)
        if body.startswith(("Channel ", "Ring ")) and " via " in body and self._add_channel(writer, body, number):
            return
        counts = self.counts
        counts.nccl_lines += 1
        counts.spans[writer.header].add(number, writer.stamp)
        if rest in self.skipped:
            counts.understood += 1
            return
        if counts.is_new_beyond(level, body):
            counts.understood += 1
            return
        pattern, text = self._pattern(body, level)
        if _is_skipped(pattern, level):
            self._remember_skipped(rest)
            counts.understood += 1
            return
        if pattern.lines if pattern is not None else level != "TRACE":
            pattern, text = self._continued(pattern, text, level, after, counts.headers[writer.header].label)
        if pattern is None:
            self._add_unknown(writer, level, body, text, repeat, number)
            return
        counts.understood += 1
        if pattern.reader == COLLECTIVE:
            self._add_collective(writer, pattern, text, number)
        else:
            key = EventKey(writer.header, pattern.order, level, text)
            counts.count(key, repeat, number, writer.stamp, writer.left)

    def _pattern(self, body: str, level: str) -> tuple[Pattern | None, str]:
        """The pattern of a message, the catalogue's included, and its text, cleaned of control characters where it has any."""
        text = body.strip()
        if (level, text) in self._unread:
            return None, text
        pattern = self.grammar.nccl(text, level, self.present)
        if (pattern is None or pattern.reader != SKIP) and (not text.isprintable() or "&" in text):
            text = prefixes.clean(body).strip()
            pattern = self.grammar.nccl(text, level, self.present)
        return self._catalogued(pattern, text, level), text

    def _catalogued(self, pattern: Pattern | None, text: str, level: str) -> Pattern | None:
        """The pattern of a message, also of one that only the catalogue of messages knows."""
        if level == "INFO" and (pattern is None or pattern.reader == SKIP) and catalogue().find_info(text) is not None:
            return self.grammar.catalogued
        return pattern

    def odd_parts(self, texts: str) -> list[str] | None:
        """What of messages, given one a line, keeps some of them from being read alone; None where each has to be looked at."""
        if not texts.replace("\n", "").isprintable() or " \n" in texts or "\n " in texts or texts != texts.strip():
            return None
        return [part for part in (*_ODD, *self.grammar.in_records) if part in texts]

    def sentence(
        self, level: str, text: str, odd: Sequence[str] | None = None, present: frozenset[str] | None = None
    ) -> Sentence | None:
        """What a message says without the lines around it; None where each line has to be read.

        `odd` are the `odd_parts` of several messages of which this is one, and `present` the rare literals that these hold.
        """
        if odd is None:
            odd = self.odd_parts(text)
        if odd is None or (odd and any(part in text for part in odd) and self._is_odd(text)):
            return None
        pattern = self._catalogued(self.grammar.nccl(text, level, present), text, level)
        if _is_skipped(pattern, level):
            return Sentence(level, text, None)
        if pattern is None or pattern.lines or pattern.reader == COLLECTIVE:
            if pattern is None:
                if len(self._unread) > _SHAPES:
                    self._unread.clear()
                self._unread.add((level, text))
            return None
        return Sentence(level, text, pattern.order)

    def is_unknown(self, level: str, text: str) -> bool:
        """Whether nothing knows a message, whatever lines are around it."""
        odd = self.odd_parts(text)
        if odd is None or (odd and self._is_odd(text)):
            return False
        return self._catalogued(self.grammar.nccl(text, level), text, level) is None

    def _is_odd(self, text: str) -> bool:
        """Whether a message is a line of a channel, stands for several, has entities, or holds the literal of a text pattern."""
        return (
            (text.startswith(("Channel ", "Ring ")) and " via " in text)
            or "[repeated " in text
            or "&" in text
            or text.endswith(prefixes.CLOSING)
            or any(literal in text for literal in self.grammar.in_records)
        )

    def _remember_skipped(self, rest: str) -> None:
        if len(rest) < _MEMO_LENGTH:
            if len(self.skipped) > _MEMO:
                self.skipped.clear()
            self.skipped.add(rest)

    def _add_unknown(self, writer: Writer, level: str, body: str, text: str, repeat: int, number: int) -> None:
        """Count a message without a pattern; a WARN or ATTN line is shown all the same."""
        counts = self.counts
        if text:
            counts.note_unknown(body, 1)
        if text and level not in nccl_header.SHOWN:
            return
        counts.understood += 1
        if text:
            key = EventKey(writer.header, -1, level, text[:500])
            counts.count(key, repeat, number, writer.stamp, writer.left)

    def _add_channel(self, writer: Writer, body: str, number: int) -> bool:
        """Count a channel line; False where it is another kind of line, or torn."""
        channel, _, edge = body.rstrip().partition(" : ")
        channel = channel.partition(" ")[2]
        channels = self.counts.channels[writer.header]
        entry = channels.get(edge)
        if entry is None:
            if " -> " not in edge or " via " not in edge or edge.endswith((" via", "[send]", "[receive]")):
                return False
            if not self.counts.takes_edges(read=1):
                self.counts.nccl_lines += 1
                self.counts.understood += 1
                self.counts.spans[writer.header].add(number, writer.stamp)
                return True
            entry = channels[edge] = ChannelCounts(0, 0, number, number, channel, writer.left)
        elif number < entry.first:  # plain lines of a block are counted before the others
            entry.first, entry.channel, entry.left = number, channel, writer.left
        entry.mask |= self._masks[channel]
        entry.n += 1
        entry.last = max(entry.last, number)
        if writer.stamp is not None:
            span = self.counts.spans[writer.header]
            span.stamp, span.stamped = writer.stamp, number
        return True

    def _add_collective(self, writer: Writer, pattern: Pattern, text: str, number: int) -> None:
        match = pattern.compiled.match(text)
        if match is not None:
            self._calls(writer, pattern, match, text, number).add(number, int(match["first_op"], 16), writer.left, text)

    def calls(self, writer: Writer, text: str, number: int) -> CollectiveCalls | None:
        """Where collective calls like this one are counted; None where it is another kind of line."""
        pattern = self.grammar.nccl(text, "INFO")
        match = pattern.compiled.match(text) if pattern is not None and pattern.reader == COLLECTIVE else None
        if pattern is None or match is None or not text.isprintable() or "&" in text or text != text.strip():
            return None
        return self._calls(writer, pattern, match, text, number)

    def _calls(self, writer: Writer, pattern: Pattern, match: re.Match[str], text: str, number: int) -> CollectiveCalls:
        """Where collectives are counted without the parts that differ from call to call: opCount and buffers."""
        sizes = text[text.find("count ", match.end("first_op")) :]
        shape = f"{match['function']}: opCount 0 sendbuff 0 recvbuff 0 {sizes}"
        key = EventKey(writer.header, pattern.order, "INFO", shape)
        return self.counts.collective_calls(key, int(match["first_op"], 16), number, writer.stamp, writer.left, text)

    def _continued(
        self, pattern: Pattern | None, body: str, level: str, after: NextLines, label: prefixes.Label
    ) -> tuple[Pattern | None, str]:
        """The whole text of a record of several lines, or of one that was torn or wrapped over two."""
        if pattern is not None:
            rows = multiline.following_lines(
                self._behind(after, pattern.lines), pattern.lines, multiline.writer_of(label)
            )
            whole = bounded("\n".join([body, *(row.text for row in rows)]))
            return pattern, whole if pattern.match(whole, level) is not None else body
        writer = multiline.writer_of(label)
        if writer is None and self._are_records(after(1)):
            return None, body
        for row in multiline.following_lines(self._behind(after, 1), 1, writer):
            text = bounded(row.text)
            for whole in (body + text, f"{body} {text.strip()}") if text.strip() else ():
                pattern = self.grammar.nccl(whole, level, self.present)
                if pattern is not None:
                    return pattern, whole
        return None, body

    def _behind(self, after: NextLines, count: int) -> Iterable[multiline.LineBehind]:
        """What the lines say among which the next `count` of a writer are."""
        return map(self._line_behind, after(multiline.reach(count)))

    def _line_behind(self, line: str) -> multiline.LineBehind:
        """What the lines before need of a line. The text of a record is not asked for."""
        left, token, rest = line.partition(nccl_header.TOKEN)
        writer = self.writers.get(left) if token else None
        if writer is None or not rest.startswith(_LEVELS) or not line.isprintable():
            return multiline.line_behind(line)
        label = self.counts.headers[writer.header].label
        return multiline.LineBehind(len(line), "", multiline.writer_of(label), is_record=True)

    def _are_records(self, lines: Sequence[str]) -> bool:
        """Whether lines are records of writers whose records were read."""
        return all(
            token and left in self.writers and rest.startswith(_LEVELS) and "\r" not in line
            for line, (left, token, rest) in ((line, line.partition(nccl_header.TOKEN)) for line in lines)
        )


def _times_in(left: str) -> tuple[_Time, ...]:
    """Where the prefixes in front of a record say when it was written."""
    found = prefixes.layout(left + nccl_header.TOKEN)
    return tuple(field for field in found.fields if field[0] not in prefixes.NAMES) if found is not None else ()


def _without(left: str, times: Sequence[_Time]) -> tuple[str, ...]:
    """The parts of a text around its times."""
    starts = (0, *(end for _, _, end in times))
    return tuple(
        [left[start:end] for start, end in zip(starts, (*(begin for _, begin, _ in times), None), strict=True)]
    )


def _seconds(left: str, time: _Time) -> float | None:
    name, begin, end = time
    return _seconds_of(name, left[begin:end])


_seconds_of = lru_cache(512)(prefixes.seconds)  # many lines are of one second


def _is_skipped(pattern: Pattern | None, level: str) -> bool:
    return pattern is not None and pattern.reader == SKIP and level not in nccl_header.SHOWN


def bounded(text: str) -> str:
    """A text without numbers of more digits than Python converts."""
    return _DIGITS.sub(r"\1", text) if len(text) > LONG else text
