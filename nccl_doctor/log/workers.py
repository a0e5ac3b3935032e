"""Other processes that read logs for this one."""

import os
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from nccl_doctor.common import interruption

if TYPE_CHECKING:  # slow to import, and a small log needs no other process
    from concurrent.futures import Future, ProcessPoolExecutor

PROCESSES = 8  # more of them would only wait for their sums to be added up

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


def processors() -> int:
    """How many processors this process may use; a batch system grants fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool(count: int) -> "ProcessPoolExecutor":
    """Worker processes. They end silently on SIGINT, which a terminal sends to all of them, and on SIGTERM."""
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(count, initializer=_end_on_signals)


def _end_on_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def ended_with_us(workers: "ProcessPoolExecutor") -> Iterator["ProcessPoolExecutor"]:
    """A pool that is not waited for where this process is told to end."""
    with workers:
        try:
            yield workers
        except KeyboardInterrupt:
            _end_children()
            raise
        if interruption.requested():
            _end_children()


def _end_children() -> None:
    from multiprocessing import active_children

    for child in active_children():
        child.terminate()


def result_of(job: "Future[Result]") -> Result | None:
    """What a process of ours read; None where it was killed or reading was stopped."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        with interruption.wait():
            return job.result()
    except (BrokenProcessPool, interruption.Stopped):
        return None


class Ahead(Generic[Key, Item]):
    """Results of many small inputs, which several processes make in groups before they are asked for."""

    def __init__(
        self, work: Callable[[list[Item]], list[bytes | None]], items: Iterable[tuple[Key, Item, int]], group: int
    ) -> None:
        """`items` have a key and a size, and come in the order in which they will be asked for; `group` is the size of a group.

        No process is started where there are no items.
        """
        self._jobs: dict[Key, tuple[Future[list[bytes | None]], int]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._work = work
        keys: list[Key] = []
        waiting: list[Item] = []
        full = 0
        for key, item, size in items:
            keys.append(key)
            waiting.append(item)
            full += size
            if full >= group:
                self._submit(keys, waiting)
                keys, waiting, full = [], [], 0
        if waiting:
            self._submit(keys, waiting)

    def _submit(self, keys: list[Key], items: list[Item]) -> None:
        from concurrent.futures.process import BrokenProcessPool

        if self._pool is None:
            self._pool = pool(min(processors(), PROCESSES))
        try:
            job = self._pool.submit(self._work, items)
        except BrokenProcessPool:  # one was killed, perhaps for its memory: what is left has no result
            return
        self._jobs |= {key: (job, place) for place, key in enumerate(keys)}

    def result(self, key: Key) -> bytes | None:
        """What was made of an item, once; None where there is none."""
        job, place = self._jobs.pop(key, (None, 0))
        results = result_of(job) if job is not None else None
        return results[place] if results is not None else None

    def close(self) -> None:
        """Cancel what was not asked for."""
        if self._pool is not None:
            if interruption.requested():
                _end_children()
            self._pool.shutdown(cancel_futures=True)
