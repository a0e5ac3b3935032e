"""The pass over every byte of a log: finds the offsets of pattern literals, and which markers occur.

hyperscan finds hundreds of literals at some gigabytes a second. Where it is missing the literals are searched one by one:
slower, with the same result. Its automaton takes 70 ms to compile and 0.1 ms to load, so it is kept beside the code.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from nccl_doctor.common.parse_cache import remembered_bytes

if TYPE_CHECKING:
    from nccl_doctor.common.text_keys import Numbers

_INDEX = 20  # bits for the index of a literal


@cache
def prefilter(literals: frozenset[bytes], marks: frozenset[bytes] = frozenset(), name: str = "log") -> "Prefilter":
    """The prefilter of these literals, for every file; its automaton is kept under `name`."""
    return Prefilter(literals, marks, name)


class Prefilter:
    """Finds every offset at which one of many literals occurs."""

    def __init__(self, literals: Iterable[bytes], marks: Iterable[bytes] = (), name: str | None = None) -> None:
        """`name` is that under which the automaton is kept; without it, it is compiled."""
        self.literals = sorted(set(literals))
        self.marks = sorted(set(marks))  # only their presence matters, so frequent ones stay cheap
        self._db: Any = None
        try:
            import hyperscan
        except ImportError:
            return
        if not self.literals and not self.marks:
            return
        if name is not None:
            self._db = self._kept(hyperscan, name)
        if self._db is None:
            self._db = self._compiled(hyperscan)

    def _kept(self, hyperscan: Any, name: str) -> Any:
        """The automaton as it was kept; None where this processor or this hyperscan cannot use it."""
        key = repr((hyperscan.__version__, self.literals, self.marks)).encode()
        data = remembered_bytes(f"prefilter-{name}", key, lambda: hyperscan.dumpb(self._compiled(hyperscan)))
        try:
            db = hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
            db.scratch = hyperscan.Scratch(db)
        except hyperscan.error:
            return None
        return db

    def _compiled(self, hyperscan: Any) -> Any:
        every = [*self.literals, *self.marks]
        db = hyperscan.Database()
        db.compile(
            expressions=[re.escape(literal).replace(b"\0", rb"\x00") for literal in every],  # C ends it at a zero
            ids=list(range(len(every))),
            flags=[0] * len(self.literals) + [hyperscan.HS_FLAG_SINGLEMATCH] * len(self.marks),
        )
        return db

    def scan(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        """(ascending places, marks): a place is the offset of a literal's last byte and the literal's index."""
        if self._db is None:
            return self._search(block)
        found: list[tuple[int, int]] = []
        self._db.scan(block, match_event_handler=lambda which, _from, to, _flags, _ctx: found.append((to - 1, which)))
        if not self.marks:
            found.sort()  # nearly in order already
            return found, set()
        count = len(self.literals)
        marks = {self.marks[which - count] for _, which in found if which >= count}
        return sorted(place for place in found if place[1] < count), marks

    def places(self, block: bytes) -> tuple["Numbers", "Numbers"]:
        """Ascending places of literals in columns: offsets of their last bytes, and the indexes of the literals."""
        import numpy as np  # not for a prologue, which has no use for it

        found: list[int] = []
        if self._db is None:
            found = [at << _INDEX | which for at, which in self._search(block)[0]]
        else:
            self._db.scan(
                block,
                match_event_handler=lambda which, _from, to, _flags, _ctx: found.append((to - 1) << _INDEX | which),
            )
        columns = np.sort(np.array(found, np.int64))
        return columns >> _INDEX, columns & ((1 << _INDEX) - 1)

    def _search(self, block: bytes) -> tuple[list[tuple[int, int]], set[bytes]]:
        found: list[tuple[int, int]] = []
        for which, literal in enumerate(self.literals):
            at = block.find(literal)
            while at >= 0:
                found.append((at + len(literal) - 1, which))
                at = block.find(literal, at + 1)
        return sorted(found), {mark for mark in self.marks if mark in block}
