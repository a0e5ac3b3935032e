"""Puts logs together that something relates, in time that grows with what they show and not with their number squared."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

Log = TypeVar("Log")


class Traits(NamedTuple):
    """What relates a log to others."""

    keys: frozenset[Hashable]  # two logs with a common one are related
    doubtful: frozenset[Hashable]  # two logs with a common one are related unless they differ
    kind: Hashable  # logs of one kind differ from the same logs


class Groups(Generic[Log]):
    """Groups of related logs, in the order in which the last of each came."""

    def __init__(self, differ: Callable[[Log, Log], bool]) -> None:
        self._differ = differ
        self._logs: list[Log] = []
        self._parent: list[int] = []  # of a log: another one of its group, or itself
        self._members: dict[int, list[int]] = {}  # by the log that stands for a group, in their order
        self._with_key: dict[Hashable, list[int]] = {}  # logs, one of each group
        self._doubtful: dict[Hashable, dict[Hashable, list[int]]] = {}  # the same of each kind of log

    def related(self, log: Log, traits: Traits) -> list[int]:
        """The groups that a new log is related to, in their order. A group has the number of its last log."""
        found = {self.group_of(one) for key in traits.keys for one in self._with_key.get(key, ())}
        for key in traits.doubtful:
            for ones in self._doubtful.get(key, {}).values():
                if not self._differ(log, self._logs[ones[0]]):
                    found.update(map(self.group_of, ones))
        return sorted(found)

    def add(self, log: Log, traits: Traits, groups: Sequence[int]) -> None:
        """Join groups with a new log."""
        number = len(self._logs)
        self._logs.append(log)
        self._parent.append(number)
        members = self._members.pop(groups[0]) if groups else []
        for group in groups:
            if group != groups[0]:
                members += self._members.pop(group)
            self._parent[group] = number
        members.append(number)
        self._members[number] = members
        for key in traits.keys:
            self._keep(self._with_key.setdefault(key, []), number, joins=bool(groups))
        for key in traits.doubtful:
            self._keep(self._doubtful.setdefault(key, {}).setdefault(traits.kind, []), number, joins=bool(groups))

    def _keep(self, logs: list[int], last: int, *, joins: bool) -> None:
        """Add the last log, and of its group no other one."""
        if joins:
            logs[:] = [one for one in logs if self.group_of(one) != last]
        logs.append(last)

    def group_of(self, log: int) -> int:
        """The group of a log."""
        while self._parent[log] != log:
            self._parent[log] = log = self._parent[self._parent[log]]
        return log

    def first(self, group: int) -> Log:
        """The first log of a group."""
        return self._logs[self._members[group][0]]

    def __iter__(self) -> Iterator[list[Log]]:
        return ([self._logs[number] for number in members] for members in self._members.values())
