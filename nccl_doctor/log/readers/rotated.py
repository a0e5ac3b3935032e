"""Files beside a log that hold what was read of it: renamed, copied, compressed, or rotated away before they were seen.

Each folder is listed once and each file looked at once, whatever the number of logs in it: thousands of ranks write into one folder
and are rotated at the same minute. Names are those that logrotate(8) gives: `job.log.1`, `job.log-20240131.gz`, `job-2.log`.
"""

import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from nccl_doctor.inputs.streams import BREAKS, Source, open_regular, open_stream

PACKED = (".gz", ".xz", ".bz2", ".zst")
_LONGEST = 43  # characters that a rotation adds to a name
_ROTATED = re.compile(r"[.\-_](?:\d[\w:.\-]{0,40}|old|bak)")
_MARKS = re.compile(r"[.\-_]")
_NUMBER = re.compile(r"[.\-_]\d{1,14}$")

Inode = tuple[int, int]  # device and number


class ReadLog(Protocol):
    """What is known of a log that was read."""

    path: Path
    name: str  # at first: its copies have names that begin with this one
    size: int  # bytes at the last look
    changed: int  # ns since 1970, at that look
    mark: bytes  # its first bytes


class _Group:
    """Logs of one name that begin with the same bytes, and what was found of files that begin so too."""

    def __init__(self) -> None:
        self.size = 1 << 63  # bytes of the smallest log
        self.changed = 1 << 63  # ns since 1970, of the log that was written to first
        self.largest = -1  # bytes of the largest plain file
        self.latest = -1  # ns since 1970, of the packed file that was written to last


class Copies:
    """Finds the files that begin as some logs do, among those whose names begin with the names of these logs."""

    def __init__(self, logs: Iterable[ReadLog], admits: Callable[[Path], bool]) -> None:
        """Looks through the folders of the logs. Files that are not admitted are not opened."""
        self.paths: list[Path] = []  # of the copies
        self._groups: dict[tuple[Path, bool, str], dict[int, dict[bytes, _Group]]] = defaultdict(dict)
        for log in logs:
            if log.mark:  # nothing was read of the others
                for is_packed in (False, True):
                    group = self._group(log, is_packed)
                    group.size, group.changed = min(group.size, log.size), min(group.changed, log.changed)
        for folder in {folder for folder, _, _ in self._groups}:
            for path in list_folder(folder):
                if self._is_copy(path, admits):
                    self.paths.append(path)

    def has(self, log: ReadLog) -> bool:
        """Whether a copy of this one of the logs was found: a plain one is as large at least, a packed one was written later."""
        if not log.mark:
            return False
        return self._group(log, False).largest >= log.size or self._group(log, True).latest >= log.changed

    def _group(self, log: ReadLog, is_packed: bool) -> _Group:
        """A packed file may have another number than the part that was rotated."""
        name = unnumbered(log.name) if is_packed else log.name
        same_name = self._groups[log.path.parent, is_packed, name]
        return same_name.setdefault(len(log.mark), {}).setdefault(log.mark, _Group())

    def _is_copy(self, path: Path, admits: Callable[[Path], bool]) -> bool:
        is_packed = path.suffix in PACKED
        keys = ((path.parent, is_packed, path.name[:end]) for end in range(1, len(path.name) + 1))
        found = [self._groups[key] for key in keys if key in self._groups]
        if not found or not admits(path):
            return False
        try:
            head = read_head(path, max(max(lengths) for lengths in found))
            state = path.stat()
        except BREAKS:
            return False
        is_copy = False
        for lengths in found:
            for length, marks in lengths.items():
                if group := marks.get(head[:length]):
                    if is_packed:
                        group.latest = max(group.latest, state.st_mtime_ns)
                        is_copy |= state.st_mtime_ns >= group.changed
                    else:
                        group.largest = max(group.largest, state.st_size)
                        is_copy |= state.st_size >= group.size
        return is_copy


def later_parts(logs: Iterable[ReadLog]) -> Iterator[Path]:
    """Files that have the name of a rotated part of one of the logs and were written to since it was read."""
    since: dict[Path, dict[str, int]] = defaultdict(dict)
    for log in logs:
        names = since[log.path.parent]
        names[log.name] = min(names.get(log.name, log.changed), log.changed)
    for folder, names in since.items():
        for path in list_folder(folder):
            changes = [names[name] for name in logs_of(path.name) if name in names]
            if changes and when_changed(path) > min(changes):
                yield path


def by_inode(folder: Path) -> dict[Inode, list[Path]]:
    """The files of a folder by their numbers."""
    found = defaultdict(list)
    for path in list_folder(folder):
        if inode := inode_of(path):
            found[inode].append(path)
    return found


def list_folder(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a regular file, of the text in it where it is compressed. Raises one of BREAKS."""
    if path.suffix in PACKED:
        with open_stream(Source(str(path), path, None, False, partial(open_regular, path))) as stream:
            return stream.read(size)
    with open_regular(path) as file:
        return file.read(size)


def unnumbered(name: str) -> str:
    """The name of a log without the number of a rotated part."""
    return _NUMBER.sub("", name)


def logs_of(name: str) -> Iterator[str]:
    """The names that a log may have of which a file of this name is a rotated part.

    A rotation adds something behind the name, or in front of its extension.
    """
    plain = next((name[: -len(end)] for end in PACKED if name.endswith(end)), name)
    stem, dot, extension = plain.rpartition(".")
    for front, back in ((plain, ""), (stem, dot + extension)):
        for mark in _MARKS.finditer(front, max(len(front) - _LONGEST, 1)):
            if _ROTATED.fullmatch(front, mark.start()):
                yield front[: mark.start()] + back


def when_changed(path: Path) -> int:
    """When a regular file was last written to, in ns since 1970; 0 for others."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else 0


def inode_of(path: Path) -> Inode | None:
    """The device and number of a file or link; None where it went away."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
