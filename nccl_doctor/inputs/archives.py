"""Members of tar and zip archives as sources: read in place, never written to disk, their names never used as paths."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, cast

from nccl_doctor.common import budgets
from nccl_doctor.inputs.detect import HollowFile, is_hollow
from nccl_doctor.inputs.streams import (
    BREAKS,
    InputProblem,
    Raw,
    Source,
    Stream,
    compression,
    growth_problem,
    one_line,
    open_regular,
    why,
)

BLOCK = 1 << 16  # bytes read at once from a tar file
LARGEST_HEADER = 16 << 20  # bytes; a hostile header may claim any size and would be read into memory

_DAMAGE = (*BREAKS, tarfile.TarError, zipfile.BadZipFile, LookupError, AttributeError, TypeError)


def member_name(archive: str, name: str) -> str:
    """`archive!inner/name`, without root, `..` or anything that a terminal could take for a command."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return f"{archive}!{one_line('/'.join(parts)) or '?'}"


def members(kind: str, name: str, path: Path) -> Iterator[Source | InputProblem]:
    """The regular files in an archive, `kind` tar (also compressed) or zip.

    Where the archive is damaged the members in front of the damage come first, then an InputProblem. All members together
    may hold as much text as one file of the archive's size.
    """
    reader = _tar if kind == "tar" else _zip
    most = budgets.limit("members")
    count = 0
    try:
        total = _Total(path.stat().st_size)
        for source in reader(name, path):
            if count == most:
                hint = budgets.reached("members")
                yield InputProblem(name, f"has more than {most:,} members; the others were not looked at; {hint}")
                return
            count += 1
            yield source._replace(opener=partial(_Counted, total, count, source))
    except _DAMAGE as error:
        reason = why(error) if isinstance(error, InputProblem | OSError) else f"is a damaged archive ({_words(error)})"
        yield InputProblem(name, reason + _before(count))


def _before(count: int) -> str:
    """What was read in front of the damage."""
    if count < 2:
        return "; the member before that was looked at" if count else ""
    return f"; the {count} members before that were looked at"


def _words(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__


class _Total:
    """How many bytes of the members of one archive were read, each byte counted once."""

    def __init__(self, size: int) -> None:
        self._size = size  # of the archive on disk
        self._bytes = 0
        self._furthest: dict[int, int] = {}  # number of a member -> how far it was read

    def add(self, member: int, place: int) -> None:
        """A member was read up to a place. Raises OverflowError where all of them hold more than an archive may."""
        known = self._furthest.get(member, 0)
        if place <= known:
            return
        self._furthest[member] = place
        self._bytes += place - known
        self._check()

    def begin(self, member: int, size: int) -> None:
        """A member of so many bytes is about to be read. Raises OverflowError as `add` does, if it was not read to its end before."""
        if size > self._furthest.get(member, 0):
            self._check()

    def _check(self) -> None:
        if problem := growth_problem(self._bytes, self._size):
            raise OverflowError(f"is in an archive that {problem}")


class _Counted:
    """The bytes of a member, which count in the total of its archive."""

    def __init__(self, total: _Total, number: int, source: Source) -> None:
        total.begin(number, source.size or 0)
        self._raw = source.opener()
        self._total = total
        self._number = number
        self._place = 0

    def read(self, size: int, /) -> bytes:
        self._total.add(self._number, self._place)
        data = self._raw.read(size)
        self._place += len(data)
        return data

    def close(self) -> None:
        self._raw.close()


class _Seekable:
    """A compressed file that can be read at any place: forward by reading on, backward by starting again.

    The last two blocks are kept, because tarfile steps back by a byte between members. Only one file is open at a time over
    all archives; one that was closed opens itself again when it is read.
    """

    _opened: ClassVar["_Seekable | None"] = None

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._place = 0
        self._stream: Raw | None = None
        self._next = 0
        self._blocks: dict[int, bytes] = {}

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = 0) -> int:
        if whence:
            raise io.UnsupportedOperation("tar files are read from the start")
        self._place = place
        return place

    def read(self, size: int) -> bytes:
        if size > LARGEST_HEADER:
            raise ValueError("a header is too large")
        out = bytearray()
        while len(out) < size:
            number, offset = divmod(self._place, BLOCK)
            part = self._block(number)[offset : offset + size - len(out)]
            if not part:
                break
            out += part
            self._place += len(part)
        return bytes(out)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._blocks.clear()

    def _block(self, number: int) -> bytes:
        kept = self._blocks.get(number)
        if kept is not None and len(kept) == BLOCK:
            return kept
        if self._stream is None or number < self._next - (kept is not None):
            self._open()
        stream = self._stream
        assert stream is not None
        if isinstance(stream, io.FileIO) and number != self._next:
            stream.seek(number * BLOCK)
            self._next = number
        if kept is not None and self._next > number:  # short: the end, or the break that this read reports
            return kept + stream.read(1)
        while self._next <= number:
            data = stream.read(BLOCK)
            if not data:
                return b""
            self._blocks = {at: block for at, block in self._blocks.items() if at == self._next - 1}
            self._blocks[self._next] = data
            self._next += 1
            if len(data) < BLOCK and self._next <= number:
                stream.read(1)
                return b""
        return self._blocks[number]

    def _open(self) -> None:
        if _Seekable._opened is not None:
            _Seekable._opened.close()
        self.close()
        raw = open_regular(self._path)
        if compression(raw.read(8)) is None:
            raw.seek(0)
            self._stream = raw
        else:
            hollow = is_hollow(os.fstat(raw.fileno()))
            raw.close()
            self._stream = Stream(self._name, HollowFile(self._path) if hollow else open_regular(self._path))
        self._next = 0
        _Seekable._opened = self


class _TarMember:
    """The bytes of one member."""

    def __init__(self, file: _Seekable, start: int, size: int) -> None:
        self._file = file
        self._place = start
        self._left = size

    def read(self, size: int, /) -> bytes:
        if not self._left:
            return b""
        self._file.seek(self._place)
        data = self._file.read(min(size, self._left))
        if not data:
            raise ValueError("the archive ends too early")
        self._place += len(data)
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._left = 0


def _tar(name: str, path: Path) -> Iterator[Source]:
    file = _Seekable(name, path)
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:  # type: ignore[call-overload]
            last = -1
            while (info := tar.next()) is not None:
                tar.members.clear()  # it would keep every header
                if info.offset <= last:
                    raise ValueError("its headers go in circles")
                last = info.offset
                if not info.isreg():
                    continue
                opener: Callable[[], Raw] = partial(_TarMember, file, info.offset_data, info.size)
                if info.issparse():
                    opener = partial(_sparse, tar, info)
                yield Source(member_name(name, info.name), None, info.size, False, opener)
            _check_end(file, tar.offset)
    finally:
        file.close()


def _check_end(file: _Seekable, place: int) -> None:
    """Raises ValueError where no block of zeros ends the members: tarfile takes any header that it cannot read for the end."""
    file.seek(place)
    block = file.read(tarfile.BLOCKSIZE)
    if not block:
        raise ValueError("its end is missing")
    if block.strip(b"\0"):
        raise ValueError("a header is damaged")


def _sparse(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Raw:
    found = tarfile.ExFileObject(tar, info)
    assert isinstance(found, io.BufferedReader)
    return found


class _ZipMember:
    """The bytes of one member; a damaged member raises ValueError."""

    def __init__(self, path: Path, number: int) -> None:
        archive = _directory(path, path.stat().st_mtime_ns)
        try:
            self._member = cast(zipfile.ZipExtFile, archive.open(archive.infolist()[number]))
        except zipfile.BadZipFile as error:
            raise ValueError(error) from None

    def read(self, size: int, /) -> bytes:
        try:
            return self._member.read1(size)
        except zipfile.BadZipFile as error:
            raise ValueError(error) from None

    def close(self) -> None:
        self._member.close()


@lru_cache(1)  # reading it again for each member would take the square of their number
def _directory(path: Path, _changed: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(open_regular(path))


def _zip(name: str, path: Path) -> Iterator[Source]:
    for number, info in enumerate(_directory(path, path.stat().st_mtime_ns).infolist()):
        if info.is_dir():
            continue
        opener: Callable[[], Raw] = partial(_ZipMember, path, number)
        if problem := growth_problem(info.file_size, info.compress_size):
            opener = partial(_refuse, problem)
        yield Source(member_name(name, info.filename), None, info.file_size, False, opener)


def _refuse(problem: str) -> Raw:
    raise OverflowError(problem)
