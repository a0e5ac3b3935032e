"""Bytes of one input: decompressed by content, bounded, and delivered up to the place where a file breaks.

Inputs are hostile until read: nothing here blocks on a pipe, trusts a declared size, or lets an archive grow without end.
"""

import bz2
import codecs
import errno
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

from nccl_doctor.common import budgets
from nccl_doctor.common.printable import printable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 16  # bytes in one piece
# gzip cannot exceed 1032:1, xz and zstd can by far; logs compress to between 5:1 and 100:1
RATIO_FROM = 512 << 20  # bytes of output from which on the ratio is looked at
MEMORY = 256 << 20  # bytes that an xz or zstd window may take
_MAGIC = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class InputProblem(Exception):
    """An input that cannot be read, or only in part. `str()` is one sentence for the user."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class ForeignInput(InputProblem):
    """An input that is whole and of a kind that nothing here reads, such as a picture: no verdict depends on it."""


BREAKS = (
    InputProblem,
    EOFError,
    OSError,
    OverflowError,
    ValueError,
    MemoryError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
)
"""What reading a damaged input raises."""


class Readable(Protocol):
    """Anything that gives bytes; at the end it gives none."""

    def read(self, size: int, /) -> bytes: ...


class Raw(Protocol):
    """The bytes of a file, pipe or archive member."""

    def read(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class Source(NamedTuple):
    """Something that can be opened with `open_stream`."""

    name: str  # as shown to the user; `archive.tar.gz!inner.log` for a member, `-` for standard input
    path: Path | None  # None for standard input and members of archives
    size: int | None  # bytes on disk, or in the archive's directory
    plain: bool  # a regular file whose bytes are the text: may be read in pieces or mapped
    opener: Callable[[], Raw]


class _Decoder(Protocol):
    """What bz2 and lzma offer; zlib and zstd are adapted to it."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self._full = False  # more output may wait without any input

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._full = len(out) == max_length
        return out


class _Zstd:
    """zstd has no limit on the output of one call, but a block of a few bytes gives 128 kB at most: feed little at once."""

    _STEP = 1024

    def __init__(self) -> None:
        import zstandard  # slow to import, rarely needed

        self._error = zstandard.ZstdError
        self._inner = zstandard.ZstdDecompressor(max_window_size=MEMORY).decompressobj()
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + self._waiting

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        waiting = self._waiting + data
        step, self._waiting = waiting[: self._STEP], waiting[self._STEP :]
        try:
            return self._inner.decompress(step)
        except self._error as error:
            raise ValueError(error) from None


def _decoder(method: str) -> _Decoder:
    if method == "gzip":
        return _Gzip()
    if method == "bzip2":
        return bz2.BZ2Decompressor()
    if method == "xz":
        return lzma.LZMADecompressor(memlimit=MEMORY)
    return _Zstd()


def compression(head: bytes) -> str | None:
    """gzip, bzip2, xz, zstd or None, from the first bytes."""
    return next((method for magic, method in _MAGIC if head.startswith(magic)), None)


def encoding(head: bytes) -> str | None:
    """utf-16 or utf-32 where a byte order mark says so."""
    return next((name for bom, name in _BOMS if head.startswith(bom)), None)


def pieces(raw: Raw) -> Iterator[bytes]:
    """The bytes of a file, pipe or member as they come."""
    while data := raw.read(CHUNK):
        yield data


class _Counted:
    """Counts what an iterator of bytes gave."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.bytes = 0
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.bytes += len(chunk)
            yield chunk


def _cut(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), CHUNK):
        yield data[at : at + CHUNK]


def _inflate(method: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress, over all members of the file. Raises EOFError where the last one is not complete."""
    data = b""
    decoder: _Decoder | None = None
    for chunk in chunks:
        data += chunk
        while data:
            if decoder is None:
                data = data.lstrip(b"\x00")  # padding between and behind members
                if not data:
                    break
                if len(data) < 6:  # too little to tell the next member from rubbish
                    break
                if compression(data) != method:
                    raise ValueError("other bytes follow the compressed ones")
                decoder = _decoder(method)
            yield from _cut(decoder.decompress(data, CHUNK))
            data = b""
            while not decoder.eof and not decoder.needs_input:
                yield from _cut(decoder.decompress(b"", CHUNK))
            if decoder.eof:
                data, decoder = decoder.unused_data, None
    if decoder is not None:
        raise EOFError
    if data.strip(b"\x00"):
        raise ValueError("other bytes follow the compressed ones")


def growth_problem(total: int, size: int) -> str | None:
    """Why `size` bytes on disk may not become `total` bytes of text; None where they may."""
    if total > budgets.limit("bytes"):
        return f"is larger than {budgets.limit('bytes'):,} bytes; {budgets.reached('bytes')}"
    if total > RATIO_FROM and total > budgets.limit("ratio") * size:
        return f"grows to more than {budgets.limit('ratio')} times its size; {budgets.reached('ratio')}"
    return None


def _guard(chunks: Iterator[bytes], source: _Counted) -> Iterator[bytes]:
    """Stop what grows beyond the budgets."""
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if problem := growth_problem(total, source.bytes):
            yield chunk[: max(len(chunk) - (total - budgets.limit("bytes")), 0)]
            raise OverflowError(problem)
        yield chunk


def _utf8(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(name)("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")


def _with_head(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Enough of the first bytes to recognise them, and everything from the start again."""
    head = b""
    broken: Exception | None = None
    try:
        for chunk in chunks:
            head += chunk
            if len(head) >= 8:
                break
    except BREAKS as error:
        broken = error

    def again() -> Iterator[bytes]:
        yield head
        if broken is not None:
            raise broken
        yield from chunks

    return head, again()


def decoded(raw: Raw) -> Iterator[bytes]:
    """What a raw stream holds once decompressed and, if it is UTF-16 or UTF-32, turned into UTF-8."""
    counted = _Counted(pieces(raw))
    head, chunks = _with_head(iter(counted))
    if method := compression(head):
        head, chunks = _with_head(_inflate(method, chunks))
    chunks = _guard(chunks, counted)
    if name := encoding(head):
        chunks = _utf8(chunks, name)
    return chunks


class Stream(io.RawIOBase):
    """Reads chunks. `read(n)` waits for n bytes; where the input breaks it first gives what came before."""

    def __init__(self, name: str, raw: Raw) -> None:
        super().__init__()
        self.name = name
        self._raw = raw
        self._chunks = decoded(raw)
        self._ready = bytearray()
        self._given = 0
        self._problem: InputProblem | None = None
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Raises InputProblem once everything before the break has been given."""
        want = None if size is None or size < 0 else size
        while not self._ended and (want is None or len(self._ready) < want):
            try:
                self._ready += next(self._chunks)
            except StopIteration:
                self._ended = True
            except BREAKS as error:
                self._ended = True
                self._problem = InputProblem(self.name, self._reason(error))
        with memoryview(self._ready) as ready, ready[:want] as wanted:
            out = bytes(wanted)
        del self._ready[:want]
        self._given += len(out)
        if not out and want != 0 and self._problem is not None:
            raise self._problem
        return out

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def _reason(self, error: Exception) -> str:
        at = self._given + len(self._ready)
        kept = f"; the {at:,} bytes before that were read" if at else ""
        if isinstance(error, InputProblem):
            return error.reason + kept
        if isinstance(error, EOFError):
            return "ends in the middle of its compressed data" + kept
        if isinstance(error, OverflowError):
            return str(error) + kept
        if isinstance(error, OSError) and error.strerror:
            return f"cannot be read: {error.strerror}" + kept
        return f"is damaged ({one_line(str(error)) or type(error).__name__})" + kept


def open_stream(source: Source) -> BinaryIO:
    """The text of a source as bytes, decompressed by content and UTF-8 where a byte order mark tells UTF-16 or UTF-32.

    Raises InputProblem, here or while reading; reading gives all bytes in front of a break first.
    """
    try:
        raw = source.opener()
    except BREAKS as error:
        raise InputProblem(source.name, why(error)) from None
    return cast(BinaryIO, Stream(source.name, raw))


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a regular file without ever waiting for a pipe or device. Raises OSError, also if it is something else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def why(error: Exception) -> str:
    """Why something could not be opened, in words."""
    if isinstance(error, InputProblem):
        return error.reason
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    if isinstance(error, PermissionError):
        return "you may not read it"
    if isinstance(error, OverflowError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return f"cannot be read: {one_line(str(error)) or type(error).__name__}"


def one_line(text: str) -> str:
    """Text that is safe to show: printable, in one line, encodable."""
    return printable(text)
