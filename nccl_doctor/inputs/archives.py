"""Members of tar and zip archives as sources: read in place, never written to disk, their names never used as paths."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

from nccl_doctor.inputs.streams import (
    BREAKS,
    RATIO,
    RATIO_FROM,
    InputProblem,
    Raw,
    Source,
    Stream,
    compression,
    one_line,
    open_regular,
    why,
)

MAX_MEMBERS = 100_000
BLOCK = 1 << 16  # bytes read at once from a tar file
LARGEST_HEADER = 16 << 20  # bytes; a hostile header may claim any size and would be read into memory

_DAMAGE = (*BREAKS, tarfile.TarError, zipfile.BadZipFile, LookupError, AttributeError, TypeError)


def member_name(archive: str, name: str) -> str:
    """`archive!inner/name`, without root, `..` or anything that a terminal could take for a command."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return f"{archive}!{one_line('/'.join(parts)) or '?'}"


def members(kind: str, name: str, path: Path) -> Iterator[Source | InputProblem]:
    """The regular files in an archive, `kind` tar (also compressed) or zip.

    Where the archive is damaged the members in front of the damage come first, then an InputProblem.
    """
    reader = _tar if kind == "tar" else _zip
    count = 0
    try:
        for source in reader(name, path):
            if count == MAX_MEMBERS:
                yield InputProblem(name, f"has more than {MAX_MEMBERS:,} members; the others were not looked at")
                return
            count += 1
            yield source
    except _DAMAGE as error:
        reason = why(error) if isinstance(error, InputProblem | OSError) else f"is a damaged archive ({_words(error)})"
        yield InputProblem(name, reason + (f"; the {count} members before that were looked at" if count else ""))


def _words(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__


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
        plain = compression(raw.read(8)) is None
        raw.seek(0)
        self._stream = raw if plain else Stream(self._name, raw)
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
    finally:
        file.close()


def _sparse(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Raw:
    found = tarfile.ExFileObject(tar, info)
    assert isinstance(found, io.BufferedReader)
    return found


class _ZipMember:
    """The bytes of one member; a damaged member raises ValueError."""

    def __init__(self, path: Path, number: int) -> None:
        self._file = open_regular(path)
        try:
            with zipfile.ZipFile(self._file) as archive:
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
        self._file.close()


def _zip(name: str, path: Path) -> Iterator[Source]:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    for number, info in enumerate(infos):
        if info.is_dir():
            continue
        shown = member_name(name, info.filename)
        opener: Callable[[], Raw] = partial(_ZipMember, path, number)
        if info.file_size > RATIO_FROM and info.file_size > RATIO * info.compress_size:
            opener = partial(_refuse, shown)
        yield Source(shown, None, info.file_size, False, opener)


def _refuse(name: str) -> Raw:
    raise InputProblem(name, f"grows to more than {RATIO} times its size")
