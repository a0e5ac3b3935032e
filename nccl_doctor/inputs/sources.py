"""What the user named, turned into sources to read: files, folders, archives, standard input."""

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from nccl_doctor.common import budgets, interruption
from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.plurals import counted
from nccl_doctor.inputs import conversions, exports
from nccl_doctor.inputs.detect import HollowFile, SizedFile, is_hollow, no_log, sniff
from nccl_doctor.inputs.streams import (
    BREAKS,
    ForeignInput,
    InputProblem,
    Raw,
    Source,
    Stream,
    compression,
    encoding,
    one_line,
    open_regular,
    open_stream,
    pieces,
    why,
)
from nccl_doctor.inputs.text_lines import read_head

__all__ = [
    "ForeignInput",
    "InputProblem",
    "Source",
    "expand",
    "no_log",
    "one_line",
    "open_stream",
    "sniff",
    "why_foreign",
]

HEAD = 1 << 16  # bytes that tell what a file is
SHOWN = 20  # members of one archive whose problems are told one by one

_NOT_LOOKED_INTO = {".git", ".venv", "__pycache__", "node_modules", "site-packages", ".ipynb_checkpoints"}
# In a folder these are program text, weights and documents; named by hand they are read like anything else.
_NO_LOG = compiled(
    r"\.(?:pyc?|pyi|so(?:\.\d+)*|pth?|safetensors|ckpt|bin|np[yz]|onnx|h5|hdf5|parquet|arrow|whl|[oa]|c|h|cc|cpp|hpp|cuh?|rs|"
    r"go|java|js|ts|css|html?|md|rst|ipynb|sh|bash|toml|ya?ml|cfg|ini|png|jpe?g|gif|svg|pdf|mp4|wav|ko|ptx|cubin)$",
    re.IGNORECASE,
)
# What a cluster or a tracker kept of a run is YAML as well, and unlike a manifest or a configuration it has one of these keys.
_YAML = compiled(r"\.ya?ml$", re.IGNORECASE)
_RUN_STATE = compiled(rb"^(?:- | {0,4})(?:resourceVersion|lifecycle_stage): |^ {0,4}status:\s*$", re.MULTILINE)
_PACKED = {
    "tar": "is an archive inside an archive or a compressed file; unpack it first",
    "office": "is a document of an office program, which is not read here; save the table as CSV",
    "zip": "is an archive inside an archive or a compressed file; unpack it first",
    "compressed": "is compressed twice; unpack it first",
}
_NEVER = {
    "program": "is a program, not a log",
    "image": "is an image, not a log",
    "pdf": "is a PDF, not a log",
    "hdf5": "is an HDF5 file, not a log",
    "numpy": "is a NumPy array, not a log",
    "binary": "is binary data, not a log",
    "empty": "is empty",
}
_UNKNOWN = {  # kinds of which some files are read; what no reader knows is said when it is opened
    "pickle": "is a pickle of no kind that is read here",
    "sqlite": "is an SQLite database of no kind that is read here; facts that --save wrote are read as the only input",
    "xml": "is XML of no kind that is read here",
    "report": "is a report on a job, not its log",
}


Known = Callable[[bytes], bool]


def _kind(head: bytes, name: str, known: Known) -> str:
    """The kind of a file; a known format with zero bytes in it, as after the crash of a node, is not binary."""
    kind = sniff(head, name)
    return "text" if kind == "binary" and known(head) else kind


def why_foreign(kind: str) -> str:
    """Why a file of this kind, which no reader knows, is not read."""
    return {**_PACKED, **_NEVER, **_UNKNOWN}[kind]


def expand(paths: Sequence[str], known: Known = lambda head: False) -> Iterator[Source | InputProblem]:
    """The sources behind what was named, in that order, folders sorted; a problem where something cannot be read.

    `-` is standard input. A file that is reached twice is given once. In folders and archives, files that are no logs by
    their names, or empty, are passed over; those that are none by their content are named. Symbolic links in folders are
    not followed, pipes, sockets and devices not opened. `known` tells whether a reader exists for a file that begins with
    these bytes, although it looks like binary data.
    """
    seen = _own_output()
    piped = False
    for text in paths:
        if text == "-":
            if not piped:
                yield from _standard_input(known)
            piped = True
            continue
        try:
            found = os.stat(text)  # noqa: PTH116 - Path() drops what was typed
        except (OSError, ValueError) as error:
            yield InputProblem(one_line(text), why(error))
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from _folder(text, seen, known)
        elif stat.S_ISREG(found.st_mode):
            yield from _once(_file(text, found, known, asked=True), found, seen)
        elif stat.S_ISFIFO(found.st_mode) and (number := re.fullmatch(r"/dev/fd/(\d{1,6})|/dev/std(in)", text)):
            yield Source(text, None, None, False, partial(_descriptor, int(number[1] or 0)))
        else:
            yield InputProblem(one_line(text), f"is a {_node(found.st_mode)}, not a file; pipe it in and name `-`")


def _own_output() -> set[tuple[int, int]]:
    """The files that this process writes to: a report in the folder that it is about is not read."""
    written = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            found = os.fstat(descriptor)
            written.add((found.st_dev, found.st_ino))
    return written


def _standard_input(known: Known) -> Iterator[Source | InputProblem]:
    if sys.stdin is None or sys.stdin.closed:
        yield InputProblem("-", "standard input is closed")
        return
    if sys.stdin.isatty():
        yield InputProblem("-", "standard input is a terminal; pipe a log into it")
        return
    first = read_head(_Pipe(), HEAD)
    try:
        with Stream("-", io.BytesIO(first)) as stream:
            kind = sniff(stream.read(HEAD), "-")
    except BREAKS:  # told when the whole is read
        kind = ""
    if kind != "tar" and (kind != "zip" or compression(first) is not None):
        yield Source("-", None, None, False, partial(_Pipe, first))
        return
    try:
        path = _spooled(_Pipe(first))
    except OSError as error:
        from nccl_doctor.common.errors import why_not_kept  # most inputs are files

        yield InputProblem("-", f"is an archive, which {why_not_kept(error)}")
        return
    yield from _archive(kind, "-", path, known, asked=True)


class _Pipe:
    """Standard input, which stays open, or another pipe. The first bytes may have been read already. It ends where reading is
    asked to stop."""

    def __init__(self, first: bytes = b"", raw: io.FileIO | None = None) -> None:
        self._first = first
        self._raw = raw

    def read(self, size: int, /) -> bytes:
        if self._first:
            data, self._first = self._first[:size], self._first[size:]
            return data
        try:
            with interruption.wait():
                data = sys.stdin.buffer.read1(size) if self._raw is None else self._raw.read(size)  # type: ignore[union-attr]
                return bytes(data or b"")
        except interruption.Stopped:
            return b""

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()


def _spooled(raw: Raw) -> Path:
    """A copy of a pipe on disk, because members of an archive are read in place. It has no name and ends with the process."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        size = 0
        for data in pieces(raw):
            size += file.write(data)
            if size > budgets.limit("bytes"):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        file.flush()
        return Path(f"/proc/self/fd/{os.dup(file.fileno())}")


def _descriptor(number: int) -> Raw:
    """`<(command)` of a shell. A copy of the descriptor: opening its name would wait when the command has ended."""
    return _Pipe(raw=io.FileIO(os.dup(number), "rb"))


def _node(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "named pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def _once(
    given: Iterator[Source | InputProblem], found: os.stat_result, seen: set[tuple[int, int]]
) -> Iterator[Source | InputProblem]:
    key = found.st_dev, found.st_ino
    if key not in seen:
        seen.add(key)
        yield from given


def _file(text: str, found: os.stat_result, known: Known, *, asked: bool) -> Iterator[Source | InputProblem]:
    """One regular file: itself, the members of an archive, or a problem; nothing for one that is empty, unless it was named."""
    name = one_line(text)
    path = Path(text)
    hollow = is_hollow(found)
    opener: Callable[[], Raw] = partial(_open_file, path)
    try:
        raw = opener()
        with closing(raw):
            first = raw.read(8) or b""  # a device of the kernel may have nothing to say yet
        with Stream(name, opener()) as stream:
            head = stream.read(HEAD)
            kind = _kind(head, name, known)
    except InputProblem as problem:
        yield problem
        return
    except BREAKS as error:
        yield InputProblem(name, why(error))
        return
    packed = compression(first) is not None
    if kind == "tar" or (kind == "zip" and not packed):
        yield from _archive(kind, name, path, known, asked=asked)
        return
    if (unreadable := _problem(name, head, kind, known)) is not None:
        if asked or kind != "empty":
            yield unreadable
        return
    plain = not packed and not encoding(first) and found.st_size > 0 and not hollow and exports.recognise(head) is None
    yield Source(name, path, found.st_size, plain, opener)


def _open_file(path: Path) -> Raw:
    """The bytes of a file as it is now: since its size was seen, it may have become a hole of terabytes."""
    file = open_regular(path)
    if not is_hollow(os.fstat(file.fileno())):
        return SizedFile(file)
    file.close()
    return HollowFile(path)


def _problem(name: str, head: bytes, kind: str, known: Known) -> InputProblem | None:
    """Why a file is not opened further; one that is packed once more may hold a log."""
    foreign = conversions.of_file(head, name, known=known(head))
    if foreign is None and kind in _PACKED:
        return InputProblem(name, _PACKED[kind])
    return foreign if foreign is not None or kind not in _NEVER else ForeignInput(name, _NEVER[kind])


def _is_run_state(head: bytes, known: Known) -> bool:
    return _RUN_STATE.search(head) is not None and known(head)


def _may_be_log(path: str, known: Known) -> bool:
    """Whether a file in a folder is one to look at, by its name; of YAML, by how it begins."""
    if _NO_LOG.search(path) is None:
        return True
    if _YAML.search(path) is None:
        return False
    try:
        with closing(open_regular(path)) as file:
            return _is_run_state(file.read(HEAD) or b"", known)
    except (OSError, InputProblem):
        return False


def _archive(kind: str, name: str, path: Path, known: Known, *, asked: bool) -> Iterator[Source | InputProblem]:
    from nccl_doctor.inputs.archives import members  # with tarfile and zipfile

    looked = unread = 0
    given = False
    for member in members(kind, name, path):
        if isinstance(member, InputProblem):
            given = True
            yield member
            continue
        looked += 1
        inner = member.name[len(name) + 1 :]
        by_name = _NO_LOG.search(inner) is None
        if not (by_name or _YAML.search(inner)) or not _NOT_LOOKED_INTO.isdisjoint(inner.split("/")):
            continue
        try:
            with open_stream(member) as stream:
                head = stream.read(HEAD)
                found = _kind(head, member.name, known)
        except InputProblem as problem:
            if by_name:
                given = True
                unread += 1
            if by_name and unread <= SHOWN:
                yield problem
            continue
        if not by_name and not _is_run_state(head, known):
            continue
        reason = _problem(member.name, head, found, known)
        given = given or not isinstance(reason, ForeignInput)
        if reason is None:
            yield member
        elif found != "empty":
            yield reason
    if unread > SHOWN:
        yield InputProblem(name, f"holds {unread - SHOWN:,} more members that cannot be read")
    if asked and not given:
        yield ForeignInput(name, f"holds no log; looked at {counted(looked, 'member')}")


def _folder(root: str, seen: set[tuple[int, int]], known: Known) -> Iterator[Source | InputProblem]:
    looked = links = 0
    given = False
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            given = True
            yield InputProblem(one_line(folder), why(error))
            continue
        below = []
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError as error:
                yield InputProblem(one_line(entry.path), why(error))
                continue
            if stat.S_ISLNK(found.st_mode):
                links += 1
            elif stat.S_ISDIR(found.st_mode):
                if entry.name not in _NOT_LOOKED_INTO:
                    below.append(entry.path)
            elif stat.S_ISREG(found.st_mode):
                looked += 1
                if looked > budgets.limit("files"):
                    more = f"{budgets.limit('files'):,} files; the others were not read; {budgets.reached('files')}"
                    yield InputProblem(one_line(root), f"holds more than {more}")
                    return
                if not _may_be_log(entry.path, known):
                    continue
                for source in _once(_file(entry.path, found, known, asked=False), found, seen):
                    given = given or not isinstance(source, ForeignInput)
                    yield source
        waiting += reversed(below)
    if not given:
        linked = f"; {counted(links, 'symbolic link')} not followed" if links else ""
        yield ForeignInput(one_line(root), f"holds no log; looked at {counted(looked, 'file')}{linked}")
