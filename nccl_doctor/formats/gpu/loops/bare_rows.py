"""Columns of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`, which have neither titles nor units, told by their values.

    0, 97, 61234, 81559, 688.12
    1, 96, 61234, 81559, 690.02

A column counts only where no other quantity has such values: the number of a GPU comes round again, power has two decimals, the whole
memory is the same in all rows, the use of a GPU reaches values that no temperature has and is above the use of its memory.
"""

import re
from collections.abc import Sequence

from nccl_doctor.common.timestamps import iso_seconds

MOST = 2_000  # rows that are looked at
_LEAST = 4  # rows that tell anything
_MOST_GPUS = 16  # of a node
_STAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}")
_BUS = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")
_MODEL = re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|A100|H100|H200|GRID)[\w .()/-]{0,60}")
_WHOLE = re.compile(r"\d{1,7}")
_TENTHS = re.compile(r"\d{1,4}\.\d\d")
_NONE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "")
_LEAST_MEMORY = 4_000  # MiB of a whole GPU
_HIGHEST_CLOCK = 3_300  # MHz of multiprocessors
_COLD, _HOT = 12, 96  # degrees that GPUs at work do not have
_HIGHEST_POWER = 1_500.0  # W
_STEP = 4  # degrees from one reading of a GPU to the next


def columns_of(rows: Sequence[str]) -> list[str | None] | None:
    """What each column is called in this package, None for one that is not clear; None where the rows are not such a table."""
    cells = [[cell.strip() for cell in row.split(",")] for row in rows[:MOST] if row.strip()]
    if len(cells) < _LEAST or any(len(row) != len(cells[0]) for row in cells) or len(cells[0]) < 2:
        return None
    table = [list(column) for column in zip(*cells, strict=True)]
    names = [_text_column(column) for column in table]
    period = _number_gpus(table, names)
    numbers = {at: _numbers(column) for at, column in enumerate(table) if names[at] is None}
    _name_power(table, numbers, names)
    _name_memory(
        {at: values for at, values in numbers.items() if values and names[at] is None and _all(_WHOLE, table[at])},
        names,
    )
    shares = {
        at: values
        for at, values in numbers.items()
        if values and names[at] is None and max(values) <= 100 and _all(_WHOLE, table[at])
    }
    _name_use(shares, names, period)
    told = set(names) - {None}
    proves = {"time", "uuid", "bus", "memory_total"} | ({"index"} if 1 < period < len(cells) else set())
    return names if told & {"util", "power", "memory"} and told & proves else None


def _text_column(column: Sequence[str]) -> str | None:
    """Times, UUIDs, addresses and models, which their form tells."""
    forms = {"uuid": _UUID, "bus": _BUS, "model": _MODEL}
    if all(_STAMP.fullmatch(cell) and iso_seconds(cell) is not None for cell in column):
        return "time"
    return next((name for name, form in forms.items() if all(form.fullmatch(cell) for cell in column)), None)


def _number_gpus(table: Sequence[Sequence[str]], names: list[str | None]) -> int:
    """Name the column in which the numbers of GPUs come round; how many rows one reading has."""
    for at, column in enumerate(table):
        if names[at] is not None or not all(cell.isdecimal() and len(cell) <= 2 for cell in column):
            continue
        values = [int(cell) for cell in column]
        gpus = next((row for row in range(1, len(values)) if values[row] == values[0]), len(values))
        comes_round = values[:gpus] == list(range(values[0], values[0] + gpus)) and values[0] + gpus <= _MOST_GPUS
        if 1 < gpus and comes_round and all(value == values[row % gpus] for row, value in enumerate(values)):
            names[at] = "index"
            return gpus
    return 1


def may_number(rows: Sequence[str], at: int, columns: int) -> bool:
    """Whether a column may be that of the numbers of GPUs: one and the same, or those of a node round and round."""
    column = [cells[at].strip() for row in rows if len(cells := row.split(",")) == columns]
    if len(set(column)) < 2:
        return all(cell.isdecimal() and len(cell) <= 2 and int(cell) < _MOST_GPUS for cell in column)
    return _number_gpus([column], [None]) > 1


def _numbers(column: Sequence[str]) -> list[float]:
    """The values that are numbers; none where a cell is something else."""
    known = [cell for cell in column if cell not in _NONE]
    return (
        [float(cell) for cell in known]
        if known and all(_WHOLE.fullmatch(cell) or _TENTHS.fullmatch(cell) for cell in known)
        else []
    )


def _all(form: re.Pattern[str], column: Sequence[str]) -> bool:
    return all(form.fullmatch(cell) for cell in column if cell not in _NONE)


def _name_power(table: Sequence[Sequence[str]], numbers: dict[int, list[float]], names: list[str | None]) -> None:
    """nvidia-smi prints power alone with decimals; of two such columns the constant one is the limit."""
    found = [
        at for at, values in numbers.items() if values and _all(_TENTHS, table[at]) and max(values) <= _HIGHEST_POWER
    ]
    drawn = [at for at in found if len(set(numbers[at])) > 1]
    limits = [at for at in found if at not in drawn and all(value % 1 == 0 for value in numbers[at])]
    if len(drawn) == 1:
        names[drawn[0]] = "power"
        if len(limits) == 1 and numbers[limits[0]][0] >= 0.5 * max(numbers[drawn[0]]):
            names[limits[0]] = "power_limit"


def _name_memory(numbers: dict[int, list[float]], names: list[str | None]) -> None:
    """The whole memory is constant and above all of what is used; what is used is above all clocks, or is known by what is free."""
    whole = [at for at, values in numbers.items() if len(set(values)) == 1 and values[0] >= _LEAST_MEMORY]
    changing = [at for at, values in numbers.items() if len(set(values)) > 1 and max(values) > 100]
    if len(whole) == 1:
        total = numbers[whole[0]][0]
        held = [at for at in changing if _HIGHEST_CLOCK < max(numbers[at]) <= total]
        free = [(a, b) for a in held for b in held if a < b and _add_up(numbers[a], numbers[b], total)]
        names[whole[0]] = "memory_total"
        if len(held) == 1:
            names[held[0]] = "memory"
        elif len(free) == 1:
            pass  # which of both is used, and which is free, their order does not tell
    elif not whole:
        held = [at for at in changing if max(numbers[at]) > _HIGHEST_CLOCK]
        if len(held) == 1:
            names[held[0]] = "memory"


def _add_up(used: Sequence[float], free: Sequence[float], total: float) -> bool:
    return all(0.97 * total <= a + b <= total for a, b in zip(used, free, strict=False))


def _name_use(shares: dict[int, list[float]], names: list[str | None], period: int) -> None:
    """The use of GPUs, among columns of 0 to 100: temperatures change slowly, and the use of the memory is below it."""
    heat = [at for at, values in shares.items() if _is_temperature(values, period)]
    use = [at for at, values in shares.items() if at not in heat and (max(values) >= _HOT or min(values) <= _COLD)]
    moving = [at for at in use if len(set(shares[at])) > 1]  # a fan may stay at 100
    use = moving or [at for at in use if set(shares[at]) == {100}]
    above = [at for at in use if all(_is_above(shares[at], shares[other]) for other in use if other != at)]
    if len(above) == 1 and max(shares[above[0]]) > _COLD:
        names[above[0]] = "util"
    if len(heat) == 1:
        names[heat[0]] = "temperature"


def _is_temperature(values: Sequence[float], period: int) -> bool:
    steps = [abs(later - before) for before, later in zip(values, values[period:], strict=False)]
    return bool(steps) and _COLD < min(values) and max(values) < _HOT and max(steps) <= _STEP and len(set(values)) > 1


def _is_above(values: Sequence[float], others: Sequence[float]) -> bool:
    return sum(values) > sum(others) and sum(a < b for a, b in zip(values, others, strict=False)) <= 0.05 * len(values)
