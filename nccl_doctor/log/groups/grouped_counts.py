"""Counts lines of large logs in groups: Python looks at each writer, each message and each edge once, numpy counts the rest.

What stays for a rank that says what all others say is an entry in columns of numbers.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.log import nccl_header
from nccl_doctor.log.channel_counts import ChannelColumns
from nccl_doctor.log.classifier import DATE, Classifier, Writer
from nccl_doctor.log.counts import CollectiveCalls
from nccl_doctor.log.event_columns import Message
from nccl_doctor.log.groups.edge_lines import EdgeParts
from nccl_doctor.log.groups.known_keys import KnownKeys
from nccl_doctor.log.groups.line_groups import CALL, EDGE, TEXT, BlockLines, GroupCounts, PlainLines
from nccl_doctor.log.groups.number_shapes import NumberShapes

MAX_GROUPS = 1 << 20  # different lines that are counted together
_WORTH = 16  # one message in so many lines that differs only in numbers is worth to look for the shapes of all
_MEMO = 200_000  # writers and messages remembered
_READ = np.iinfo(np.int64).min  # a message whose lines have to be read one by one
_NO_FACT = -1  # a message that is understood and holds no fact
_EDGES = -(1 << 40)  # the first edge; the others are below
_UNKNOWN = -(1 << 50)  # the first message that nothing knows; the others are below
_CHANNEL_TEXT = re.compile(r"[0-9]{2}(?:/[!-~])?").fullmatch
_FLOOD = -(1 << 60)  # the first pattern of which no more are kept; the others are below


class GroupedBlock(NamedTuple):
    """A block whose equal lines were counted."""

    lines: BlockLines
    known: Flags  # which groups of lines were counted
    offset: int  # lines before the block


class Author(NamedTuple):
    """Who wrote the lines of a group."""

    writer: Writer  # of one of them
    left: str  # the text before `NCCL ` in the first of them
    date: slice | None  # where that text shows the time

    @property
    def stamp(self) -> float | None:
        """When the first of the lines was written."""
        return self.writer.stamp if self.date is None else iso_seconds(self.left[self.date])


class GroupedCounts:
    """Counts the plain lines of dense blocks. What they count for is a number: of a message, behind `_NO_FACT` of a kind of
    collective calls, behind `_EDGES` of an edge."""

    def __init__(self, classifier: Classifier, present: Callable[[bytes], frozenset[str]]) -> None:
        """`present` tells which of the grammar's rare literals a text holds."""
        self._classifier = classifier
        self._present = present
        self._counts = classifier.counts
        self._shapes = NumberShapes(classifier)
        self._many_numbers = True  # whether many messages of the last block held no fact and differed in numbers alone
        self._idle = 0  # new messages of this block that hold no fact
        self._start()

    def _start(self) -> None:
        self._groups = GroupCounts()
        self._authors: list[Author] = []
        self._author_of = KnownKeys()  # of texts before `NCCL `; `_READ` where lines are read one by one
        self._latest: dict[
            int, tuple[int, str]
        ] = {}  # author -> the last line that was counted here, and what is in front of it
        self._message_of = KnownKeys()  # of messages: what they count for
        self._entries: list[CollectiveCalls] = []
        self._unknown: list[str] = []  # messages that nothing knows
        self._carrier_of: dict[
            int, int
        ] = {}  # key of the texts behind the ranks of an edge -> number, -1 where not readable
        self._edges = ChannelColumns(self._counts.edges)  # what the texts of edges say
        self._first_of: dict[
            tuple[int, int], int
        ] = {}  # pattern of a flood and header -> the message that counts for all

    def add(self, block: bytes, end: int, offset: int) -> GroupedBlock:
        """Count the plain lines of `block[:end]`, which `offset` lines precede."""
        if len(self._groups) > MAX_GROUPS or len(self._authors) > MAX_GROUPS:
            self.close()
        if len(self._message_of) > _MEMO:
            self._message_of = KnownKeys()
        shapes, self._idle = self._shapes if self._many_numbers else None, 0
        lines = BlockLines(block, end, None if shapes is None else shapes.messages)
        known = self._groups.add(lines.groups, offset, lambda new: self._targets(lines, new, offset))
        self._many_numbers = (self._idle if shapes is None else shapes.found) * _WORTH > len(lines.stops)
        return GroupedBlock(lines, known, offset)

    def _targets(self, lines: BlockLines, new: Numbers, offset: int) -> tuple[Numbers, Numbers]:
        """What new groups count for and who wrote their lines; `_READ` where these have to be read one by one."""
        first = lines.first_lines(new)
        authors = self._authors_of(lines, first)
        readable = authors != _READ
        what = np.full(len(new), _READ)
        is_text = readable & (first.kind == TEXT)
        what[is_text] = self._messages_of(lines, first.chosen(is_text))
        for place in np.flatnonzero((what <= _FLOOD) & (what != _READ)).tolist():
            what[place] = self._of_flood(lines, first, place, int(_FLOOD - what[place]), int(authors[place]))
        if lines.dated:
            own = np.flatnonzero(readable & ((what >= 0) | ~is_text))
            authors[own] = self._own_authors(lines, first.chosen(own), authors[own])
        edges = np.flatnonzero(readable & (first.kind == EDGE))
        what[edges] = self._edges_of(lines, first.chosen(edges))
        rest = np.flatnonzero(readable & (first.kind == CALL))
        what[rest] = [
            self._call(lines, self._writer(author), *place)
            for author, place in zip(authors[rest].tolist(), self._places(first.chosen(rest), offset), strict=True)
        ]
        return what, authors

    @staticmethod
    def _places(lines: PlainLines, offset: int) -> Iterator[tuple[int, ...]]:
        columns = (lines.number + offset, lines.text, lines.end)
        return zip(*(column.tolist() for column in columns), strict=True)

    def _authors_of(self, lines: BlockLines, first: PlainLines) -> Numbers:
        """The number of the author of each line; those of lines that differ in their time are one author."""
        keys, at, of = np.unique(first.writer, return_index=True, return_inverse=True)

        def new(places: Numbers) -> list[int]:
            return [
                self._author(lines.left(*place), dated=lines.dated) for place in first.chosen(at[places]).left_places()
            ]

        return self._author_of.learn(keys, new)[of]

    def _own_authors(self, lines: BlockLines, first: PlainLines, authors: Numbers) -> Numbers:
        """Authors of single lines, which keep the text in front of them and with it their time."""
        begin = len(self._authors)
        for author, place in zip(authors.tolist(), first.left_places(), strict=True):
            writer, _, date = self._authors[author]
            self._authors.append(Author(writer, lines.left(*place), date))
        return np.arange(begin, len(self._authors))

    def _writer(self, author: int) -> Writer:
        """Who wrote the first line of a group, with its time."""
        one = self._authors[author]
        return one.writer if one.date is None else Writer(one.writer.header, one.stamp, one.left)

    def _author(self, left: str, *, dated: bool) -> int:
        writer = self._classifier.writers.get(left)
        if writer is None:
            if nccl_header.TOKEN in left or left.startswith("{") or not nccl_header.can_precede_record(left):
                return _READ
            writer = self._classifier.writer(left)
        if writer.stamp is not None and not dated:
            return _READ
        if writer.stamp is None and dated and DATE.search(left) is not None:  # a part of the name of the host
            return _READ
        dates = [date for date in DATE.finditer(left) if dated and iso_seconds(date[0]) == writer.stamp]
        self._authors.append(Author(writer, left, slice(*dates[-1].span()) if dates else None))
        return len(self._authors) - 1

    def _messages_of(self, lines: BlockLines, first: PlainLines) -> Numbers:
        """What the message of each line counts for."""
        keys, at, of = np.unique(first.message, return_index=True, return_inverse=True)

        def new(places: Numbers) -> Numbers:
            order = np.argsort(at[places])  # of a flood the first ones are kept
            levels, text = lines.messages(first.chosen(at[places[order]]))
            odd, present = self._classifier.odd_parts(text), self._present(text.encode())
            found = np.empty(len(places), np.int64)
            unknown = self._shapes.unknown
            found[order] = [
                self._message(level, body, odd, present) if key not in unknown else self._unknown_message(body)
                for key, level, body in zip(keys[places[order]].tolist(), levels, text.split("\n"), strict=True)
            ]
            return found

        return self._message_of.learn(keys, new)[of]

    def _message(self, level: str, text: str, odd: Sequence[str] | None, present: frozenset[str]) -> int:
        if self._counts.is_new_beyond(level, text):
            return _NO_FACT
        sentence = self._classifier.sentence(level, text, odd, present)
        if sentence is None:
            return _READ
        if sentence.pattern is None:
            self._idle += 1
            return _NO_FACT
        message = Message(sentence.pattern, level, text)
        if level != "INFO" and self._counts.has_enough(message):
            return _FLOOD - sentence.pattern
        return self._counts.columns.message_id(message)

    def _unknown_message(self, text: str) -> int:
        self._idle += 1
        self._unknown.append(text)
        return _UNKNOWN - len(self._unknown) + 1

    def _of_flood(self, lines: BlockLines, first: PlainLines, place: int, pattern: int, author: int) -> int:
        """What a text of a flood counts for: the first of its writer's that came when enough of the pattern were kept."""
        writer = pattern, self._authors[author].writer.header
        known = self._first_of.get(writer)
        if known is None:
            (level,), text = lines.messages(first.chosen(np.array([place])))
            known = self._first_of[writer] = self._counts.columns.message_id(Message(pattern, level, text))
        return known

    def _edges_of(self, lines: BlockLines, first: PlainLines) -> Numbers:
        """What Channel lines count for."""
        if not len(first.number):
            return first.number
        begin = len(self._edges.src)
        parts = lines.edges(first)
        carrier, channel = self._carriers_of(lines, first, parts), self._channels_of(lines, first)
        readable = parts.readable & (carrier >= 0) & (channel >= 0)
        if not self._counts.takes_edges():
            return np.where(readable, _NO_FACT, _READ)
        columns = {"src": parts.src, "dst": parts.dst, "carrier": carrier, "channel": channel}
        for name, column in columns.items():
            getattr(self._edges, name).frombytes(column[readable].tobytes())
        what = np.full(len(readable), _READ)
        what[readable] = _EDGES - begin - np.arange(readable.sum())
        return what

    def _carriers_of(self, lines: BlockLines, first: PlainLines, parts: EdgeParts) -> Numbers:
        """The numbers of what carries edges, below 0 where it cannot be read."""
        keys, at, of = np.unique(parts.key, return_index=True, return_inverse=True)
        numbers = []
        for key, place in zip(keys.tolist(), at.tolist(), strict=True):
            number = self._carrier_of.get(key) if parts.readable[place] else -1
            if number is None:
                behind_src = lines.part(parts.src_end[place], parts.dst_start[place])
                behind_dst = lines.part(parts.dst_end[place], first.end[place])
                found = self._edges.carrier_number(behind_src, behind_dst)
                number = self._carrier_of[key] = -1 if found is None else found
            numbers.append(number)
        return np.array(numbers, np.int64)[of]

    def _channels_of(self, lines: BlockLines, first: PlainLines) -> Numbers:
        """The numbers of the texts of channels, below 0 where they are no such texts."""
        texts, of = lines.channels(first)
        known = self._edges.channels
        return np.array([known[text] if _CHANNEL_TEXT(text) else -1 for text in texts], np.int64)[of]

    def _call(self, lines: BlockLines, writer: Writer, number: int, text: int, end: int) -> int:
        """Where collective calls of one kind are counted."""
        entry = self._classifier.calls(writer, lines.part(text, end), number)
        if entry is None:
            return _READ
        self._entries.append(entry)
        return _NO_FACT - len(self._entries)

    def note_times(self, block: GroupedBlock) -> None:
        """Note when each writer wrote the last of the lines that were counted together."""
        if not block.lines.dated:
            return
        last = block.lines.last_lines(block.known)
        numbers = (last.number + block.offset).tolist()
        authors = self._author_of.of(last.writer).tolist()
        for author, number, place in zip(authors, numbers, last.left_places(), strict=True):
            self._latest[author] = number, block.lines.left(*place)

    def _add_times(self) -> None:
        """Add the times of last lines to the counts."""
        for number, left in self._latest.values():
            writer = self._classifier.writer(left)
            span = self._counts.spans[writer.header]
            if number > span.stamped and writer.stamp is not None:
                span.stamp, span.stamped = writer.stamp, number

    def close(self) -> None:
        """Add what was counted to the counts, and begin anew."""
        self._add_times()
        what, author, mask, n, first, last, low, high = self._groups.columns()
        lefts, stamps = [one.left for one in self._authors], [one.stamp for one in self._authors]
        header = np.array([one.writer.header for one in self._authors], np.int64)[author]
        is_unknown = what <= _UNKNOWN
        is_edge = (what <= _EDGES) & ~is_unknown
        for number, count in zip(what[is_unknown].tolist(), n[is_unknown].tolist(), strict=True):
            self._counts.note_unknown(self._unknown[_UNKNOWN - number], count)
            self._counts.understood -= count
        calls = np.flatnonzero((what < _NO_FACT) & (what > _EDGES))
        rows: Any = zip(*(column[calls].tolist() for column in (what, n, last, low, high)), strict=True)
        for number, count, line, least, most in rows:
            self._entries[_NO_FACT - number - 1].extend(count, line, least, most)
        edges = {"header": header, "mask": mask, "n": n, "first": first, "last": last}
        self._add_edges(
            _EDGES - what[is_edge],
            {name: one[is_edge] for name, one in edges.items()},
            [lefts[number] for number in author[is_edge].tolist()],
        )
        self._add_spans(header[~is_edge], n[~is_edge], first[~is_edge], last[~is_edge])
        event = what >= 0
        authors = author[event].tolist()
        self._counts.columns.extend(
            [what[event], header[event], n[event], first[event], last[event]],
            [stamps[number] for number in authors],
            [lefts[number] for number in authors],
        )
        self._start()

    def _add_edges(self, number: Numbers, columns: dict[str, Any], left: Sequence[str]) -> None:
        """Add the edges of these numbers to the counts; `left` is the text in front of the first line of each."""
        parts = self._edges.arrays_of("src", "dst", "carrier", "channel")
        self._counts.edges.extend({**columns, **{name: part[number] for name, part in parts.items()}}, left)

    def _add_spans(self, header: Numbers, n: Numbers, first: Numbers, last: Numbers) -> None:
        """Add lines of headers to what is known of each; Channel lines are added later."""
        if not len(header):
            return
        order = np.argsort(header, kind="stable")
        start = np.flatnonzero(np.append(True, header[order][1:] != header[order][:-1]))
        found = (
            header[order][start],
            np.add.reduceat(n[order], start),
            np.minimum.reduceat(first[order], start),
            np.maximum.reduceat(last[order], start),
        )
        for number, count, begin, end in zip(*(column.tolist() for column in found), strict=True):
            self._counts.spans[number].extend(count, begin, end, None)
        total = int(n.sum())
        self._counts.nccl_lines += total
        self._counts.understood += total
