"""What was counted while reading a stretch of a log. Stretches are read apart, also by other processes, and merged in order."""

from typing import Any, NamedTuple

from nccl_doctor.log import channel_counts
from nccl_doctor.log.nccl_header import Head

KINDS = (
    100_000  # different texts kept of one pattern, INFO lines apart: a flood of one warning must not fill the memory
)
_START, _COMPLETE = "Init START", "Init COMPLETE"


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


class Calls(Event):
    """Collectives of one kind: their opCount differs from line to line and is kept as a range."""

    __slots__ = ("high", "low", "text")

    def __init__(
        self, n: int, first: int, last: int, stamp: float | None, left: str, low: int, high: int, text: str
    ) -> None:
        super().__init__(n, first, last, stamp, left)
        self.low = low
        self.high = high
        self.text = text  # the whole message of the first of them


class Span:
    """The NCCL lines of one head."""

    __slots__ = ("first", "last", "n", "stamp", "stamped")

    def __init__(self, n: int = 0, first: int = 0, last: int = 0, stamp: float | None = None) -> None:
        self.n = n
        self.first = first
        self.last = last
        self.stamp = stamp  # of the last line that had one
        self.stamped = 0  # the number of that line while a stretch is read

    def add(self, line: int, stamp: float | None) -> None:
        """Count the next line."""
        if not self.n:
            self.first = line
        self.n += 1
        self.last = line
        if stamp is not None:
            self.stamp, self.stamped = stamp, line

    def extend(self, n: int, first: int, last: int, stamp: float | None) -> None:
        """Count lines that stand before, between or behind those counted so far."""
        if n:
            self.first = min(self.first, first) if self.n else first
            self.last = max(self.last, last)
            self.n += n
        if stamp is not None:
            self.stamp = stamp


class Partial:
    """What one stretch of a log holds."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.head_ids: dict[Head, int] = {}
        self.spans: list[Span] = []  # per head
        self.edges: list[channel_counts.ByText] = []  # per head: `0[0] -> 1[1] via …`
        self.events: dict[Key, Event] = {}
        self.lines = 0
        self.bytes = 0
        self.nccl_lines = 0
        self.understood = 0
        self.unknown: dict[str, int] = {}  # samples of messages that no pattern knows
        self.marks: set[bytes] = set()  # literals of other formats that stand in the log
        self._kinds: dict[int, int] = {}
        self._floods: dict[int, dict[int, Event]] = {}  # pattern -> head -> the event that takes the rest of a flood

    def head(self, head: Head) -> int:
        """The number of a head."""
        number = self.head_ids.get(head)
        if number is None:
            number = self.head_ids[head] = len(self.heads)
            self.heads.append(head)
            self.spans.append(Span())
            self.edges.append({})
        return number

    def in_order(self) -> list[int]:
        """The numbers of the heads in the order of their first NCCL lines, whatever was read first."""
        return sorted(range(len(self.heads)), key=lambda number: self.spans[number].first)

    def count(self, key: Key, n: int, line: int, stamp: float | None, left: str) -> None:
        """Note an event that was seen `n` times on a line."""
        event = self.events.get(key)
        if event is None and (key.level != "INFO" or key.pattern == -1):
            event = self._flood(key)
        if event is None:
            self.events[key] = Event(n, line, line, stamp, left)
        else:
            event.n += n
            event.last = line
        if key.body.endswith(_COMPLETE):
            self._forget_start(key)

    def _forget_start(self, key: Key) -> None:
        """Drop the START of a communicator of which a COMPLETE now says the same: half as many events."""
        started = key.body.removesuffix(_COMPLETE) + _START
        self.events.pop(Key(key.head, key.pattern, key.level, started), None)

    def call(self, key: Key, op: int, line: int, stamp: float | None, left: str, text: str) -> None:
        """Note a collective that was enqueued on a line."""
        event = self.events.get(key) or self._flood(key)
        if type(event) is Calls:
            event.n += 1
            event.last = line
            event.low = min(event.low, op)
            event.high = max(event.high, op)
        else:
            self.events[key] = Calls(1, line, line, stamp, left, op, op, text)

    def _flood(self, key: Key) -> Event | None:
        """Where so many different texts of a pattern were seen that one more would not help: the event to count it to."""
        kinds = self._kinds[key.pattern] = self._kinds.get(key.pattern, 0) + 1
        if kinds <= KINDS:
            return None
        known = self._floods.get(key.pattern)
        if known is None:
            known = self._floods[key.pattern] = {}
            for other, event in self.events.items():
                if other.pattern == key.pattern:
                    known.setdefault(other.head, event)
        return known.get(key.head)

    def close(self) -> None:
        """Add the channel lines, which are counted by edge while reading, to the sums. Once, after the last line."""
        for span, one in zip(self.spans, self.edges, strict=True):
            if one:
                every = one.values()
                n = sum(edge.n for edge in every)
                span.extend(n, min(edge.first for edge in every), max(edge.last for edge in every), None)
                self.nccl_lines += n
                self.understood += n

    def packed(self) -> "Packed":
        """All of it in columns: many times as fast on the way between processes as the objects themselves."""
        every = [(*key, e.n, e.first, e.last, e.stamp, e.left) for key, e in self.events.items()]
        calls = {at: (e.low, e.high, e.text) for at, e in enumerate(self.events.values()) if type(e) is Calls}
        return Packed(
            [(*head, s.n, s.first, s.last, s.stamp) for head, s in zip(self.heads, self.spans, strict=True)],
            list(zip(*every, strict=True)), calls,
            channel_counts.pack(self.edges), self.lines, self.bytes, self.nccl_lines, self.understood, self.unknown, self.marks,
        )  # fmt: skip

    def merge(self, other: "Packed") -> None:
        """Append the stretch that follows this one."""
        offset = self.lines
        ids = []
        for *head, n, first, last, stamp in other.heads:
            number = self.head(Head(*head))
            ids.append(number)
            self.spans[number].extend(n, first + offset, last + offset, stamp)
        for at, row in enumerate(zip(*other.events, strict=True)):
            head_id, pattern, level, body, n, first, last, stamp, left = row
            key = Key(ids[head_id], pattern, level, body)
            if body.endswith(_COMPLETE):
                self._forget_start(key)
            event = self.events.get(key)
            if event is None:
                rest = (n, first + offset, last + offset, stamp, left)
                self.events[key] = Calls(*rest, *other.calls[at]) if at in other.calls else Event(*rest)
            else:
                event.n += n
                event.last = last + offset
                if type(event) is Calls and at in other.calls:
                    low, high, _ = other.calls[at]
                    event.low = min(event.low, low)
                    event.high = max(event.high, high)
        channel_counts.append(self.edges, ids, channel_counts.unpack(other.edges), offset)
        for body, n in other.unknown.items():
            self.unknown[body] = self.unknown.get(body, 0) + n
        self.lines += other.lines
        self.bytes += other.size
        self.nccl_lines += other.nccl_lines
        self.understood += other.understood
        self.marks |= other.marks


class Packed(NamedTuple):
    """A Partial in columns."""

    heads: list[tuple[Any, ...]]  # Head and Span of each
    events: list[tuple[Any, ...]]  # columns: the fields of Key, then of Event
    calls: dict[int, tuple[int, int, str]]  # number of an event -> what Calls adds to it
    edges: channel_counts.Packed  # of the heads
    lines: int
    size: int  # bytes
    nccl_lines: int
    understood: int
    unknown: dict[str, int]
    marks: set[bytes]
