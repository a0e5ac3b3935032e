"""Reads logs; a large one in parts by several processes, many small ones ahead of time."""

import gc
import pickle
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from nccl_doctor.common import interruption
from nccl_doctor.formats import registry
from nccl_doctor.inputs.detect import SizedFile, stat_solid
from nccl_doctor.inputs.streams import Readable, open_regular
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.ranks import rank_progress
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.scanner import AHEAD, LEAD, TOKEN, Scanner
from nccl_doctor.log.workers import PROCESSES, Ahead, ended_with_us, pool, processors, result_of

PARALLEL = 16 << 20  # bytes that are worth a process of their own
MANY = 100_000  # objects that are worth it to leave out of a collection
LARGE = 4 << 20  # bytes of all logs; from here on numpy is worth its import at the first dense block
SMALL = 3 << 15  # bytes of a log that is read line by line in the time that numpy takes to begin
GROUP = 4 << 20  # bytes of small logs that go to a process at once
LOST = bytes(16)  # in a log: lines that were not written before a crash, or cut off while their writer went on
HEAD = 1 << 16  # bytes by which a format is recognised
INFO = b" NCCL INFO "
SAMPLES, SAMPLE = 64, 1 << 12  # of a log that several processes read: how many, and bytes of each
TEXT_COST = 10.0  # times as long as a line of NCCL takes one of a program in the flood of a failure; in steps it takes less time than that
PARTS = 4096  # reads whose bytes are kept apart
_REUSED = (32 << 20) - (1 << 16)  # bytes; glibc learns from no larger ones

OnBytes = Callable[[int], None]  # gets the number of bytes read since the last call


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend garbage collection, which would walk millions of tuples without a cycle again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if gc.get_count()[0] > MANY:
                gc.freeze()  # nor at the end, when all of it would be walked at once
            gc.enable()


def scan(stream: Readable, *, large: bool = False) -> tuple[LogCounts, RankProgress]:
    """Read a whole stream. Returns its counts, and the progress of ranks that its end shows.

    `large` says that this or other logs of the job are large; it changes the time that this takes, not the result.
    """
    tail = _Tail(stream)
    with without_garbage_collection():
        return _scanner(large).read(tail), rank_progress.collect(tail.kept())


def scan_file(path: Path, on_bytes: OnBytes | None = None, *, large: bool = False) -> tuple[LogCounts, RankProgress]:
    """Read a plain file, a large one in several processes; `on_bytes` then gets estimates of what they have read.

    Raises OSError where it became a hole since it was recognised.
    """
    with open_regular(path) as file:
        size = stat_solid(file.fileno()).st_size
        count = min(size // PARALLEL, processors(), PROCESSES)
        if count < 2:
            return scan(_StoppableStream(SizedFile(file), on_bytes), large=(large and size >= SMALL) or size >= LARGE)
        cuts = [line_start(file, cut) for cut in even_cuts(file, size, count)]
    first, *parts = [(start, stop - start) for start, stop in pairwise([0, *cuts, size])]
    with without_garbage_collection():
        _load(path)
        with ended_with_us(pool(count)) as workers:
            end = workers.submit(read_end, path, size)
            others = [workers.submit(_packed, path, *part) for part in parts]
            counts = read_part(path, *first, on_bytes and (lambda size: on_bytes(size * count)))
            results = [result_of(other) for other in others]
            tail = result_of(end)
        for part, packed in zip(parts, results, strict=False):  # when the memory of the others is free
            if counts.bytes < part[0]:  # the reading was stopped before
                return counts, read_end(path, counts.bytes)
            # One that was killed, perhaps for its memory, is read here.
            counts.merge(pickle.loads(packed) if packed is not None else read_part(path, *part).packed())
        return counts, tail or read_end(path, size)


def even_cuts(file: BinaryIO, size: int, count: int) -> list[int]:
    """Offsets at which a file of so many bytes is to be cut into `count` parts that take about the same time.

    Samples tell how much of it are lines of NCCL, which many ranks say in the same words, and how much are lines of programs, of
    which each rank has its own when a job ends.
    """
    ends, spent = [], [0.0]
    for number in range(SAMPLES):
        file.seek(size * number // SAMPLES)
        lines = file.read(SAMPLE).split(b"\n")
        cost = sum(1.0 if INFO in line else TEXT_COST for line in lines) / len(lines)
        ends.append(size * (number + 1) // SAMPLES)
        spent.append(spent[-1] + cost)
    shares = [spent[-1] * part / count for part in range(1, count)]
    found = [bisect_left(spent, share) for share in shares]
    return [
        ends[at - 1] - int((spent[at] - share) / (spent[at] - spent[at - 1]) * size / SAMPLES)
        for at, share in zip(found, shares, strict=True)
    ]


def _load(path: Path) -> None:
    """Load what reading a large log needs; processes that are forked from this one share it."""
    _scanner(large=True)
    with open_regular(path) as file:
        if TOKEN in file.read(HEAD):
            from nccl_doctor.log.groups import grouped_counts  # noqa: F401


class ReadAhead:
    """Many small logs, one a rank or host, read by several processes before they are asked for."""

    def __init__(self, files: Iterable[tuple[Path, int]]) -> None:
        """`files` are plain ones and their sizes in bytes, in the order in which they will be asked for."""
        files = list(files)
        self._large = sum(size for _, size in files) >= LARGE
        small = [(path, path, size) for path, size in files if size < 2 * PARALLEL]
        is_worth = len(small) > 1 and processors() > 1 and sum(size for *_, size in small) >= 2 * PARALLEL
        self._ahead = Ahead(_logs, small if is_worth else (), GROUP)

    def scan_file(self, path: Path, on_bytes: OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The result that was read ahead, else that of the function of this name."""
        result = self._ahead.result(path)
        if result is None:
            return scan_file(path, on_bytes, large=self._large)
        packed, end = pickle.loads(result)
        counts = LogCounts()
        counts.merge(packed)
        if on_bytes is not None:
            on_bytes(counts.bytes)
        return counts, end

    def vanished(self, _read: Collection[Path]) -> tuple[()]:
        """No log: each is read once."""
        return ()

    def close(self) -> None:
        """Cancel what was not asked for."""
        self._ahead.close()


def _logs(paths: list[Path]) -> list[bytes | None]:
    """Packed counts of each file; None for other formats and for files that cannot be read."""
    return [_log(path) for path in paths]


def _log(path: Path) -> bytes | None:
    try:
        with open_regular(path) as file:
            if registry.recognise(file.read(HEAD)) is not None:
                return None
            file.seek(0)
            large = stat_solid(file.fileno()).st_size >= SMALL
            counts, end = scan(SizedFile(file), large=large)
    except OSError:
        return None
    return pickle.dumps((counts.packed(), end), pickle.HIGHEST_PROTOCOL)


def line_start(file: BinaryIO, offset: int) -> int:
    """The start of the first line after an offset, or the end of the file; the offset itself in a line of more than 64 MB."""
    file.seek(offset)
    for start in range(0, 64 << 20, 1 << 16):
        data = file.read(1 << 16)
        if not data:
            return file.tell()
        at = data.find(b"\n")
        if at >= 0:
            return offset + start + at + 1
    return offset


def read_part(path: Path, start: int, length: int, on_bytes: OnBytes | None = None) -> LogCounts:
    """The counts of a part of a plain file that begins and ends with a line."""
    scanner = _scanner(large=True)
    with open_regular(path) as file:
        if start:
            lead = line_start(file, start - LEAD) if start > LEAD else 0
            file.seek(lead)
            scanner.begin_behind(file.read(max(start - lead, 0)), file.read(AHEAD))
        file.seek(start)
        return scanner.read(_StoppableStream(file, on_bytes), length)


def read_end(path: Path, size: int) -> RankProgress:
    """The progress of ranks that the end of a plain file of so many bytes shows."""
    with open_regular(path) as file:
        file.seek(max(size - rank_progress.TAIL - 1, 0))
        return rank_progress.collect(file.read(size - file.tell()))


def _packed(path: Path, start: int, length: int) -> bytes:
    with without_garbage_collection():
        return pickle.dumps(read_part(path, start, length).packed(), pickle.HIGHEST_PROTOCOL)


@cache
def _keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next block: to take it anew each time costs a tenth of a scan (man 3 mallopt)."""
    bytes(_REUSED)  # frees so many bytes, of which none was touched


def _scanner(large: bool) -> Scanner:
    if large:
        _keep_freed_memory()
    return Scanner(marks=_marks(), large=large)


@cache
def _marks() -> frozenset[bytes]:
    """Literals of which the counts say whether a log holds them."""
    return frozenset((LOST, *(literal for known in registry.FORMATS for literal in known.inside)))


class MeteredStream:
    """A stream that reports each read: `on_bytes` gets the number of bytes."""

    def __init__(self, stream: Readable, on_bytes: OnBytes | None) -> None:
        self._stream = stream
        self._on_bytes = on_bytes

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        if self._on_bytes is not None:
            self._on_bytes(len(data))
        return data

    def close(self) -> None:
        getattr(self._stream, "close", lambda: None)()


class _StoppableStream(MeteredStream):
    """A file that ends where reading is asked to stop."""

    def read(self, size: int, /) -> bytes:
        return b"" if interruption.requested() else super().read(size)


class _Tail:
    """A stream that keeps its last bytes, as the parts in which they were read: to copy them all costs a tenth of the scan."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._parts: deque[bytes] = deque()
        self._size = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self._parts.append(data)
        self._size += len(data)
        while self._size - len(self._parts[0]) > rank_progress.TAIL:
            self._size -= len(self._parts.popleft())
        if len(self._parts) > PARTS:
            self._parts = deque([self.kept()])
        return data

    def kept(self) -> bytes:
        """The last bytes, more than `rank_progress.TAIL` of them where the stream has more."""
        return b"".join(self._parts)
