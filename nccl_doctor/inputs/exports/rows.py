"""What all kinds of exported logs share: rows of a number in the file and the lines of one record, oldest first."""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common import budgets
from nccl_doctor.inputs.exports.records import Record
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import numbered

_AHEAD = 2_000  # records by which the order of a table is judged
_AHEAD_BYTES = 32 << 20  # bytes of more of them, where all have the same time


class Run(NamedTuple):
    """Neighbouring lines of a file, as they are read."""

    number: int  # of the first
    lines: int
    text: bytes  # with the end of each


class Cut(Exception):
    """Ends the lines of an export of which not all was read; `str()` says what is missing."""


def encoded(record: Record) -> list[bytes]:
    """The lines of a record."""
    return [line.encode("utf-8", "replace") for line in record.lines]


def raw(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """What cannot be read as the kind that its head promised, line by line."""
    for number, line in numbered(stream):
        yield number, [line]


def oldest_first(rows: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
    """The records in the order of their times. Where the newest comes first they are held, up to the budget."""
    ahead: list[tuple[int, Record]] = []
    size = falling = rising = 0
    enough = min(_AHEAD_BYTES, budgets.limit("held"))
    last: float | None = None
    for row in rows:
        ahead.append(row)
        size += row[1].size
        stamp = row[1].stamp
        if stamp is not None:
            if last is not None:
                falling += stamp < last
                rising += stamp > last
            last = stamp
        if size > enough or (len(ahead) >= _AHEAD and falling + rising):
            break
    if falling <= 3 * rising:
        yield from ahead
        yield from rows
        return
    for row in rows:
        size += row[1].size
        if size > budgets.limit("held"):
            yield from reversed(ahead)
            raise Cut(
                f"its newest lines come first, and older ones than line {row[0]:,} were not read; {budgets.reached('held')}"
            )
        ahead.append(row)
    yield from reversed(ahead)
