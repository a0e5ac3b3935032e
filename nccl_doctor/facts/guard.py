"""The guard of queries that others wrote: what SQLite may do for them, for how many steps, and how large an answer may be.

A rule file of a site and the query of `nccl-doctor sql` are data that cannot run code, also in a prologue that runs as root.
Steps of SQLite's machine are counted, not seconds: a query ends after the same number of them on a slow machine and on a fast one.
"""

import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STEPS = 50_000_000  # that a query may take, and so many more for each row of facts:
STEPS_OF_ROW = 2_000
TICK = 50_000  # steps between two looks at the limits
CPU_SECONDS = 120.0  # the last resort, for functions such as REGEXP that take long in one step
STUCK_SECONDS = 5.0  # of processor time without `TICK` steps, after which a function is interrupted
LONGEST = 16 << 20  # bytes of one text that a query may make
ENDING = (signal.SIGINT, signal.SIGTERM)  # what ends a command
LARGEST = 512 << 20  # bytes of all rows of one answer
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}


class QueryProblem(Exception):
    """A query that SQLite, the authorizer or a limit refused; the text is one line."""


class _Stuck(Exception):
    """A function of a query did not return in time."""


class StepLimit:
    """Counts the steps of a query; `exceeded` says which limit ended it."""

    def __init__(self, steps: int) -> None:
        self.exceeded = ""
        self.interrupt: KeyboardInterrupt | SystemExit | None = None
        self.on_main_thread = threading.current_thread() is threading.main_thread()
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
        elif self.on_main_thread:
            signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)
        return int(bool(self.exceeded or self.interrupt))


@contextmanager
def guarded(db: sqlite3.Connection, limit: StepLimit, *, authorized: bool = False) -> Iterator[None]:
    """Let a connection only read, and only for so many steps. Raises QueryProblem where a query is refused or ended.

    `authorized`: the query is one of ours, which tests had authorized; asking again for each part of it takes longer than running it.
    """
    if not authorized:
        db.set_authorizer(_authorize)
    db.set_progress_handler(limit.tick, TICK)
    try:
        with signals_noted(), _timed(limit):
            yield
    except (sqlite3.Error, OverflowError, MemoryError, UnicodeError, _Stuck) as error:
        if limit.interrupt is None:
            text = limit.exceeded or str(error) or "took too much memory"
            raise QueryProblem(text.splitlines()[0]) from None
    finally:
        if not authorized:
            db.set_authorizer(None)
        db.set_progress_handler(None, 0)
    if limit.interrupt is not None:
        raise limit.interrupt


class _Watch:
    """What the main thread does with signals while it asks queries."""

    def __init__(self) -> None:
        self.limit: StepLimit | None = None  # that of the query that runs
        self._old: dict[int, Any] = {}

    def begin(self) -> None:
        self._old[signal.SIGPROF] = signal.signal(signal.SIGPROF, self._stop)
        for ending in ENDING:
            if callable(signal.getsignal(ending)):
                self._old[ending] = signal.signal(ending, self._stop)

    def end(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if number in ENDING:
            try:
                self._old[number](number, frame)
            except (KeyboardInterrupt, SystemExit) as interrupt:
                if self.limit is not None:
                    self.limit.interrupt = interrupt
                raise
        elif self.limit is not None:
            self.limit.exceeded = f"a function took more than {STUCK_SECONDS:g} s of processor time"
            raise _Stuck


_watches: list[_Watch] = []  # of the main thread, at most one


@contextmanager
def signals_noted() -> Iterator[None]:
    """Note Ctrl-C and a function that is stuck: SQLite turns an exception out of a function into an error of its own.

    Around many queries it takes over the signals once. Only the main thread gets signals; in another one only steps are counted.
    """
    if _watches or threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch()
    try:
        watch.begin()
        _watches.append(watch)
        yield
    finally:
        _watches.clear()
        watch.end()


@contextmanager
def _timed(limit: StepLimit) -> Iterator[None]:
    """Measure the processor time of one query."""
    if not limit.on_main_thread:
        yield
        return
    watch = _watches[-1]
    outer, watch.limit = watch.limit, limit
    signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        watch.limit = outer


_TEXTS = (str, bytes)


def bounded(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The rows of an answer. Raises MemoryError where all of them together are larger than `LARGEST`."""
    size = 0
    for row in rows:
        for value in row:
            size += len(value) if isinstance(value, _TEXTS) else 8
        if size > LARGEST:
            raise MemoryError(f"the answer is larger than {LARGEST >> 20} MiB")
        yield row


def _authorize(action: int, _first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
