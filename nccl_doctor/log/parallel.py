"""Reading a log, a large one in stretches by several processes."""

import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from nccl_doctor.formats import registry
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import rank_progress
from nccl_doctor.log.counts import Partial
from nccl_doctor.log.rank_progress import Census
from nccl_doctor.log.scanner import Scanner

PARALLEL = 48 << 20  # bytes that are worth a process of their own
MANY = 100_000  # objects that are worth it to leave out of a collection
GROUP = 4 << 20  # bytes of small logs that go to a process at once
HEAD = 1 << 16  # bytes by which a format is recognised
LONGER = 0.1  # of a stretch is read here in addition, while the other processes pack what they have counted
PROCESSES = 8  # more of them would only wait for their sums to be added up

Tell = Callable[[int], None]  # takes the number of bytes that were read since the last call


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: millions of tuples without a cycle would be walked again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if gc.get_count()[0] > MANY:
                gc.freeze()  # nor at the end, when all of it would be walked at once
            gc.enable()


def scan(stream: Readable) -> tuple[Partial, Census]:
    """Read a whole stream. Returns what was counted and what the end of it shows."""
    tail = _Tail(stream)
    with uncollected():
        return _scanner().read(tail), rank_progress.collect(bytes(tail.kept))


def scan_file(path: Path, tell: Tell | None = None) -> tuple[Partial, Census]:
    """Read a plain file, large ones in several processes. `tell` hears of progress, the other processes' share guessed."""
    size = path.stat().st_size
    count = min(size // PARALLEL, processors(), PROCESSES)
    with path.open("rb", buffering=0) as file:
        if count < 2:
            return scan(Told(file, tell))
        cuts = [_line_start(file, int(size * (part + LONGER) / (count + LONGER))) for part in range(1, count)]
    stretches = [(start, stop - start) for start, stop in pairwise([*cuts, size])]
    with uncollected():
        with _pool(count) as pool:
            end = pool.submit(_end, path, size)
            others = [pool.submit(_packed, path, *stretch) for stretch in stretches]
            partial = _stretch(path, 0, cuts[0], tell and (lambda size: tell(size * count)))
            read = [None if isinstance(other.exception(), BrokenProcessPool) else other.result() for other in others]
        for stretch, packed in zip(stretches, read, strict=True):  # when the memory of the others is free
            # One that was killed, perhaps for its memory, is read here.
            partial.merge(pickle.loads(packed) if packed is not None else _stretch(path, *stretch).packed())
        return partial, _end(path, size) if end.exception() else end.result()


class Ahead:
    """Many small logs, one a rank or host, read by several processes before they are asked for."""

    def __init__(self, files: Iterable[tuple[Path, int]]) -> None:
        """`files` are plain ones and their sizes in bytes, in the order in which they will be asked for."""
        small = [(path, size) for path, size in files if size < 2 * PARALLEL]
        self._jobs: dict[Path, tuple[Future[list[bytes | None]], int]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if len(small) < 2 or processors() < 2 or sum(size for _, size in small) < 2 * PARALLEL:
            return
        self._pool = _pool(min(processors(), PROCESSES))
        group: list[Path] = []
        full = 0
        for path, size in small:
            group.append(path)
            full += size
            if full >= GROUP or path is small[-1][0]:
                job = self._pool.submit(_logs, group)
                self._jobs |= {path: (job, place) for place, path in enumerate(group)}
                group, full = [], 0

    def scan_file(self, path: Path, tell: Tell | None = None) -> tuple[Partial, Census]:
        """As the function of this name, which reads what was not read ahead."""
        job, place = self._jobs.pop(path, (None, 0))
        try:
            read = job.result()[place] if job is not None else None
        except BrokenProcessPool:
            read = None
        if read is None:
            return scan_file(path, tell)
        packed, end = pickle.loads(read)
        partial = Partial()
        partial.merge(packed)
        if tell is not None:
            tell(partial.bytes)
        return partial, end

    def close(self) -> None:
        """Wait for nothing that is no longer wanted."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _logs(paths: list[Path]) -> list[bytes | None]:
    """What the logs among these files hold; None for other formats and for what cannot be read."""
    return [_log(path) for path in paths]


def _log(path: Path) -> bytes | None:
    try:
        with path.open("rb", buffering=0) as file:
            if registry.recognise(file.read(HEAD)) is not None:
                return None
            file.seek(0)
            partial, end = scan(file)
    except OSError:
        return None
    return pickle.dumps((partial.packed(), end), pickle.HIGHEST_PROTOCOL)


def _pool(count: int) -> ProcessPoolExecutor:
    """Processes that end without a word when the user stops the command, which reaches them too."""
    return ProcessPoolExecutor(count, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL))


def processors() -> int:
    """How many processors this process may use; a batch system grants fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the first line behind an offset starts; the offset itself where a line has no end."""
    file.seek(offset)
    for start in range(0, 64 << 20, 1 << 16):
        at = file.read(1 << 16).find(b"\n")
        if at >= 0:
            return offset + start + at + 1
    return offset


def _stretch(path: Path, start: int, length: int, tell: Tell | None = None) -> Partial:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return _scanner().read(Told(file, tell), length)


def _end(path: Path, size: int) -> Census:
    with path.open("rb") as file:
        file.seek(max(size - rank_progress.TAIL, 0))
        return rank_progress.collect(file.read())


def _packed(path: Path, start: int, length: int) -> bytes:
    with uncollected():
        return pickle.dumps(_stretch(path, start, length).packed(), pickle.HIGHEST_PROTOCOL)


def _scanner() -> Scanner:
    return Scanner(marks=[literal for known in registry.FORMATS for literal in known.inside])


class Told:
    """A stream that tells how much was read of it."""

    def __init__(self, stream: Readable, tell: Tell | None) -> None:
        self._stream = stream
        self._tell = tell

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        if self._tell is not None:
            self._tell(len(data))
        return data

    def close(self) -> None:
        getattr(self._stream, "close", lambda: None)()


class _Tail:
    """A stream that remembers its end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.kept = bytearray()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self.kept += data
        if len(self.kept) > 4 * rank_progress.TAIL:
            del self.kept[: -rank_progress.TAIL]
        return data
