"""The guard of queries that others wrote: what SQLite may do for them, and for how many steps.

Steps of SQLite's machine are counted, not seconds: a query ends after the same number of them on a slow machine and on a fast one.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 50_000_000  # that a query may take, and so many more for each row of facts:
STEPS_OF_ROW = 2_000
TICK = 10_000  # steps between two looks at the limits
CPU_SECONDS = 120.0  # the last resort, for functions such as REGEXP that take long in one step
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}


class StepLimit:
    """Counts the steps of a query; `exceeded` says which limit ended it."""

    def __init__(self, steps: int) -> None:
        self.exceeded = ""
        self._steps = steps
        self._left = steps
        self._deadline = time.thread_time() + CPU_SECONDS

    def tick(self) -> int:
        """Count `TICK` steps. Returns 1 where the query has to end."""
        self._left -= TICK
        if self._left < 0:
            self.exceeded = f"took more than {self._steps:,} steps of SQLite"
        elif time.thread_time() > self._deadline:
            self.exceeded = f"took more than {CPU_SECONDS:g} s of processor time"
        return int(bool(self.exceeded))


@contextmanager
def guarded(db: sqlite3.Connection, limit: StepLimit) -> Iterator[None]:
    """Let a connection only read, and only for so many steps."""
    db.set_authorizer(_authorize)
    db.set_progress_handler(limit.tick, TICK)
    try:
        yield
    finally:
        db.set_authorizer(None)
        db.set_progress_handler(None, 0)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
