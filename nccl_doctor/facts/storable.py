"""Values that no fact may have, and what becomes of them."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Any

_ENDLESS = (inf, -inf)


def is_endless(rows: Sequence[Sequence[Any]], columns: Sequence[int]) -> bool:
    """Whether one of these columns holds an infinite number, with which no sum, share or picture can be made."""
    return any(endless in map(itemgetter(at), rows) for at in columns for endless in _ENDLESS)


def storable(rows: Iterable[Sequence[Any]], optional: Sequence[bool]) -> Iterator[list[Any]]:
    """The rows with what a fact may be: a number of more than 64 bits or without an end is garbage and becomes NULL, a lone
    surrogate `?`.

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
    return (
        value in _ENDLESS if isinstance(value, float) else isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
    )
