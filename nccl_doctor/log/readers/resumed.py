"""Plain logs of which an earlier run kept what it had read: only what was appended since is read.

A log counts as the same when it begins with all the bytes that were read, by their hash; a hash of them takes a small part of
the time that reading them would. One that was changed, truncated or replaced is read from its start.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from nccl_doctor import __version__
from nccl_doctor.common.plurals import counted
from nccl_doctor.facts.reading_points import ReadingPoint
from nccl_doctor.inputs.detect import stat_solid
from nccl_doctor.inputs.streams import open_regular
from nccl_doctor.log import line_patterns
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.parallel import OnBytes
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.readers import kept_counts
from nccl_doctor.log.readers.followed import GrowingLog

_PIECE = 1 << 20
_NAMED = 3  # logs that were read from their start are named


@cache
def reader() -> str:
    """Names the program and its patterns: counts of others mean something else."""
    words = repr([(one.name, one.where, one.regex, one.level) for one in line_patterns.load()])
    return f"{__version__} {hashlib.sha256(words.encode('utf-8', 'replace')).hexdigest()}"


class ResumedReader:
    """Reads plain logs from the points up to which they were read; has the methods of `parallel.ReadAhead`."""

    def __init__(self, points: Mapping[str, ReadingPoint], reason: str = "") -> None:
        """`reason` says why there is no point of logs that were read before."""
        self._points = points
        self._reason = reason
        self._logs: dict[str, tuple[GrowingLog, hashlib._Hash, int]] = {}  # log, hash of its first bytes, and how many
        self._anew: list[str] = []  # why a log was read from its start
        self._before = self._now = self._resumed = 0  # bytes that were read before and now, logs

    def __call__(self, _: Iterable[tuple[Path, int]]) -> "ResumedReader":
        """Nothing is read before it is asked for."""
        return self

    def scan_file(self, path: Path, on_bytes: OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The counts of a whole file and what its end shows."""
        size = stat_solid(path).st_size
        log, digest, hashed = GrowingLog(path), hashlib.sha256(), 0
        point = self._points.get(_name(path))
        if point is not None:
            if self._matches(point, path, size, digest) and _restore(log, point):
                hashed = point.size
                self._resumed += 1
                if on_bytes is not None:
                    on_bytes(hashed)
            else:
                digest = hashlib.sha256()
        self._before += hashed
        self._now += size - hashed
        log.read(path, size, on_bytes)
        self._logs[_name(path)] = log, digest, hashed
        return log.counts(), log.end

    def vanished(self, _read: Collection[Path]) -> tuple[()]:
        """No log: those that are no longer there do not count."""
        return ()

    def close(self) -> None:
        """Nothing is read ahead."""

    def points(self) -> Iterator[ReadingPoint]:
        """Up to where each log was read now, for the next time."""
        for name, (log, digest, hashed) in self._logs.items():
            size, counts = log.settled()
            if size and _is_text(name) and _hash_file(log.path, digest, hashed, size):
                yield ReadingPoint(name, size, digest.hexdigest(), kept_counts.dump(counts))

    def notes(self) -> list[str]:
        """What was read now and what was known from before, for the report."""
        found = []
        if self._resumed:
            logs = counted(self._resumed, "log")
            found.append(f"of {logs} {self._before:,} bytes were read by an earlier run; {self._now:,} bytes now")
        if self._reason:
            found.append(f"all logs were read from their start: {self._reason}")
        found += self._anew[:_NAMED]
        if len(self._anew) > _NAMED:
            found.append(f"{counted(len(self._anew) - _NAMED, 'more log')} were read from their start, too")
        return found

    def _matches(self, point: ReadingPoint, path: Path, size: int, digest: "hashlib._Hash") -> bool:
        """Whether a file still begins with what was read of it; else the reason is kept. Leaves the hash of it in `digest`."""
        if size < point.size:
            self._anew.append(f"{path} is shorter than what was read of it, so it was read from its start")
        elif not _hash_file(path, digest, 0, point.size) or digest.hexdigest() != point.digest:
            self._anew.append(f"{path} has changed where it was read before, so it was read from its start")
        else:
            return True
        return False


def _restore(log: GrowingLog, point: ReadingPoint) -> bool:
    try:
        counts = kept_counts.load_counts(point.counts)
    except ValueError:
        return False
    if counts.size != point.size:
        return False
    log.restore(point.size, counts)
    return True


def _hash_file(path: Path, digest: "hashlib._Hash", start: int, stop: int) -> bool:
    """Add bytes of a file to a hash; returns whether the file had as many."""
    try:
        with open_regular(path) as file:
            file.seek(start)
            while start < stop and (piece := file.read(min(_PIECE, stop - start))):
                digest.update(piece)
                start += len(piece)
    except OSError:
        return False
    return start == stop


def _name(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - a name is no path that has to exist


def _is_text(name: str) -> bool:
    """Whether SQLite takes a name; one that is no UTF-8 is read anew each time."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
