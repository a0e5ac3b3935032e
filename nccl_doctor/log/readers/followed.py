"""Logs that grow: what was read of a file is kept as counts, and only what was appended is read.

A file is known by its inode, so that a renamed one (`job.log` to `job.log.1`) keeps its counts. One that was truncated begins anew;
if there is a copy of its old content beside it (copytruncate), the counts go on with the copy. Where a log was rotated twice
between two looks, the part that was never seen under its own name is found by the names that logrotate(8) gives: `job.log.1`,
`job.log-20240131.gz`, `job-2.log`.
"""

import re
import stat
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.inputs.detect import stat_solid
from nccl_doctor.inputs.streams import BREAKS, Source, open_regular, open_stream
from nccl_doctor.log import parallel
from nccl_doctor.log.counts import LogCounts, PackedCounts
from nccl_doctor.log.parallel import OnBytes
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.scanner import AHEAD

_MARK = 4096  # bytes at the start of a file by which it is known to be the same
_WINDOW = 1 << 20  # bytes in which the end of the last settled line is looked for
_PACKED = (".gz", ".xz", ".bz2", ".zst")
_ROTATED = re.compile(r"[.\-_](?:\d[\w:.\-]{0,40}|old|bak)")  # what a rotation adds to a name
_NUMBER = re.compile(r"[.\-_]\d{1,14}$")
GONE = "was removed or truncated; what had been read before counts, and what was written since is unknown"

_Inode = tuple[int, int]


class Vanished(NamedTuple):
    """A log that was read and is no longer there."""

    name: str
    counts: LogCounts
    end: RankProgress


class GrowingLog:
    """What was read of one file, in two parts: lines that later ones cannot change, and those behind them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name  # at first: its copies have names that begin with this one, whatever it is renamed to
        self.size = 0  # bytes at the last look
        self.changed = 0  # ns since 1970, at that look
        self.end = RankProgress({}, 0)  # what they show
        self.mark = b""  # the first bytes
        self._settled = LogCounts()  # of the lines that later ones cannot change
        self._offset = 0  # bytes of these
        self._rest = LogCounts().packed()  # of those behind them

    def begins(self, path: Path) -> bool:
        """Whether a file, which may be compressed, begins with what was read of this one."""
        try:
            if path.suffix in _PACKED:  # it keeps the time of what it was made of
                packed = Source(str(path), path, None, False, partial(open_regular, path))
                with open_stream(packed) as stream:
                    return path.stat().st_mtime_ns >= self.changed and stream.read(len(self.mark)) == self.mark
            with open_regular(path) as file:
                return path.stat().st_size >= self.size and file.read(len(self.mark)) == self.mark
        except BREAKS:
            return False

    def may_be(self, path: Path) -> bool:
        """Whether a file of its number is this one: the number of a removed file is soon that of another."""
        return path.name.startswith(_unnumbered(self.name)) or self.begins(path)

    def parts(self) -> Iterator[Path]:
        """Files beside it that have the name of a rotated part and were written to since the last look."""
        for path in _beside(self.path):
            if _is_part(path.name, self.name) and path != self.path and _changed(path) > self.changed:
                yield path

    def read(self, path: Path, size: int, on_bytes: OnBytes | None) -> None:
        """Count what was appended since the last time."""
        self.path = path
        if size == self.size:
            return
        with open_regular(path) as file:
            self.mark = file.read(min(_MARK, size))
            start = max(size - AHEAD - _WINDOW, self._offset)
            file.seek(start)
            stop = start + file.read(max(size - AHEAD - start, 0)).rfind(b"\n") + 1
        if stop > max(start, self._offset):
            self._settled.merge(parallel.read_part(path, self._offset, stop - self._offset, on_bytes).packed())
            self._settled.columns.fold()
            self._offset = stop
        self._rest = parallel.read_part(path, self._offset, size - self._offset, on_bytes).packed()
        self.size, self.end = size, parallel.read_end(path, size)
        self.changed = _changed(path)

    def settled(self) -> tuple[int, PackedCounts]:
        """How many bytes lie in front of any line that what is appended can change, and their counts."""
        return self._offset, self._settled.packed()

    def restore(self, size: int, counts: PackedCounts) -> None:
        """Begin behind so many bytes, which hold these counts. Call before anything was read."""
        self._settled.merge(counts)
        self._offset = size

    def counts(self) -> LogCounts:
        """A copy of all counts."""
        copy = LogCounts()
        copy.merge(self._settled.packed())
        copy.merge(self._rest)
        return copy


class Follower:
    """Reads plain logs again and again; has the methods of `parallel.ReadAhead`."""

    def __init__(self) -> None:
        self._known: dict[_Inode, GrowingLog] = {}
        self._past: list[GrowingLog] = []  # truncated
        self._seen: set[_Inode] = set()

    def __call__(self, files: Iterable[tuple[Path, int]]) -> "Follower":
        """Begin another look."""
        self._seen.clear()
        return self

    def refresh(self) -> list[Path]:
        """The present names of all logs and of their parts that were rotated away: renamed, copied and truncated, or compressed."""
        found, rotated = [], list(self._past)
        for inode, known in list(self._known.items()):
            if _inode(known.path) != inode:
                same = (path for path in _beside(known.path) if _inode(path) == inode and known.may_be(path))
                known.path = next(same, known.path)
            if _inode(known.path) == inode:
                found.append(known.path)
                if _is_shorter(known.path, known.size):
                    self._past.append(self._known.pop(inode))
                    rotated.append(known)
                elif known.path.name != known.name:
                    rotated.append(known)
            elif known.size:
                rotated.append(known)
        copies = [path for past in rotated for path in _copies(past) if path not in found and past.begins(path)]
        return found + copies + [path for past in rotated for path in past.parts() if path not in found]

    def scan_file(self, path: Path, on_bytes: OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The counts of a whole file and what its end shows; only what was appended is read."""
        found = stat_solid(path)
        inode = found.st_dev, found.st_ino
        known = self._known.get(inode)
        if known is not None and not known.begins(path):
            self._past.append(self._known.pop(inode))
            known = None
        if known is None:
            known = self._known[inode] = self._copied(path) or GrowingLog(path)
        self._seen.add(inode)
        known.read(path, found.st_size, on_bytes)
        return known.counts(), known.end

    def close(self) -> None:
        """Nothing is read ahead."""

    def vanished(self, read: Collection[Path]) -> Iterator[Vanished]:
        """The logs that this look did not meet again, neither themselves nor a copy.

        A file whose first lines were those of a log may have another format by now, and is among the files that were `read`.
        """
        gone = [known for inode, known in self._known.items() if inode not in self._seen]
        still = [known for known in gone if known.path in read and known.begins(known.path)]
        for known in (*self._past, *gone):
            copies = (path for path in _copies(known) if path.suffix in _PACKED or self._has_other_format(path, read))
            if known.size and known not in still and not any(map(known.begins, copies)):
                yield Vanished(str(known.path), known.counts(), known.end)

    def _has_other_format(self, path: Path, read: Collection[Path]) -> bool:
        """Whether a file was read at this look, and not as a plain log."""
        return path in read and _inode(path) not in self._seen

    def _copied(self, path: Path) -> GrowingLog | None:
        """The truncated log of which a new file is the copy."""
        for past in self._past:
            if past.path != path and path.name.startswith(past.name) and past.begins(path):
                self._past.remove(past)
                return past
        return None


def _beside(path: Path) -> list[Path]:
    try:
        return sorted(path.parent.iterdir())
    except OSError:
        return []


def _copies(log: GrowingLog) -> list[Path]:
    """Files beside a log whose names begin with its name; packed ones may have another number than a part that was rotated."""
    name = _unnumbered(log.name)
    return [
        other
        for other in _beside(log.path)
        if other.name.startswith(name if other.suffix in _PACKED else log.name) and other != log.path
    ]


def _unnumbered(name: str) -> str:
    """The name of a log without the number of a rotated part."""
    return _NUMBER.sub("", name)


def _is_part(name: str, of: str) -> bool:
    """Whether a name is that of a log with what a rotation adds, behind it or in front of its extension."""
    plain = next((name[: -len(end)] for end in _PACKED if name.endswith(end)), name)
    stem, dot, end = of.rpartition(".")
    fronts = [(of, ""), (stem, dot + end)] if stem else [(of, "")]
    return any(
        plain.startswith(front)
        and plain.endswith(back)
        and _ROTATED.fullmatch(plain[len(front) : len(plain) - len(back)])
        for front, back in fronts
    )


def _changed(path: Path) -> int:
    """When a regular file was last written to, in ns since 1970; 0 for others."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else 0


def _is_shorter(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size < size
    except OSError:  # it went away a moment ago
        return False


def _inode(path: Path) -> _Inode | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
