"""What was counted while reading a stretch of a log. Stretches are read apart, also by other processes, and merged in order."""

from typing import Any, NamedTuple

from nccl_doctor.sources.heads import Head

KINDS = (
    100_000  # different texts kept of one pattern, INFO lines apart: a flood of one warning must not fill the memory
)
_MASKS = 50_000  # texts of channels remembered
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


class Edges:
    """Channel lines of one process for one edge of a graph."""

    __slots__ = ("channel", "first", "last", "left", "mask", "n")

    def __init__(self, mask: int, n: int, first: int, last: int, channel: str, left: str) -> None:
        self.mask = mask  # one bit a channel
        self.n = n
        self.first = first
        self.last = last
        self.channel = channel  # `00/0` of the first line
        self.left = left


class Masks(dict[str, int]):
    """`05/0` -> a bit for channel 5; no bit where it is no number."""

    def __missing__(self, channel: str) -> int:
        digits = channel.partition("/")[0].strip()
        mask = 1 << int(digits) if digits.isdecimal() and len(digits) < 4 else 0
        if len(self) < _MASKS:
            self[channel] = mask
        return mask


class Span:
    """The NCCL lines of one head."""

    __slots__ = ("first", "last", "n", "stamp")

    def __init__(self, n: int = 0, first: int = 0, last: int = 0, stamp: float | None = None) -> None:
        self.n = n
        self.first = first
        self.last = last
        self.stamp = stamp  # of the last line that had one

    def add(self, line: int, stamp: float | None) -> None:
        """Count the next line."""
        if not self.n:
            self.first = line
        self.n += 1
        self.last = line
        if stamp is not None:
            self.stamp = stamp

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
        self.edges: list[dict[str, Edges]] = []  # per head: `0[0] -> 1[1] via …`
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
        for span, edges in zip(self.spans, self.edges, strict=True):
            if edges:
                every = edges.values()
                n = sum(edge.n for edge in every)
                span.extend(n, min(edge.first for edge in every), max(edge.last for edge in every), None)
                self.nccl_lines += n
                self.understood += n

    def merge(self, other: "Partial") -> None:
        """Append the stretch that follows this one. The other one is used up."""
        offset = self.lines
        ids = [self.head(head) for head in other.heads]
        for mine, span in zip(ids, other.spans, strict=True):
            self.spans[mine].extend(span.n, span.first + offset, span.last + offset, span.stamp)
        for key, event in other.events.items():
            mine_key = Key(ids[key.head], *key[1:])
            if key.body.endswith(_COMPLETE):
                self._forget_start(mine_key)
            known = self.events.get(mine_key)
            if known is None:
                event.first += offset
                event.last += offset
                self.events[mine_key] = event
            else:
                known.n += event.n
                known.last = event.last + offset
                if type(known) is Calls and type(event) is Calls:
                    known.low = min(known.low, event.low)
                    known.high = max(known.high, event.high)
        for mine, edges in zip(ids, other.edges, strict=True):
            known_edges = self.edges[mine]
            for text, edge in edges.items():
                old = known_edges.get(text)
                if old is None:
                    edge.first += offset
                    edge.last += offset
                    known_edges[text] = edge
                else:
                    old.mask |= edge.mask
                    old.n += edge.n
                    old.last = edge.last + offset
        for body, n in other.unknown.items():
            self.unknown[body] = self.unknown.get(body, 0) + n
        self.lines += other.lines
        self.bytes += other.bytes
        self.nccl_lines += other.nccl_lines
        self.understood += other.understood
        self.marks |= other.marks

    def __getstate__(self) -> dict[str, Any]:
        """Plain tuples: ten times as fast on the way between processes as the objects themselves."""
        state = dict(self.__dict__, head_ids=None, _floods={})
        state["events"] = [
            (*key, e.n, e.first, e.last, e.stamp, e.left, *((e.low, e.high, e.text) if type(e) is Calls else ()))
            for key, e in self.events.items()
        ]
        state["edges"] = [
            [(text, e.mask, e.n, e.first, e.last, e.channel, e.left) for text, e in edges.items()]
            for edges in self.edges
        ]
        state["spans"] = [(s.n, s.first, s.last, s.stamp) for s in self.spans]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.head_ids = {head: number for number, head in enumerate(self.heads)}
        self.events = {Key(*row[:4]): (Event if len(row) == 9 else Calls)(*row[4:]) for row in state["events"]}
        self.edges = [{text: Edges(*rest) for text, *rest in edges} for edges in state["edges"]]
        self.spans = [Span(*span) for span in state["spans"]]
