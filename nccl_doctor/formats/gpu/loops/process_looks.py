"""Tells in which of the looks at a host a process was on a GPU: those of one look were there at once."""

from collections.abc import Hashable
from typing import Any

Key = tuple[str | None, Any, Any]  # host, GPU and process


class Looks:
    """Numbers the looks of each host from 0 on.

    A look ends where its time changes, where a process comes again, or a GPU behind another one. A look that shows one process of the only
    GPU and no time cannot be told from the one before it that showed another: both are taken for one.
    """

    def __init__(self) -> None:
        self._of: dict[str | None, _Look] = {}
        self._last: dict[Key, int] = {}

    def at(self, key: Key, when: str | None = None) -> int:
        """The number of the look in which a process comes now; `when` is its time as written."""
        look = self._of.get(key[0])
        if look is None:
            look = self._of[key[0]] = _Look()
        self._last[key] = number = look.number_of(key[1], key[2], when)
        return number

    def last(self, key: Key) -> int:
        """The last look in which a process came."""
        return self._last[key]


class _Look:
    """The look at a host that goes on."""

    def __init__(self) -> None:
        self._number = 0
        self._when: str | None = None
        self._gpu: Hashable = None  # of the process before
        self._seen: dict[Hashable, set[Hashable]] = {}  # GPU -> its processes

    def number_of(self, gpu: Hashable, process: Hashable, when: str | None) -> int:
        seen = self._seen.get(gpu)
        if self._seen and (
            when != self._when or (seen is not None and (gpu != self._gpu or process in seen)) or self._precedes(gpu)
        ):
            self._number += 1
            self._seen = {}
            seen = None
        if seen is None:
            seen = self._seen[gpu] = set()
        seen.add(process)
        self._gpu, self._when = gpu, when
        return self._number

    def _precedes(self, gpu: Hashable) -> bool:
        """Whether a GPU has a lower number than the one before it, as in the next look."""
        return _number(gpu) < _number(self._gpu)


def _number(gpu: Hashable) -> int:
    text = str(gpu)
    return int(text) if text.isdecimal() and len(text) < 8 else 0
