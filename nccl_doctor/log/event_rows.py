"""From the events and processes of one log to rows of facts: who wrote the lines of each header, and where they are."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.channel_counts import Origin
from nccl_doctor.log.counts import CollectiveCalls, EventKey, LogCounts
from nccl_doctor.log.event_columns import EventColumns
from nccl_doctor.log.line_patterns import load
from nccl_doctor.log.ranks.file_ranks import Writer
from nccl_doctor.log.ranks.peer_hosts import Member
from nccl_doctor.log.ranks.rank_map import RankMap
from nccl_doctor.log.row_templates import RowTemplate, row_templates
from nccl_doctor.log.rows import COMMUNICATOR, Context, communicator, rows

Lives = list[dict[str, Any] | None]  # of each message: what it says where it names a rank of a communicator
_TOGETHER = 1 << 13  # events whose rows are made at once
_SHARED = 3  # events of a message from which its rows are worth a template
_TOKENS = {"": "", **{level: f"{nccl_header.TOKEN}{level} " for level in nccl_header.LEVELS}}
_Placed = dict[type, list[tuple[int, tuple[Any, ...]]]]  # table -> rows, each with the place of its event


class _Cleaned(dict[str, str]):
    """Texts in front of messages -> the same without control characters."""

    def __missing__(self, left: str) -> str:
        clean = self[left] = prefixes.clean(left)
        return clean


class EventRows:
    """Makes the rows of a log whose counts are finished."""

    def __init__(self, facts: Facts, file: str, counts: LogCounts, ranks: RankMap, lives: Lives) -> None:
        self._facts = facts
        self._file = file
        self._counts = counts
        self._ranks = ranks
        self._lives = lives
        self._patterns = load()
        self._order = counts.columns.order()
        self._cleaned = _Cleaned()
        self._templates: dict[int, list[RowTemplate] | None] = {}  # of messages
        self._events_of: Counter[int] = Counter()  # message -> its events
        self.who = [
            Origin(ranks.place(head), ranks.rank(head), head.pid, head.tid, head.source) for head in counts.headers
        ]

    def belongs_to(self, owner: Writer) -> None:
        """Lines that do not say who wrote them are of this rank."""
        self.who = [
            one._replace(host=owner.host, rank=owner.rank) if (None, None, None) == one[:3] else one for one in self.who
        ]

    def members(self) -> Iterator[Member]:
        """Which process took which rank of which communicator, by the lines of `communicator`, in their order."""
        columns = self._counts.columns
        for at in self._order:
            life = self._lives[columns.message[at]]
            if life is not None and columns.messages[columns.message[at]].pattern in _life_patterns():
                who = self.who[columns.header[at]]
                yield Member(who.host, who.pid, life.get("comm_id"), int(life["comm_rank"]), int(life["nranks"]))

    def add_events(self) -> None:
        """Add the rows of all events other than channel lines, in the order of their lines. Consumes the counters."""
        columns = self._counts.columns
        order = self._order
        self._events_of = Counter(columns.message)
        for at in range(0, len(order), _TOGETHER):
            for table, placed in self._rows(columns, order[at : at + _TOGETHER]).items():
                placed.sort(key=_place)
                self._facts.fill(table, (row for _, row in placed))
        self._counts.columns = EventColumns()
        self._facts.add(self._collectives())

    def _rows(self, columns: EventColumns, order: Sequence[int]) -> _Placed:
        """The rows of some events; a message that several of them share is read once."""
        messages = columns.messages
        which = [columns.message[at] for at in order]
        lefts = [self._cleaned[columns.left[at]] for at in order]  # texts are lines as the report shows them
        texts = [
            f"{left}{_TOKENS[message.level]}{message.body}"
            for left, message in zip(lefts, map(messages.__getitem__, which), strict=True)
        ]
        refs = self._facts.evidence_of(self._file, [columns.first[at] for at in order], texts)
        shared: dict[int, list[int]] = defaultdict(list)  # message with templates -> the places of its events
        found: _Placed = defaultdict(list)
        steps = found[tables.Communicator]
        for place, (at, one, ref) in enumerate(zip(order, which, refs, strict=True)):
            if (life := self._lives[one]) is not None and messages[one].pattern in _life_patterns():
                who = self.who[columns.header[at]]
                steps.append((place, communicator(who, life, columns.n[at], columns.stamp[at], ref)))
                if messages[one].level not in nccl_header.SHOWN:
                    continue
            elif self._events_of[one] >= _SHARED and self._templates_of(one) is not None:
                shared[one].append(place)
                continue
            for row in self._event_rows(columns, at, ref):
                found[type(row)].append((place, row))
        for number, places in shared.items():
            self._fill(self._templates[number] or (), columns, [order[place] for place in places], places, refs, found)
        return found

    def _templates_of(self, number: int) -> list[RowTemplate] | None:
        """The rows of a message without what differs between its events; None where each has to be read."""
        if self._lives[number] is not None:
            return None
        if number not in self._templates:
            pattern, level, body, _ = self._counts.columns.messages[number]
            known = self._patterns[pattern] if pattern >= 0 else None
            self._templates[number] = row_templates(known, level, body, self._fields(number))
        return self._templates[number]

    def _fill(
        self, templates: Iterable[RowTemplate], columns: EventColumns, events: Sequence[int], places: Sequence[int],
        refs: Sequence[int], found: _Placed,
    ) -> None:  # fmt: skip
        """Add the rows of events of one message."""
        who = zip(*(self.who[columns.header[at]] for at in events), strict=True)
        filling: dict[str, Sequence[Any]] = dict(zip(Origin._fields, who, strict=True))
        filling["n"] = [columns.n[at] for at in events]
        filling["last_line"] = [columns.last[at] for at in events]
        filling["stamp"] = [columns.stamp[at] for at in events]
        filling["ref"] = [refs[place] for place in places]
        for template in templates:
            found[template.table].extend(zip(places, template.fill(filling), strict=True))

    def _fields(self, number: int) -> dict[str, Any]:
        pattern, level, body, _ = self._counts.columns.messages[number]
        if (life := self._lives[number]) is not None:
            return life
        return {"text": body} if pattern < 0 else self._patterns[pattern].match(body, level) or {}

    def _event_rows(self, columns: EventColumns, at: int, ref: int) -> Iterator[Any]:
        """The rows of one event, but for that of `communicator`."""
        number = columns.message[at]
        message = columns.messages[number]
        pattern = self._patterns[message.pattern] if message.pattern >= 0 else None
        counted = (columns.n[at], columns.last[at], columns.stamp[at])
        context = Context(
            *self.who[columns.header[at]], message.level, *counted, ref, message.body, self._cleaned[columns.left[at]]
        )
        yield from rows(pattern, *self._placed(context, self._fields(number)))

    def _placed(self, context: Context, fields: dict[str, Any]) -> tuple[Context, dict[str, Any]]:
        """The context with the host of the rank that a message names, where its line does not name a host."""
        if context.host is None and fields.get("rank") and "host" not in fields:
            context = context._replace(host=self._ranks.host_of_rank(int(fields["rank"])))
        return context, fields

    def _collectives(self) -> Iterator[Any]:
        """The rows of collective calls: those of one process and kind are one row, whatever was in front of their lines."""
        calls: dict[tuple[Any, ...], tables.Collective] = {}
        events = self._counts.events
        for key in list(events):
            event = events.pop(key)
            if isinstance(event, CollectiveCalls):
                for row in self._call_rows(key, event):
                    _merge(calls, row._replace(first_op=event.low, last_op=event.high))
        yield from calls.values()

    def _call_rows(self, key: EventKey, event: CollectiveCalls) -> Iterator[Any]:
        pattern = self._patterns[key.pattern]
        left = self._cleaned[event.left]
        ref = self._facts.evidence(self._file, event.first, f"{left}{_TOKENS[key.level]}{event.text}")
        counted = (event.n, event.last, event.stamp)
        context = Context(*self.who[key.header], key.level, *counted, ref, key.body, left)
        return rows(pattern, *self._placed(context, pattern.match(key.body, key.level) or {}))

    def processes(self) -> Iterator[tables.Process]:
        """The rows of all processes."""
        processes: dict[tuple[str | None, int], list[Any]] = {}
        for number in self._counts.in_order():
            span = self._counts.spans[number]
            host, rank, pid, *_ = self.who[number]
            if not span.n or pid is None:
                continue
            old = processes.get((host, pid))
            if old is None:
                processes[host, pid] = [rank, span.n, span.first, span.last, span.stamp]
            else:
                old[0] = old[0] if old[0] is not None else rank
                old[1] += span.n
                old[2], old[3] = min(old[2], span.first), max(old[3], span.last)
                old[4] = span.stamp if span.stamp is not None else old[4]
        for (host, pid), (rank, n, first, last, stamp) in processes.items():
            ref = self._facts.evidence(self._file, first, f"{host}:{pid} …")
            yield tables.Process(host, pid, rank, self._ranks.size.get((host, pid)), n, first, last, stamp, ref)


@cache
def _life_patterns() -> frozenset[int]:
    """The patterns of steps in the life of a communicator."""
    return frozenset(pattern.order for pattern in load() if pattern.reader == COMMUNICATOR)


def _place(placed: tuple[int, Any]) -> int:
    return placed[0]


def _merge(calls: dict[tuple[Any, ...], tables.Collective], row: tables.Collective) -> None:
    same = row[: row._fields.index("first_op")]
    old = calls.get(same)
    calls[same] = row if old is None else old._replace(
        n=old.n + row.n, first_op=min(old.first_op, row.first_op), last_op=max(old.last_op, row.last_op)
    )  # fmt: skip
