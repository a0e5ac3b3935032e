"""What a report says of numbers under names of their own (formats/printed)."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts

_MOST = 6  # numbers that a report shows
_ROOM = 330  # characters for all of them
_LABEL = 40  # characters
_CLOCK = 3  # values, the last of them the largest, that show a time which runs on
_RUNS = compiled(r"(?i)wall|elapsed|total")
_STATISTIC = r"(?i)quantile|percentile|std_?(?:dev|err)?(?![a-z])|variance|(?:\b|_)(?:min|max|p\d\d?)(?:\b|_)|\d%"
_SETTING = r"(?i)(?:\b|_)(?:nums?|number|batch|size|length|len|seed|port|count)(?:\b|_)"


def clauses(facts: Facts) -> Iterator[tuple[str, int]]:
    """`Throughput 1,983 images/s (1,787 to 2,059, 10 values)`: rates first, then times, then other columns of tables.

    Extremes, quantiles and deviations come behind, and sizes that somebody set last. Beside epochs only rates are shown, and
    beside steps none.
    """
    if facts.query("SELECT 1 FROM throughput_run WHERE tool <> 'epochs' LIMIT 1"):
        return
    rows = facts.query(
        "SELECT name, unit, n, median, last, last_label, lowest, lowest_label, highest, highest_label, worst_ref FROM printed_number"
        " WHERE kind = 'rate' OR NOT EXISTS (SELECT 1 FROM throughput_run)"
        " ORDER BY kind IS NULL AND name REGEXP ?, name REGEXP ?, CASE kind WHEN 'rate' THEN 0 WHEN 'time' THEN 1 ELSE 2 END, rowid",
        (_SETTING, _STATISTIC),
    )
    room = _ROOM
    for shown, (text, ref) in enumerate(map(_clause, rows[:_MOST])):
        room -= len(text) + 3
        if room < 0 and shown:
            break
        yield text, ref


def _clause(row: tuple[Any, ...]) -> tuple[str, int]:
    name, unit, n, middle, last, last_label, *extremes, ref = row
    lowest, lowest_label, highest, highest_label = extremes

    def number(value: float) -> str:
        return " ".join(filter(None, [name, _digits(value), unit]))

    if n >= _CLOCK and last == extremes[2] > extremes[0] and _RUNS.search(name) is not None:
        return number(last), ref
    if n == 1:
        return number(last) + (f" of {last_label[:_LABEL]}" if last_label else ""), ref
    low = _digits(lowest) + (f" of {lowest_label[:_LABEL]}" if lowest_label else "")
    high = _digits(highest) + (f" of {highest_label[:_LABEL]}" if highest_label else "")
    spread = f"{low} to {high}, " if lowest < highest else ""
    return f"{number(middle)} ({spread}{n:,} values)", ref


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
