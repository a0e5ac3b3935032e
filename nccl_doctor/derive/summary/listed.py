"""What tables and lists of commands tell of the parts of machines: their states and readings (formats/listings)."""

from collections.abc import Iterator

from nccl_doctor.common.plurals import counted
from nccl_doctor.derive.summary import Clause, amount
from nccl_doctor.facts.store import Facts

_STATES = 4  # different ones that are shown
_NUMBERS = 6
_SOURCE = 40  # characters

QUERIES = (
    # commands about hosts: free, df, ulimit, lscpu, numactl, top, perf stat
    "SELECT replace(command, ' ', '_') || '_' || replace(iif(command = 'df', 'used', name), ' ', '_'), value, unit, 'host',"
    " coalesce(host || ' ', '') || iif(command = 'df', name, ''), ref FROM host_number WHERE value >= 0 LIMIT 5000",
    # parts of machines
    "SELECT 'listed_' || replace(replace(lower(iif(title = '', name, title)), ' ', '_'), '%', 'percent_'), value, unit, 'part',"
    " coalesce(host || ' ', '') || name, ref FROM listed_number LIMIT 5000",
)
"""Each yields the columns of `measure` in their order."""


def clauses(facts: Facts) -> Iterator[Clause]:
    """`show platform psustatus: 2 parts (1 OK, 1 WARNING), Power 54.56 W`: what does not work well comes first."""
    said: dict[str, tuple[list[str], int]] = {}
    states: dict[str, list[str]] = {}
    for source, state, n in facts.query(
        "SELECT source, state, count(*) FROM listed_state GROUP BY source, state ORDER BY min(level) = 'well', count(*) DESC, state"
    ):
        states.setdefault(source, []).append(f"{n:,} {state}")
    for source, parts, ref in facts.query(
        "SELECT source, count(DISTINCT coalesce(host, '') || ' ' || name), min(ref) FROM listed_state GROUP BY source ORDER BY min(ref)"
    ):
        told = states[source]
        shown = ", ".join(told[:_STATES]) + ", …" * (len(told) > _STATES)
        said[source] = ([f"{counted(parts, 'part')} ({shown})"], ref)
    for source, parts, ref in facts.query(
        "SELECT source, count(DISTINCT coalesce(host, '') || ' ' || name), min(ref) FROM listed_number GROUP BY source ORDER BY min(ref)"
    ):
        if source not in said:
            said[source] = ([counted(parts, "part")] * (parts > 1), ref)
    for source, title, unit, least, most, which in facts.query(
        "SELECT source, quantity, unit, least, max(value), name FROM (SELECT source, iif(title = '', name, title) AS quantity, unit,"
        " value, name, min(value) OVER one AS least, min(ref) OVER one AS ref, min(rowid) OVER one AS first FROM listed_number"
        " WINDOW one AS (PARTITION BY source, iif(title = '', name, title), unit)) GROUP BY source, quantity, unit ORDER BY ref, first"
    ):
        words = said[source][0]
        if len(words) < _NUMBERS:
            low = f"{amount(least, unit)} to " if least < most else ""
            words.append(f"{title} {low}{amount(most, unit)}" + (f" ({which})" if low else ""))
    for source, (words, ref) in said.items():
        yield f"{source[:_SOURCE]}: {', '.join(words)}", ref
