"""Caches data parsed from files of the package as JSON, because parsing TOML at every start is slow.

It lies beside the code in `compiled/`, as bytecode does. Root reads it only where nobody else can write it. The wheel brings
it along; a checkout writes it at the first start. The hash of the files' content is its key, so it cannot be out of date.
What the file system says of the files is kept beside the hash: while that is the same, they are not read.
Bytes that depend on the machine, such as compiled automata, are kept in the same way and are never part of the wheel.

A file has two lines: `{"key": HASH, "seen": HASH}` and the value, or the size of what follows and a line for each value.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.trusted import distrust

try:
    from _blake2 import blake2b  # hashlib has the same one, and loads OpenSSL
except ImportError:  # pragma: no cover
    from hashlib import blake2b

T = TypeVar("T")
FOLDER = Path(__file__).parent / "compiled"
_DIGEST = 16  # bytes of a hash
_STARTED = time.time_ns()
_SETTLED = 2_000_000_000  # nanoseconds after which a change of a file shows in its times


def remembered(name: str, files: Sequence[Path], make: Callable[[], Any], folder: Path = FOLDER) -> Any:
    """What `make` returns, made anew only where the content of `files` differs from the last time.

    The value must be JSON. Raises what reading the files and `make` raise; a value that cannot be stored is not an error.
    """
    return _remembered(name, files, lambda: _json(make()), json.loads, folder)


def remembered_lines(
    name: str, files: Sequence[Path], make: Callable[[], Iterable[Any]], folder: Path = FOLDER
) -> list[bytes]:
    """As `remembered`, for many values of which most runs need few: each as JSON that the caller parses."""

    def body() -> bytes:
        lines = b"".join(_json(value) + b"\n" for value in make())
        return b"%d\n%b" % (len(lines), lines)

    return _remembered(name, files, body, _lines, folder)


def _lines(body: bytes) -> list[bytes]:
    """The values of `remembered_lines`. Raises ValueError where some are missing."""
    size, _, lines = body.partition(b"\n")
    if int(size) != len(lines):
        raise ValueError("damaged")
    return lines.splitlines()


def _remembered(
    name: str, files: Sequence[Path], make: Callable[[], bytes], parse: Callable[[bytes], T], folder: Path
) -> T:
    target = folder / f"{name}.json"
    if any(file.suffix == ".py" and os.stat(file).st_ctime_ns > _STARTED for file in files):  # noqa: PTH116  (as in `_seen`)
        return parse(make())  # an upgrade: what this process makes is of the code that it loaded before
    seen = _seen(files)
    with suppress(OSError, ValueError, TypeError, KeyError):
        head, _, body = target.read_bytes().partition(b"\n") if distrust(target) is None else (b"{}", b"", b"")
        known = json.loads(head)
        if known["seen"] == seen is not None:
            return parse(body)
        if known["key"] == _key(files):
            value = parse(body)
            if seen is not None:
                keep(target, _head(known["key"], seen) + body)
            return value
    key = _key(files)
    body = make()
    keep(target, _head(key, seen) + body)
    return parse(body)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _head(key: str, seen: str | None) -> bytes:
    return json.dumps({"key": key, "seen": seen}).encode() + b"\n"


def remembered_toml(name: str, file: Path) -> Any:
    """What a TOML file holds."""

    def parsed() -> Any:
        import tomllib

        return tomllib.loads(file.read_text("utf-8"))

    return remembered(name, [file], parsed)


def remembered_bytes(name: str, key: bytes, make: Callable[[], bytes], folder: Path = FOLDER) -> bytes:
    """What `make` returns, made anew only where `key`, which names all that it is made from, differs from the last time."""
    target = folder / f"{name}.bin"
    head = digest(key)
    with suppress(OSError):
        known = kept(target)
        value = known[2 * _DIGEST :]
        if known[: 2 * _DIGEST] == head + digest(value):
            return value
    value = make()
    keep(target, head + digest(value) + value)
    return value


def digest(data: bytes, size: int = _DIGEST) -> bytes:
    """A hash of so many bytes."""
    return blake2b(data, digest_size=size).digest()


def kept(file: Path) -> bytes:
    """The bytes of a file of the cache; none where root must not read it. Raises OSError."""
    return file.read_bytes() if distrust(file) is None else b""


def keep(target: Path, data: bytes) -> None:
    """Write a file of the cache where that is safe: root leaves nothing of its own in the checkout of a user."""
    with suppress(OSError):
        if distrust(target) is None and target.parent.parent.stat().st_uid == os.geteuid():
            _write(target, data)


def _key(files: Sequence[Path]) -> str:
    content = blake2b(digest_size=_DIGEST)
    for file in files:
        data = file.read_bytes()
        content.update(f"{file.name}\0{len(data)}\0".encode())
        content.update(data)
    return content.hexdigest()


def _seen(files: Sequence[Path]) -> str | None:
    """What the file system says of the files; None where one was changed so lately that its times may not show it."""
    stats = [os.stat(file) for file in files]  # noqa: PTH116  (half the time of Path.stat)
    if max((one.st_ctime_ns for one in stats), default=0) > time.time_ns() - _SETTLED:
        return None
    each = [
        (str(file), one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
        for file, one in zip(files, stats, strict=True)
    ]
    return digest(repr(each).encode()).hex()


def _write(target: Path, data: bytes) -> None:
    """Replace a file as a whole: others may read or write it at the same time."""
    target.parent.mkdir(exist_ok=True)
    replace_file(target, data, 0o644)
