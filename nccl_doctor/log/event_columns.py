"""Events in columns: which message, who wrote it, how often and on which lines.

All ranks of a large job write the same sentences. Each message is kept once, and a rank that wrote it is an entry in a few
arrays of numbers, not an object.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


class Message(NamedTuple):
    """What an event says, without who said it."""

    pattern: int  # order of the pattern; -1 for a WARN line that no pattern knows
    level: str
    body: str  # what the pattern matched: the message, or the text without launcher prefix
    hour: int | None = None  # of a line of the kernel


class EventRow(NamedTuple):
    """One event."""

    message: int  # number in the messages
    header: int
    n: int
    first: int
    last: int
    stamp: float | None  # of the first line
    left: str  # the text before the message in the first line


class EventColumns:
    """Events, one an entry of each column."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = list(messages)
        self.ids = {message: number for number, message in enumerate(self.messages)}
        self.message, self.header, self.n, self.first, self.last = (array("q") for _ in range(5))
        self.stamp: list[float | None] = []
        self.left: list[str] = []

    def __len__(self) -> int:
        return len(self.n)

    def message_id(self, message: Message) -> int:
        """The number of a message."""
        number = self.ids.get(message)
        if number is None:
            number = self.ids[message] = len(self.messages)
            self.messages.append(message)
        return number

    def rows(self) -> Iterator[EventRow]:
        columns = (self.message, self.header, self.n, self.first, self.last, self.stamp, self.left)
        return map(EventRow._make, zip(*columns, strict=True))

    def append(self, row: EventRow) -> None:
        """Add an event, also one of a message and header that are there already: `fold` adds them up."""
        self.message.append(row.message)
        self.header.append(row.header)
        self.n.append(row.n)
        self.first.append(row.first)
        self.last.append(row.last)
        self.stamp.append(row.stamp)
        self.left.append(row.left)

    def extend(self, numbers: Sequence["Numbers"], stamp: Iterable[float | None], left: Iterable[str]) -> None:
        """Add events given as columns: message, header, n, first, last, and what was in front of the first lines."""
        for column, more in zip((self.message, self.header, self.n, self.first, self.last), numbers, strict=True):
            column.frombytes(more.tobytes())
        self.stamp += stamp
        self.left += left

    def order(self) -> Sequence[int]:
        """The events in the order of their first lines: NCCL records before texts, those of one line by their words."""
        is_text = [not message.level for message in self.messages]
        if "numpy" not in sys.modules:
            return self._by_words(sorted(range(len(self)), key=lambda at: (is_text[self.message[at]], self.first[at])))
        import numpy as np

        message, _, _, first, _ = self._arrays()
        if not len(self):
            return []
        return self._by_words(np.lexsort((first, np.array(is_text, bool)[message])).tolist())

    def _by_words(self, order: list[int]) -> list[int]:
        """The same with records of one line by their words: parts of a log may have been read in any order."""
        start, line = 0, -1
        for place, at in enumerate([*order, None]):
            now = -1 if at is None else self.first[at]
            if now == line:
                continue
            if place - start > 1:
                order[start:place] = sorted(order[start:place], key=self._words)
            start, line = place, now
        return order

    def _words(self, at: int) -> tuple[bool, int, str, str]:
        message = self.messages[self.message[at]]
        return not message.level, message.pattern, message.body, self.left[at]

    def merge(self, other: "EventColumns", headers: Sequence[int], offset: int) -> None:
        """Append the events of a part that begins `offset` lines later; `headers` are the numbers of its headers here."""
        if not len(other):
            return
        import numpy as np

        messages = np.array([self.message_id(message) for message in other.messages], np.int64)
        message, header, n, first, last = other._arrays()
        numbers = (messages[message], np.array(headers, np.int64)[header], n, first + offset, last + offset)
        self.extend(numbers, other.stamp, other.left)

    def _arrays(self) -> "list[Numbers]":
        import numpy as np

        columns = (self.message, self.header, self.n, self.first, self.last)
        return [np.frombuffer(column, np.int64) for column in columns]

    def fold(self) -> None:
        """Make the events of one message and header one, in the order of messages and headers."""
        if not len(self):
            return
        import numpy as np

        message, header, n, first, last = self._arrays()
        pair = message * (int(header.max()) + 1) + header
        order = np.lexsort((first, pair))
        start = np.flatnonzero(np.append(True, pair[order][1:] != pair[order][:-1]))
        if len(start) == len(order):
            return
        kept = order[start]
        numbers = (
            message[kept],
            header[kept],
            np.add.reduceat(n[order], start),
            first[kept],
            np.maximum.reduceat(last[order], start),
        )
        folded = EventColumns()
        folded.extend(numbers, [self.stamp[at] for at in kept.tolist()], [self.left[at] for at in kept.tolist()])
        self._replace(folded)

    def drop_superseded(self, before: str, behind: str) -> None:
        """Drop events that end with one word where the event of the same header that ends with the other came last.

        Call when there is one event of each message and header.
        """
        import numpy as np

        pairs = [
            (self.ids[early], number)
            for message, number in self.ids.items()
            if message.body.endswith(behind)
            and (early := Message(*message[:2], message.body.removesuffix(behind) + before, message.hour)) in self.ids
        ]
        if not pairs:
            return
        message, header, _, _, last = self._arrays()
        successor = np.full(len(self.messages), -1)
        early, late = np.array(pairs).T
        successor[early] = late
        size = int(header.max()) + 1
        pair = message * size + header
        order = np.argsort(pair)
        starts = np.flatnonzero(successor[message] >= 0)
        wanted = successor[message[starts]] * size + header[starts]
        other = order[np.minimum(np.searchsorted(pair, wanted, sorter=order), len(order) - 1)]
        kept = np.ones(len(self), bool)
        kept[starts[(pair[other] == wanted) & (last[other] > last[starts])]] = False
        if not kept.all():
            self.keep(kept)

    def cut(self, limit: int) -> None:
        """Keep the first `limit` events of each pattern, INFO lines apart, and the first of each writer and hour, which count the rest.

        Which parts a log was read in makes no difference: an event is first by its line.
        """
        pattern_of = [message.pattern if message.level != "INFO" else None for message in self.messages]
        events: Counter[int | None] = Counter()
        for number, n in Counter(self.message).items():
            events[pattern_of[number]] += n
        for pattern in [pattern for pattern, n in events.items() if n > limit and pattern is not None]:
            self._cut(pattern, limit)

    def _cut(self, pattern: int, limit: int) -> None:
        of_pattern = [one.pattern == pattern and one.level != "INFO" for one in self.messages]
        entries = sorted((at for at in range(len(self)) if of_pattern[self.message[at]]), key=self.first.__getitem__)
        place: dict[tuple[int, int | None], int] = {}  # header and hour -> its first entry
        wanted = [True] * len(self)
        for number, at in enumerate(entries):
            into = place.setdefault((self.header[at], self.messages[self.message[at]].hour), at)
            if into == at or number < limit:
                continue
            wanted[at] = False
            self.n[into] += self.n[at]
            self.last[into] = max(self.last[into], self.last[at])
        import numpy as np

        self.keep(np.array(wanted))

    def keep(self, wanted: "npt.NDArray[np.bool_]") -> None:
        """Leave out the other events."""
        import numpy as np

        kept = np.flatnonzero(wanted)
        folded = EventColumns()
        numbers = [column[kept] for column in self._arrays()]
        folded.extend(numbers, [self.stamp[at] for at in kept.tolist()], [self.left[at] for at in kept.tolist()])
        self._replace(folded)

    def _replace(self, other: "EventColumns") -> None:
        self.message, self.header, self.n, self.first, self.last = (
            other.message, other.header, other.n, other.first, other.last,
        )  # fmt: skip
        self.stamp, self.left = other.stamp, other.left
