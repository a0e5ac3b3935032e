"""Compiles our own regular expressions, and keeps the code of the machine that matches them beside the program, as bytecode is kept.

The `re` module takes 30 to 300 microseconds for each of the 250 expressions that a short log needs, which is a sixth of such a run;
handing kept code to the machine takes 10. Kept code is used by the Python that wrote it only, and root reads it only where nobody
else can write it. Without it, or where this Python has other internals, `re.compile` does the work.

Only for expressions that are part of the program or its data: those made from a log or given by a site would fill what is kept.
"""

import atexit
import marshal
import re
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, overload

from nccl_doctor.common import parse_cache

try:  # the internals of `re` since Python 3.11
    import _sre  # type: ignore[import-not-found]
    from re import _compiler, _parser  # type: ignore[attr-defined]

    _MACHINE = f"{sys.version} {_sre.MAGIC} {_sre.CODESIZE}".encode()
except (ImportError, AttributeError):  # pragma: no cover
    _MACHINE = b""

_MOST = 1_000  # expressions that are kept, those of older versions of the program included
_HEAD = 16  # bytes

_Key = tuple[str | bytes, int]


class _Code(NamedTuple):
    """What `_sre.compile` takes besides the expression."""

    flags: int
    words: list[int]
    groups: int
    group_index: dict[str, int]
    index_group: tuple[str | None, ...]


@overload
def compiled(expression: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def compiled(expression: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def compiled(expression: str | bytes, flags: int = 0) -> re.Pattern[Any]:
    """What `re.compile` returns. Raises re.error."""
    return _store().pattern(expression, int(flags))


class Store:
    """The code of expressions in one file; writes what it had to make when the program ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: dict[_Key, bytes] = _read(file)
        self._new: dict[_Key, bytes] = {}
        self._used: set[_Key] = set()

    def pattern(self, expression: str | bytes, flags: int) -> re.Pattern[Any]:
        """The compiled expression. Raises re.error."""
        kept = self._kept.get((expression, flags))
        if kept is None:
            return self._made(expression, flags)
        self._used.add((expression, flags))
        return _loaded(expression, _Code(*marshal.loads(kept)))

    def _made(self, expression: str | bytes, flags: int) -> re.Pattern[Any]:
        if not _MACHINE:
            return re.compile(expression, flags)
        try:
            code = _code(expression, flags)
            pattern = _loaded(expression, code)
        except re.error:
            raise
        except Exception:  # another version of the internals; what `re` says of the expression counts
            return re.compile(expression, flags)
        if not self._new:
            atexit.register(self._save_at_exit)
        self._new[expression, flags] = marshal.dumps(tuple(code))
        return pattern

    def save(self) -> None:
        """Write the file anew, with what other runs put there meanwhile.

        Where that is too much, only with what this run used; where that is, too, it parsed all of our data: the next run needs less.
        """
        every = _read(self._file) | self._new
        used = {key: self._kept[key] for key in self._used} | self._new
        chosen = every if len(every) <= _MOST else used
        if len(chosen) <= _MOST:
            value = marshal.dumps(chosen)
            parse_cache.keep(self._file, _head(value) + value)
        self._new = {}

    def _save_at_exit(self) -> None:
        with suppress(KeyboardInterrupt):  # a signal ends the saving alone: the report is out
            self.save()


def _code(expression: str | bytes, flags: int) -> _Code:
    """What `re._compiler.compile` makes of an expression."""
    tree = _parser.parse(expression, flags)
    words = _compiler._code(tree, flags)
    group_index = dict(tree.state.groupdict)
    index_group: list[str | None] = [None] * tree.state.groups
    for name, number in group_index.items():
        index_group[number] = name
    return _Code(flags | tree.state.flags, [*map(int, words)], tree.state.groups - 1, group_index, tuple(index_group))


def _loaded(expression: str | bytes, code: _Code) -> re.Pattern[Any]:
    pattern: re.Pattern[Any] = _sre.compile(expression, *code)
    return pattern


def _read(file: Path) -> dict[_Key, bytes]:
    """What is kept in the file; empty where it is missing, damaged, of another Python, or not to be trusted."""
    with suppress(OSError, ValueError, EOFError, TypeError):
        data = parse_cache.kept(file)
        if _MACHINE and data[:_HEAD] == _head(data[_HEAD:]):
            found: dict[_Key, bytes] = marshal.loads(data[_HEAD:])
            return found
    return {}


def _head(value: bytes) -> bytes:
    """What tells the Python that a value is for, and whether it is whole."""
    python = parse_cache.digest(_MACHINE, _HEAD - 4)
    return python + zlib.crc32(value).to_bytes(4, "big")


@cache
def _store() -> Store:
    return Store(parse_cache.FOLDER / f"expressions-{sys.implementation.cache_tag}.bin")
