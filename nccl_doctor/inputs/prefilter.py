"""The pass over every byte of a log: finds the offsets of pattern literals, and which markers occur.

hyperscan finds hundreds of literals at some gigabytes a second. Where it is missing the literals are searched one by one:
slower, with the same result.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any


@cache
def prefilter(literals: frozenset[bytes], marks: frozenset[bytes]) -> "Prefilter":
    """The prefilter of these literals; it takes some milliseconds to build and serves every file."""
    return Prefilter(literals, marks)


class Prefilter:
    """Finds every offset at which one of many literals occurs."""

    def __init__(self, literals: Iterable[bytes], marks: Iterable[bytes] = ()) -> None:
        self.literals = sorted(set(literals))
        self.marks = sorted(set(marks))  # only their presence matters, so frequent ones stay cheap
        self._db: Any = None
        try:
            import hyperscan
        except ImportError:
            return
        every = [*self.literals, *self.marks]
        if every:
            once = len(self.marks)
            self._db = hyperscan.Database()
            self._db.compile(
                expressions=[re.escape(literal) for literal in every],
                ids=list(range(len(every))),
                flags=[0] * len(self.literals) + [hyperscan.HS_FLAG_SINGLEMATCH] * once,
            )

    def scan(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        """(ascending places, marks): a place is the offset of a literal's last byte and the literal's index."""
        if self._db is None:
            return self._search(block)
        found: list[tuple[int, int]] = []
        self._db.scan(block, match_event_handler=lambda which, _from, to, _flags, _ctx: found.append((to - 1, which)))
        count = len(self.literals)
        marks = {self.marks[which - count] for _, which in found if which >= count}
        return sorted(place for place in found if place[1] < count), marks

    def _search(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        found: list[tuple[int, int]] = []
        for which, literal in enumerate(self.literals):
            at = block.find(literal)
            while at >= 0:
                found.append((at + len(literal) - 1, which))
                at = block.find(literal, at + 1)
        return sorted(found), {mark for mark in self.marks if mark in block}
