"""Shared libraries as files: what they need, where they search for it, and which NCCL they hold. Nothing is loaded."""

import mmap
import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from nccl_doctor.common import trusted
from nccl_doctor.node.runtime.root import Root

_VERSION = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})[\w.]*(?:\+cuda(\d{1,2}\.\d{1,2}))?")
_INTERFACE = re.compile(rb"\0ncclNetPlugin_v(\d{1,3})(?=\0)")
_NAMED = re.compile(r"\.so\.(\d+\.\d+\.\d+)")
_MOST = 64 << 20  # bytes that are searched for a version
_HEAD = 4 << 20  # of a file without a table of sections
_FARTHEST = 1 << 40  # no library is longer
_TABLE = 1 << 20  # bytes of one table at most
_NEEDED, _STRTAB, _RPATH, _RUNPATH = 1, 5, 15, 29  # tags of the dynamic section


class Library(NamedTuple):
    """What a shared library says about itself."""

    size: int
    elf: bool  # False: no ELF file of 64 bits, or one that is cut off
    needed: list[str]
    rpath: list[str]  # searched before LD_LIBRARY_PATH
    runpath: list[str]  # searched after it
    nccl: str | None  # version of the NCCL inside
    cuda: str | None  # CUDA version that this NCCL was built for
    calls_nccl: bool  # names ncclAllReduce
    interfaces: Sequence[int] = ()  # N of each ncclNetPlugin_vN that it names: what a plug-in offers, or NCCL asks for


class _Section(NamedTuple):
    name: int
    kind: int
    offset: int
    size: int


def library(root: Root, path: str) -> Library | None:
    """The library at this path, as told by `libraries.json` of a tree or by the file; None where it is absent or unreadable."""
    kept = root.asked("libraries", lambda: {path: _plain(look(path))}) or {}
    if isinstance(kept.get(path), dict):
        known = {name: value for name, value in kept[path].items() if name in Library._fields}
        with suppress(TypeError):
            return Library(**{**Library(0, True, [], [], [], None, None, False)._asdict(), **known})
    return look(root.where(path)) if not root.live and root.exists(path) else None


def span(found: Library | None) -> tuple[int | None, int | None]:
    """The oldest and the newest interface of network plug-ins that a library names."""
    numbers = [number for number in found.interfaces if isinstance(number, int)] if found else []
    return (min(numbers), max(numbers)) if numbers else (None, None)


def version_in_name(path: str) -> str | None:
    """`libnccl.so.2.21.5` -> `2.21.5`."""
    match = _NAMED.search(os.path.basename(path))
    return match[1] if match else None


def _plain(found: Library | None) -> dict[str, Any] | None:
    return found._asdict() if found else None


def look(path: str) -> Library | None:
    """Read a file of this machine; None where it cannot be opened. What is broken in it is left out."""
    try:
        with trusted.regular(path) as file:
            return _read(file)
    except (OSError, ValueError):
        return None


def _read(file: BinaryIO) -> Library:
    size = os.fstat(file.fileno()).st_size
    if size < 64 or file.read(5) != b"\x7fELF\x02":
        return Library(size, False, [], [], [], None, None, False)
    sections: list[_Section] = []
    needed: list[str] = []
    rpath: list[str] = []
    runpath: list[str] = []
    with suppress(struct.error, IndexError, MemoryError):
        sections = _sections(file)
        needed, rpath, runpath = _dynamic(file, size)
    nccl, cuda, calls = _search(file, size, sections)
    plugins = _interfaces(file, size) if "libnccl" in os.path.basename(file.name) else []
    return Library(
        size=size, elf=True, needed=needed, rpath=rpath, runpath=runpath, nccl=nccl, cuda=cuda, calls_nccl=calls,
        interfaces=plugins,
    )  # fmt: skip


def _interfaces(file: BinaryIO, size: int) -> list[int]:
    """NCCL names them among its constants, a plug-in among its symbols. A release that forms the names itself has none."""
    with mmap.mmap(file.fileno(), min(size, _MOST), access=mmap.ACCESS_READ) as content:
        return sorted({int(parsed[1]) for parsed in _INTERFACE.finditer(content)})


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    if offset > _FARTHEST:
        return b""
    file.seek(offset)
    return file.read(min(size, _TABLE))


def _sections(file: BinaryIO) -> list[_Section]:
    head = _at(file, 0, 64)
    (table,) = struct.unpack_from("<Q", head, 40)
    each, count = struct.unpack_from("<HH", head, 58)
    data = _at(file, table, each * count)
    rows = []
    for place in range(min(count, len(data) // max(each, 64))):
        name, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", data, place * each)
        rows.append(_Section(name, kind, offset, size))
    return rows


def _dynamic(file: BinaryIO, size: int) -> tuple[list[str], list[str], list[str]]:
    head = _at(file, 0, 64)
    (table,) = struct.unpack_from("<Q", head, 32)
    each, count = struct.unpack_from("<HH", head, 54)
    data = _at(file, table, each * count)
    loads: list[tuple[int, int, int]] = []
    where = (0, 0)
    for place in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, place * each)
        if kind == 1:
            loads.append((address, offset, length))
        elif kind == 2:
            where = (offset, length)
    tags = [(tag, value) for tag, value in struct.iter_unpack("<qQ", _whole(_at(file, *where)))]
    text = next((value for tag, value in tags if tag == _STRTAB), None)
    start = next((o + text - a for a, o, n in loads if text is not None and a <= text < a + n), None)
    if start is None or start >= size:
        return [], [], []
    strings = _at(file, start, _TABLE)

    def named(wanted: int) -> list[str]:
        return [
            strings[value : strings.find(b"\0", value)].decode("utf-8", "replace")
            for tag, value in tags
            if tag == wanted and value < len(strings)
        ]

    paths = [[entry for one in named(tag) for entry in one.split(":") if entry] for tag in (_RPATH, _RUNPATH)]
    return named(_NEEDED), paths[0], paths[1]


def _whole(data: bytes) -> bytes:
    return data[: len(data) // 16 * 16]


def _search(file: BinaryIO, size: int, sections: list[_Section]) -> tuple[str | None, str | None, bool]:
    """Version and names are among the constants (.rodata), a small part of a file that holds kernels for many GPUs."""
    sections = [s for s in sections if s.offset + s.size <= size]
    names = _name(file) if sections else b""
    constants = [s for s in sections if s.kind == 1 and names and _called(names, s.name) in (b".rodata", b".data")]
    tables = [s for s in sections if s.kind in (3, 11) and s.size < _MOST]
    areas = [(s.offset, s.size) for s in constants] or [(0, min(size, _HEAD))]
    version: tuple[str | None, str | None] = (None, None)
    calls = False
    left = _MOST
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for offset, length in areas:
            end = min(offset + min(length, left), size)
            left -= max(end - offset, 0)
            if version[0] is None:
                start = content.find(b"NCCL version ", offset, end)
                while start >= 0 and version[0] is None:
                    if match := _VERSION.match(content, start):
                        version = (match[1].decode(), match[2].decode() if match[2] else None)
                    start = content.find(b"NCCL version ", start + 1, end)
            calls = calls or content.find(b"ncclAllReduce", offset, end) >= 0
        for table in tables:
            calls = calls or content.find(b"ncclAllReduce", table.offset, min(table.offset + table.size, size)) >= 0
    return (*version, calls)


def _name(file: BinaryIO) -> bytes:
    """The table of the sections' names."""
    head = _at(file, 0, 64)
    (table,) = struct.unpack_from("<Q", head, 40)
    each, _, place = struct.unpack_from("<HHH", head, 58)
    entry = _at(file, table + each * place, 64)
    if len(entry) < 64:
        return b""
    offset, size = struct.unpack_from("<QQ", entry, 24)
    return _at(file, offset, size)


def _called(names: bytes, start: int) -> bytes:
    return names[start : names.find(b"\0", start)]
