"""Reading a log, a large one in stretches by several processes."""

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from nccl_doctor.sources import census, formats
from nccl_doctor.sources.census import Census
from nccl_doctor.sources.partial import Partial
from nccl_doctor.sources.scan import Readable, Scanner

PARALLEL = 48 << 20  # bytes that are worth a process of their own
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
            gc.freeze()  # nor of what is there at the end
            gc.enable()


def scan(stream: Readable) -> tuple[Partial, Census]:
    """Read a whole stream. Returns what was counted and what the end of it shows."""
    tail = _Tail(stream)
    with uncollected():
        return _scanner().read(tail), census.collect(bytes(tail.kept))


def scan_file(path: Path, tell: Tell | None = None) -> tuple[Partial, Census]:
    """Read a plain file, large ones in several processes. `tell` hears of progress, the other processes' share guessed."""
    size = path.stat().st_size
    count = min(size // PARALLEL, processors(), PROCESSES)
    with path.open("rb", buffering=0) as file:
        if count < 2:
            return scan(Told(file, tell))
        cuts = [_line_start(file, size * part // count) for part in range(1, count)]
    with ProcessPoolExecutor(count) as pool, uncollected():
        end = pool.submit(_end, path, size)
        others = {
            (start, stop - start): pool.submit(_packed, path, start, stop - start)
            for start, stop in pairwise([*cuts, size])
        }
        partial = _stretch(path, 0, cuts[0], tell and (lambda size: tell(size * count)))
        for place, other in others.items():
            try:
                partial.merge(pickle.loads(other.result()))
            except BrokenProcessPool:  # killed, perhaps for its memory: its stretch is read here
                partial.merge(_stretch(path, *place).packed())
        return partial, _end(path, size) if end.exception() else end.result()


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
        file.seek(max(size - census.TAIL, 0))
        return census.collect(file.read())


def _packed(path: Path, start: int, length: int) -> bytes:
    with uncollected():
        return pickle.dumps(_stretch(path, start, length).packed(), pickle.HIGHEST_PROTOCOL)


def _scanner() -> Scanner:
    return Scanner(marks=[literal for known in formats.FORMATS for literal in known.inside])


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
        if len(self.kept) > 4 * census.TAIL:
            del self.kept[: -census.TAIL]
        return data
