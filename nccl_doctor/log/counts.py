"""Counters of one part of a log. Parts are read separately, also by other processes, and merged in order."""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.common import budgets
from nccl_doctor.log.channel_counts import ChannelColumns, ChannelsByEdge
from nccl_doctor.log.event_columns import EventColumns, EventRow, Message
from nccl_doctor.log.nccl_header import NO_LABEL, NcclHeader

MAX_EVENTS = 5_000  # kept of one pattern, INFO lines apart; further ones count for the first of their writer and hour
_MAX_READ = (
    2 * MAX_EVENTS
)  # texts of one pattern that a part counts in columns; the parts together are cut to MAX_EVENTS
_MAX_OBJECTS = 2 * MAX_EVENTS  # events of one pattern that a part holds as objects
_MOST_UNKNOWN = 2_000  # different messages kept that no pattern knows
BUDGETED = {
    "writers": "different writers",
    "texts": "different messages of NCCL",
    "edges": "different edges between ranks",
}  # of which a log may hold as many as a budget of this name says
_OTHERS = NcclHeader(None, None, None, None, None, NO_LABEL, True)  # stands for writers beyond the budget
_START, _COMPLETE = "Init START", "Init COMPLETE"


_Speaker = tuple[int, int | None]  # header, and the hour of a line of the kernel


class EventKey(NamedTuple):
    """Events with equal keys are counted together."""

    header: int
    pattern: int  # order of the pattern; -1 for a WARN line that no pattern knows
    level: str
    body: str  # what the pattern matched: the message, or the text without launcher prefix
    hour: int | None = None  # of a line of the kernel: an error of this hour is not that of another job last week


class Event:
    """How often and on which lines an event occurred."""

    __slots__ = ("first", "last", "left", "n", "stamp")

    def __init__(self, n: int, first: int, last: int, stamp: float | None, left: str) -> None:
        self.n = n
        self.first = first
        self.last = last
        self.stamp = stamp
        self.left = left  # the text before the message in the first of them

    def more(self, n: int, last: int) -> None:
        """Count more lines, none of them before the first."""
        self.n += n
        self.last = max(self.last, last)


class CollectiveCalls(Event):
    """Collectives of one kind: their opCount differs from line to line and is kept as a range."""

    __slots__ = ("high", "low", "text")

    def __init__(
        self, n: int, first: int, last: int, stamp: float | None, left: str, low: int, high: int, text: str
    ) -> None:
        super().__init__(n, first, last, stamp, left)
        self.low = low
        self.high = high
        self.text = text  # the whole message of the first of them

    def add(self, line: int, op: int, left: str, text: str) -> None:
        """Count one call, which may lie before those that were counted together."""
        if line < self.first:
            self.first, self.left, self.text = line, left, text
        self.extend(1, line, op, op)

    def extend(self, n: int, last: int, low: int, high: int) -> None:
        """Count more calls, none of them before the first."""
        self.n += n
        self.last = max(self.last, last)
        self.low = min(self.low, low)
        self.high = max(self.high, high)


class LineSpan:
    """The NCCL lines of one writer: how many, the first and the last."""

    __slots__ = ("first", "last", "n", "stamp", "stamped")

    def __init__(self, n: int = 0, first: int = 0, last: int = 0, stamp: float | None = None) -> None:
        self.n = n
        self.first = first
        self.last = last
        self.stamp = stamp  # of the last line that had one
        self.stamped = 0  # the number of that line while a part of a log is read

    def add(self, line: int, stamp: float | None) -> None:
        """Count the next line."""
        if not self.n:
            self.first = line
        self.n += 1
        self.last = line
        if stamp is not None:
            self.stamp, self.stamped = stamp, line

    def extend(self, n: int, first: int, last: int, stamp: float | None) -> None:
        """Count lines that lie before, between or after those counted so far."""
        if n:
            self.first = min(self.first, first) if self.n else first
            self.last = max(self.last, last)
            self.n += n
        if stamp is not None:
            self.stamp = stamp


class LogCounts:
    """The counts of one part of a log."""

    def __init__(self) -> None:
        self.headers: list[NcclHeader] = []
        self.header_ids: dict[NcclHeader, int] = {}
        self.spans: list[LineSpan] = []  # per header
        self.channels: list[ChannelsByEdge] = []  # per header: `0[0] -> 1[1] via …`
        self.edges = ChannelColumns()  # those of lines that were counted together
        self.events: dict[EventKey, Event] = {}
        self.columns = EventColumns()  # events of lines that were counted together
        self.lines = 0
        self.bytes = 0
        self.nccl_lines = 0
        self.understood = 0
        self.unknown: dict[str, int] = {}  # samples of messages that no pattern knows
        self.marks: set[bytes] = set()  # literals of other formats that occur in the log
        self.full: set[str] = set()  # of BUDGETED, those that were reached
        self._bodies: set[str] = set()  # the messages that are kept, once there are enough of them
        self._edges_read = 0  # edges that were counted line by line
        self._texts: dict[int, int] = {}
        self._floods: dict[int, dict[_Speaker, Event]] = {}  # pattern -> the events that count the rest of a flood

    def header_id(self, header: NcclHeader) -> int:
        """The number of a header."""
        number = self.header_ids.get(header)
        if number is None and header != _OTHERS and len(self.headers) >= budgets.limit("writers"):
            self.full.add("writers")
            return self.header_id(_OTHERS)
        if number is None:
            number = self.header_ids[header] = len(self.headers)
            self.headers.append(header)
            self.spans.append(LineSpan())
            self.channels.append({})
        return number

    def in_order(self) -> list[int]:
        """The numbers of the headers in the order of their first NCCL lines, whatever was read first."""

        def place(number: int) -> tuple[int, str, int, int]:  # several may share a line
            head = self.headers[number]
            return self.spans[number].first, head.host or "", head.pid or 0, head.tid or 0

        return sorted(range(len(self.headers)), key=place)

    def count(self, key: EventKey, n: int, line: int, stamp: float | None, left: str) -> None:
        """Count an event that occurred `n` times on a line."""
        self.event(key, line, stamp, left).more(n, line)

    def repeat(self, key: tuple[int, int, str, str, int | None], line: int) -> bool:
        """Count an event once more that occurred on an earlier line, or that is one of a flood; False where it is new.

        `key` has the fields of an EventKey.
        """
        event = self.events.get(key)  # type: ignore[call-overload]  # equal tuples are equal keys
        header, pattern, _, _, hour = key
        if event is None and pattern in self._floods:
            event = self._floods[pattern].get((header, hour))
        if event is None or line < event.first:
            return False
        event.more(1, line)
        return True

    def event(self, key: EventKey, line: int, stamp: float | None, left: str) -> Event:
        """Where an event is counted; a new entry counts none yet."""
        event = self.events.get(key)
        if event is None and (key.level != "INFO" or key.pattern == -1):
            event = self._flood(key)
        if event is None:
            event = self.events[key] = Event(0, line, line, stamp, left)
            if key.pattern in self._floods and (key.level != "INFO" or key.pattern == -1):
                self._floods[key.pattern].setdefault((key.header, key.hour), event)
        elif line < event.first:  # plain lines of a block are counted before the others
            event.first, event.stamp, event.left = line, stamp, left
        return event

    def note_unknown(self, body: str, n: int) -> None:
        """Count a message of `n` lines that no pattern knows, as a sample of such messages."""
        if body in self.unknown or len(self.unknown) < _MOST_UNKNOWN:
            self.unknown[body] = self.unknown.get(body, 0) + n

    def is_new_beyond(self, level: str, body: str) -> bool:
        """Whether a message is a new one and as many are kept as may be. Those of warnings have a limit of their own."""
        if level != "INFO":
            return False
        if not self._bodies:
            if len(self.events) + len(self.columns.messages) < budgets.limit("texts"):
                return False
            self.full.add("texts")
            self._bodies.update(self.bodies())
        return body not in self._bodies

    def takes_edges(self, *, read: int = 0) -> bool:
        """Whether further edges are kept, of which `read` more were counted line by line."""
        self._edges_read += read
        if "edges" not in self.full and len(self.edges) + self._edges_read > budgets.limit("edges"):
            if len(self.edges):
                self.edges.fold()
            if len(self.edges) + self._edges_read > budgets.limit("edges") // 2:  # else most were the same
                self.full.add("edges")
        return "edges" not in self.full

    def has_enough(self, message: Message) -> bool:
        """Whether a message that is counted in columns is new and enough of its pattern are kept; else it is one of them."""
        if message in self.columns.ids:
            return False
        texts = self._texts[message.pattern] = self._texts.get(message.pattern, 0) + 1
        return texts > _MAX_READ

    def _fold(self) -> None:
        """Move events that were also counted in columns there."""
        columns, events = self.columns, self.events
        if len(columns):
            for key in [key for key in events if key[1:] in columns.ids]:
                self._move(key, events.pop(key))
            columns.fold()

    def _move(self, key: EventKey, event: Event) -> None:
        """Add an event to the columns."""
        at = self.columns.message_id(Message(*key[1:]))
        self.columns.append(EventRow(at, key.header, event.n, event.first, event.last, event.stamp, event.left))

    def _drop_superseded(self) -> None:
        """Drop the START of each communicator that was completed: the COMPLETE behind it repeats its fields.

        This halves the events. Call when all parts are there, because one may hold the START and another the COMPLETE.
        """
        for key, event in [(key, event) for key, event in self.events.items() if key.body.endswith(_COMPLETE)]:
            start = key._replace(body=key.body.removesuffix(_COMPLETE) + _START)
            if start in self.events and self.events[start].last < event.last:
                del self.events[start]

    def collective_calls(
        self, key: EventKey, op: int, line: int, stamp: float | None, left: str, text: str
    ) -> CollectiveCalls:
        """Where collectives of one kind are counted; a new entry counts none yet."""
        calls = self.events.get(key) or self._flood(key)
        if not isinstance(calls, CollectiveCalls):
            calls = self.events[key] = CollectiveCalls(0, line, line, stamp, left, op, op, text)
        return calls

    def _flood(self, key: EventKey) -> Event | None:
        """The event that counts for further texts of a pattern, once enough different ones are kept; else None."""
        texts = self._texts[key.pattern] = self._texts.get(key.pattern, 0) + 1
        if texts <= _MAX_OBJECTS:
            return None
        known = self._floods.get(key.pattern)
        if known is None:
            known = self._floods[key.pattern] = {}
            for other, event in self.events.items():
                if other.pattern == key.pattern:
                    known.setdefault((other.header, other.hour), event)
        return known.get((key.header, key.hour))

    def close(self) -> None:
        """Add the channel lines, which are counted by edge while reading, to the sums. Call once, after the last line."""
        self._fold()
        for span, by_edge in zip(self.spans, self.channels, strict=True):
            if by_edge:
                edges = by_edge.values()
                n = sum(edge.n for edge in edges)
                span.extend(n, min(edge.first for edge in edges), max(edge.last for edge in edges), None)
                self.nccl_lines += n
                self.understood += n
        for header, n, first, last in self.edges.spans():
            self.spans[header].extend(n, first, last, None)
            self.nccl_lines += n
            self.understood += n

    def all_edges(self) -> ChannelColumns:
        """The edges of all Channel lines."""
        if not any(self.channels):
            return self.edges
        every = ChannelColumns()
        if len(self.edges):
            every.merge(self.edges, range(len(self.headers)), 0)
        for header, edges in enumerate(self.channels):
            if edges:
                every.add(header, edges)
        return every

    def finish(self) -> None:
        """Put all events but collective calls, and all edges, into columns. Call once, when all parts were merged."""
        in_columns = len(self.columns) > 0
        if not in_columns:
            self._drop_superseded()
        self.edges, self.channels = self.all_edges(), [{} for _ in self.headers]
        if "numpy" in sys.modules:  # without it no edge was counted in two ways, or in two parts
            self.edges.fold()
        calls = {key: event for key, event in self.events.items() if type(event) is CollectiveCalls}
        for key, event in self.events.items():
            if key not in calls:
                self._move(key, event)
        if in_columns:
            self.columns.fold()
            self.columns.drop_superseded(_START, _COMPLETE)
        self.columns.cut(MAX_EVENTS)
        self.events = dict(sorted(calls.items(), key=lambda call: call[1].first))

    def bodies(self) -> Iterator[str]:
        """The messages of all events."""
        yield from (key.body for key in self.events)
        yield from (message.body for message in self.columns.messages)

    def packed(self) -> "PackedCounts":
        """All counts in columns, which pickle many times as fast as the objects."""
        events = [(*key, e.n, e.first, e.last, e.stamp, e.left) for key, e in self.events.items()]
        calls = {at: (e.low, e.high, e.text) for at, e in enumerate(self.events.values()) if type(e) is CollectiveCalls}
        return PackedCounts(
            headers=[(*head, s.n, s.first, s.last, s.stamp) for head, s in zip(self.headers, self.spans, strict=True)],
            events=list(zip(*events, strict=True)), calls=calls, edges=self.all_edges(),
            lines=self.lines, size=self.bytes, nccl_lines=self.nccl_lines, understood=self.understood,
            unknown=self.unknown, marks=self.marks, columns=self.columns, full=self.full,
        )  # fmt: skip

    def merge(self, other: "PackedCounts") -> None:
        """Append the counts of the part that follows this one."""
        offset = self.lines
        ids = []
        for *head, n, first, last, stamp in other.headers:
            number = self.header_id(NcclHeader(*head))
            ids.append(number)
            self.spans[number].extend(n, first + offset, last + offset, stamp)
        for at, row in enumerate(zip(*other.events, strict=True)):
            header_id, pattern, level, body, hour, n, first, last, stamp, left = row
            key = EventKey(ids[header_id], pattern, level, body, hour)
            event = self.events.get(key)
            if event is None:
                rest = (n, first + offset, last + offset, stamp, left)
                self.events[key] = CollectiveCalls(*rest, *other.calls[at]) if at in other.calls else Event(*rest)
            else:
                event.n += n
                event.last = last + offset
                if type(event) is CollectiveCalls and at in other.calls:
                    low, high, _ = other.calls[at]
                    event.low = min(event.low, low)
                    event.high = max(event.high, high)
        self.columns.merge(other.columns, ids, offset)
        self.edges.merge(other.edges, ids, offset)
        self.full |= other.full
        self.takes_edges()
        for body, n in other.unknown.items():
            self.unknown[body] = self.unknown.get(body, 0) + n
        self.lines += other.lines
        self.bytes += other.size
        self.nccl_lines += other.nccl_lines
        self.understood += other.understood
        self.marks |= other.marks


class PackedCounts(NamedTuple):
    """A LogCounts in columns."""

    headers: list[tuple[Any, ...]]  # NcclHeader and LineSpan of each
    events: list[tuple[Any, ...]]  # columns: the fields of EventKey, then of Event
    calls: dict[int, tuple[int, int, str]]  # number of an event -> what CollectiveCalls adds to it
    edges: ChannelColumns
    lines: int
    size: int  # bytes
    nccl_lines: int
    understood: int
    unknown: dict[str, int]
    marks: set[bytes]
    columns: EventColumns
    full: set[str]


def beyond(counts: LogCounts) -> str | None:
    """What of a log was counted and not kept, because it holds too many different ones."""
    told = [f"{budgets.limit(name):,} {BUDGETED[name]} ({budgets.reached(name)})" for name in sorted(counts.full)]
    return f"has more than {' and '.join(told)}; further ones were only counted" if told else None
