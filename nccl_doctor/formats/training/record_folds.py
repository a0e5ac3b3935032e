"""Folds neighbouring records of a long series into one row: the value of each is found by its key, only five are decoded."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from nccl_doctor.formats.training.steps.step_folds import Line
from nccl_doctor.formats.training.steps.step_series import Series
from nccl_doctor.inputs.blocks import Cursor

Places = list[tuple[int, int]]  # offset of the last byte of a literal, and which one it is
ReadLine = Callable[[bytes, int], Line | None]  # decodes a line with its number; None for one of another kind


@lru_cache(maxsize=64)
def _value_of(key: str, quoted: bool) -> re.Pattern[bytes]:
    name = re.escape(key.encode())
    before = rb'"' + name + rb'": ?"?' if quoted else rb"(?<= )" + name + rb" : "
    return re.compile(before + rb'(-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?)(?=[",}\s])')


def fold(
    series: Series,
    key: str,
    less_is_slower: bool,
    places: Places,
    cursor: Cursor,
    read: ReadLine,
    same: Callable[[int, int], bool],
    *,
    quoted: bool = True,
) -> bool:
    """Add a row of the records at these places; False where they have to be read one by one.

    `key` is that of the value by which the series compares its steps. `same` tells of a part of the block whether all its
    records are steps. `quoted` is false where keys are plain text. Decoded are the first two, the median, the slowest
    and the last; their steps must lie as far apart as the number of records says.
    """
    block, count, start = cursor.block, len(places), places[0][0]
    stop = block.find(b"\n", places[-1][0])
    stop = stop if stop >= 0 else len(block)
    values = [float(value) for value in _value_of(key, quoted).findall(block, start, stop)]
    if len(values) != count or not same(start, stop):
        return False
    look = cursor.copy()
    if not fold_values(series, values, less_is_slower, lambda index: read(*look.line(places[index][0]))):
        return False
    cursor.move_to(look)
    return True


def fold_values(
    series: Series, values: Sequence[float], less_is_slower: bool, read: Callable[[int], Line | None]
) -> bool:
    """Add a row of the records with these values, by which their steps are compared; False where they have to be read one by one.

    `read` gives a record by its place; it is asked in ascending order.
    """
    count = len(values)
    order = sorted(range(count), key=values.__getitem__, reverse=less_is_slower)
    by_index: dict[int, Line] = {}
    for index in sorted({0, 1, order[count // 2], order[-1], count - 1}):
        line = read(index)
        if line is None:
            return False
        by_index[index] = line
    first, second, last = (by_index[index][0][0] for index in (0, 1, count - 1))
    if first is not None or last is not None:
        if first is None or second is None or last is None or not series.follows(first):
            return False
        if second <= first or last - first != (second - first) * (count - 1):
            return False
    series.add_many(by_index[0], by_index[order[count // 2]], by_index[order[-1]], by_index[count - 1], count)
    return True
