"""A node tree as one file: packed by `preflight --save`, unpacked to be read again."""

import importlib
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, cast

from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.node.runtime.root import EXTRA

MAX_BYTES = 256 << 20  # of an unpacked tree
MAX_FILES = 100_000
LOOK_BYTES = 64 << 20  # of an archive that are searched for EXTRA; a tree of eight GPUs has about 1 MiB
LOOK_FILES = 20_000
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma"}  # what files begin with, and modules
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")


def pack(folder: Path, target: Path) -> None:
    """Write a folder as .tar, .tar.gz, .tar.xz or .tar.zst that only the owner can read.

    Raises UsageProblem where that cannot be done.
    """
    content = io.BytesIO()
    if target.suffix == ".zst":
        with _zstandard().ZstdCompressor().stream_writer(content, closefd=False) as packed:
            _add(folder, packed, "w|")
    else:
        mode = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}.get(target.suffix, "w:")
        _add(folder, content, mode)
    try:
        if target.is_symlink() and target.parent.stat().st_mode & 0o002:
            raise UsageProblem(f"cannot write {target}: it is a symbolic link in a folder that everybody can write")
        if target.exists() and not target.is_file():
            raise UsageProblem(f"cannot write {target}: it is not a regular file")
        replace_file(target, content.getvalue(), 0o600)
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror}") from None


def _add(folder: Path, file: object, mode: str) -> None:
    with tarfile.open(fileobj=cast(IO[bytes], file), mode=mode) as tar:  # type: ignore[call-overload]
        # First what tells that it is a tree, so that a reader knows at once.
        tar.add(folder / EXTRA, arcname=f"./{EXTRA}")
        tar.add(folder, arcname=".", filter=lambda member: None if member.name.startswith(f"./{EXTRA}") else member)


def is_tree(path: Path) -> bool:
    """Whether a folder or an archive is the tree of a node."""
    try:
        if path.is_dir():
            return (path / EXTRA).is_dir()
        if not path.name.endswith(SUFFIXES) or not path.is_file():
            return False
        with _tar(path) as tar:
            return _holds_extra(tar)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, ValueError):
        return False


def _holds_extra(tar: tarfile.TarFile) -> bool:
    """Whether EXTRA is in the archive, at its top or in the folder that was packed, among the first LOOK_FILES and LOOK_BYTES.

    `pack` writes it first; an archive that was packed again has it anywhere.
    """
    size = 0
    for _ in range(LOOK_FILES):
        member = tar.next()
        if member is None:
            return False
        if EXTRA in _parts(member.name)[:2]:
            return True
        size += member.size
        if size > LOOK_BYTES:
            return False
    return False


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of a tree: the path itself, or a temporary copy of a packed one that is removed afterwards.

    Raises UsageProblem where it is not the tree of a node.
    """
    if path.is_dir():
        yield path
        return
    if not path.is_file():  # a device or a pipe may never end
        raise UsageProblem(f"{path} is not a file or folder")
    import tempfile  # most runs read no tree

    with tempfile.TemporaryDirectory(prefix="nccl-doctor-", dir=_memory()) as folder:
        try:
            with _tar(path) as tar:
                _extract(tar, Path(folder))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, ValueError) as error:
            raise UsageProblem(f"{path} cannot be unpacked: {_reason(error)}") from None
        trees = _trees(Path(folder))
        if not trees:
            raise UsageProblem(f"{path} holds no tree of a node")
        if len(trees) > 1:
            names = ", ".join(tree.name for tree in trees[:3])
            raise UsageProblem(f"{path} holds {len(trees)} trees ({names}): pack each into a file of its own")
        yield trees[0]


def _reason(error: Exception) -> str:
    """Why an archive cannot be unpacked."""
    text = " ".join(str(error).split())
    # tarfile lists what each of its decompressors raised
    return "not an archive" if " - method " in text else text or "damaged"


def _trees(folder: Path) -> list[Path]:
    """The trees in an unpacked archive: the folder itself, or folders in it (`tar -cf node01.tar node01`)."""
    if _is_folder(folder / EXTRA) or _is_folder(folder / "proc"):
        return [folder]
    return sorted(one for one in folder.iterdir() if _is_folder(one) and _is_folder(one / EXTRA))


def _is_folder(path: Path) -> bool:
    """Whether it is a folder and not a link, which could lead out of the tree."""
    return path.is_dir() and not path.is_symlink()


class _Limited:
    """A stream of at most so many bytes. Raises ValueError beyond them: a header may claim any size, and holes have no end."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("it is larger than the tree of a node")
        return data


@contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    with path.open("rb") as file, _unpacked(file) as plain:
        limited = cast(IO[bytes], _Limited(plain, 2 * MAX_BYTES))
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            yield tar


@contextmanager
def _unpacked(file: io.BufferedReader) -> Iterator[IO[bytes]]:
    """The bytes of a compressed file, by what it begins with."""
    head = file.peek(6)[:6]
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        zstandard = _zstandard()
        try:
            with zstandard.ZstdDecompressor().stream_reader(file) as plain:
                yield plain
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        return
    kind = next((kind for kind in _PACKED if head.startswith(kind)), None)
    if kind is None:
        yield file
        return
    with importlib.import_module(_PACKED[kind]).open(file) as plain:
        yield plain


def _zstandard() -> ModuleType:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise UsageProblem("the package zstandard is not installed: name the file .tar.gz or .tar.xz") from None


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files of a tree, and its symbolic links when all files are there, so that none is written through a link.

    `TarFile.extract` takes ten times as long, because it sets owner, mode and time of each. Raises ValueError for names that
    lead out of the folder and for what is larger than a tree.
    """
    size = 0
    links: list[tuple[str, str]] = []
    made = {""}
    for count, member in enumerate(tar):
        size += member.size
        if size > MAX_BYTES or count > MAX_FILES:
            raise ValueError("it is larger than the tree of a node")
        parts = _parts(member.name)
        if ".." in parts or member.name.startswith("/"):
            raise ValueError(f"it holds {member.name[:100]!r}")
        name = "/".join(parts)
        above = name if member.isdir() else "/".join(parts[:-1])
        if above not in made:
            (folder / above).mkdir(parents=True, exist_ok=True, mode=0o700)
            made.add(above)
        if member.issym():
            links.append((name, member.linkname))
        elif member.isreg() and (content := tar.extractfile(member)) is not None:
            with (folder / name).open("wb") as file:
                file.write(content.read())
    for name, target in links:
        with suppress(FileExistsError):
            (folder / name).symlink_to(target)


def _parts(name: str) -> list[str]:
    """`./proc/stat` -> `proc`, `stat`."""
    return [part for part in name.split("/") if part not in ("", ".")]


def _memory() -> str | None:
    """A folder in memory, where a tree of a thousand small files is written in no time; None where it is too small."""
    with suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize > 2 * MAX_BYTES and os.access("/dev/shm", os.W_OK | os.X_OK):
            return "/dev/shm"
    return None
