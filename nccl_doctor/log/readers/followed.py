"""Logs that grow: what was read of a file is kept as counts, and only what was appended is read.

A file is known by its inode, so that a renamed one (`job.log` to `job.log.1`) keeps its counts. One that was truncated begins anew;
if there is a copy of its old content beside it (copytruncate), the counts go on with the copy. Where a log was rotated twice
between two looks, the part that was never seen under its own name is found by the name that a rotation gave it.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.inputs.detect import stat_solid
from nccl_doctor.inputs.streams import BREAKS, open_regular
from nccl_doctor.log import parallel
from nccl_doctor.log.counts import LogCounts, PackedCounts
from nccl_doctor.log.parallel import OnBytes
from nccl_doctor.log.ranks.rank_progress import RankProgress
from nccl_doctor.log.readers import rotated
from nccl_doctor.log.readers.rotated import PACKED, Inode, inode_of
from nccl_doctor.log.scanner import AHEAD

_MARK = 4096  # bytes at the start of a file by which it is known to be the same
_WINDOW = 1 << 20  # bytes in which the end of the last settled line is looked for
GONE = "was removed or truncated; what had been read before counts, and what was written since is unknown"


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
            state = path.stat()
            later = state.st_mtime_ns >= self.changed if path.suffix in PACKED else state.st_size >= self.size
            return later and rotated.read_head(path, len(self.mark)) == self.mark
        except BREAKS:
            return False

    def may_be(self, path: Path) -> bool:
        """Whether a file of its number is this one: the number of a removed file is soon that of another."""
        return path.name.startswith(rotated.unnumbered(self.name)) or self.begins(path)

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
        self.changed = rotated.when_changed(path)

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
        self._known: dict[Inode, GrowingLog] = {}
        self._past: dict[str, list[GrowingLog]] = {}  # truncated, by their names at first
        self._seen: set[Inode] = set()

    def __call__(self, files: Iterable[tuple[Path, int]]) -> "Follower":
        """Begin another look."""
        self._seen.clear()
        return self

    def refresh(self) -> list[Path]:
        """The present names of all logs and of their parts that were rotated away: renamed, copied and truncated, or compressed."""
        found: dict[Path, None] = {}
        away = list(self._truncated())
        moved: dict[Path, dict[Inode, list[Path]]] = {}  # for each folder of a log that is not where it was
        for inode, known in list(self._known.items()):
            if inode_of(known.path) != inode:
                folder = known.path.parent
                if folder not in moved:
                    moved[folder] = rotated.by_inode(folder)
                known.path = next(filter(known.may_be, moved[folder].get(inode, ())), known.path)
            if inode_of(known.path) == inode:
                found[known.path] = None
                if _is_shorter(known.path, known.size):
                    self._forget(inode)
                    away.append(known)
                elif known.path.name != known.name:
                    away.append(known)
            elif known.size:
                away.append(known)
        copies = rotated.Copies(away, lambda path: path not in found).paths
        return [*found, *copies, *(path for path in rotated.later_parts(away) if path not in found)]

    def scan_file(self, path: Path, on_bytes: OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The counts of a whole file and what its end shows; only what was appended is read."""
        found = stat_solid(path)
        inode = found.st_dev, found.st_ino
        known = self._known.get(inode)
        if known is not None and not known.begins(path):
            self._forget(inode)
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
        missed = [known for known in gone if not (known.path in read and known.begins(known.path))]
        logs = [known for known in (*self._truncated(), *missed) if known.size]
        copies = rotated.Copies(logs, lambda path: path.suffix in PACKED or self._has_other_format(path, read))
        for known in logs:
            if not copies.has(known):
                yield Vanished(str(known.path), known.counts(), known.end)

    def _has_other_format(self, path: Path, read: Collection[Path]) -> bool:
        """Whether a file was read at this look, and not as a plain log."""
        return path in read and inode_of(path) not in self._seen

    def _copied(self, path: Path) -> GrowingLog | None:
        """The truncated log of which a new file is the copy."""
        for end in range(1, len(path.name) + 1):
            for past in self._past.get(path.name[:end], ()):
                if past.path != path and past.begins(path):
                    self._past[past.name].remove(past)
                    return past
        return None

    def _truncated(self) -> Iterator[GrowingLog]:
        return chain.from_iterable(self._past.values())

    def _forget(self, inode: Inode) -> None:
        """A log was truncated: what comes under its number is another one."""
        known = self._known.pop(inode)
        self._past.setdefault(known.name, []).append(known)


def _is_shorter(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size < size
    except OSError:  # it went away a moment ago
        return False
