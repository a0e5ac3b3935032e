"""Values that no fact may have, and what becomes of them."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

LARGEST = 1e150  # of a number with a fraction: not even the square of one is infinite


def is_absurd(rows: Sequence[Sequence[Any]], columns: Sequence[int]) -> bool:
    """Whether one of these columns may hold a number that nobody measured, or NaN: no sum, share or picture comes of those."""
    return any(not sum(map(abs, filter(None, map(itemgetter(at), rows)))) < LARGEST for at in columns)


def storable(rows: Iterable[Sequence[Any]], optional: Sequence[bool]) -> Iterator[list[Any]]:
    """The rows with what a fact may be: a number of more than 64 bits, or from LARGEST on, is garbage and becomes
    NULL, a lone surrogate `?`.

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
    if isinstance(value, float):
        return not -LARGEST < value < LARGEST
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
