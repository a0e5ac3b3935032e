"""Values that SQLite does not take, and what becomes of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def storable(rows: Iterable[Sequence[Any]], optional: Sequence[bool]) -> Iterator[list[Any]]:
    """The rows with what SQLite takes: a number of more than 64 bits is garbage and becomes NULL, a lone surrogate `?`.

    `optional` says of each column whether it may be NULL; where such a number may not, the row is left out.
    """
    for row in rows:
        if all(empty or not _is_too_large(value) for value, empty in zip(row, optional, strict=True)):
            yield [_value(value) for value in row]


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return None if _is_too_large(value) else value


def _is_too_large(value: object) -> bool:
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
