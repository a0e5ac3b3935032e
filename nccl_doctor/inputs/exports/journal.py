"""The journal's export form, which `journalctl -o export` writes: a field a line, an empty line behind each record.

A field that is not plain text comes as its name, its length in eight bytes and its bytes (systemd, JOURNAL_EXPORT_FORMATS)::

    __CURSOR=s=1;i=2
    _HOSTNAME=node01
    MESSAGE=NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
"""

import io
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.common import budgets
from nccl_doctor.inputs.exports import records
from nccl_doctor.inputs.exports.rows import Cut, encoded
from nccl_doctor.inputs.exports.split_records import SplitRecords
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LONGEST_PIECE, buffered

START = b"__CURSOR="


def journal_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """`journalctl -o export`: a field a line, a binary one as its name, its length in eight bytes and its bytes."""
    reader = buffered(stream)
    fields: dict[str, Any] = {}
    number = first = 1
    whole = True
    split = SplitRecords()
    while line := reader.readline(LONGEST_PIECE):
        ended = line.endswith(b"\n")
        name, equals, value = line.removesuffix(b"\n").partition(b"=")
        begins, whole = whole, ended
        if not name and not equals and begins:
            if fields:
                yield from _written(split.add(first, fields))
                fields = {}
        elif begins:
            first = first if fields else number
            if not equals:
                value, breaks, missing = _binary(reader)
                number += breaks
                if missing:
                    yield from _written(split.add(first, fields))
                    raise Cut(f"ends in the middle of a field: {missing:,} bytes are missing")
            if len(fields) < budgets.limit("columns"):
                fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        number += ended
    if fields:
        yield from _written(split.add(first, fields))
    yield from _written(split.rest())


def _written(rows: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, list[bytes]]]:
    for number, row in rows:
        record = records.read(row)
        if record is not None:
            yield number, encoded(record)


def _binary(reader: io.BufferedReader) -> tuple[bytes, int, int]:
    """The first bytes of a binary field, how many line ends it has, and how many bytes of it are missing."""
    left = int.from_bytes(reader.read(8), "little")
    value = reader.read(min(left, LONGEST_PIECE))
    breaks, left = value.count(b"\n"), left - len(value)
    while left and (data := reader.read(min(left, LONGEST_PIECE))):
        breaks, left = breaks + data.count(b"\n"), left - len(data)
    if reader.peek(1)[:1] == b"\n":
        reader.read(1)
    return value, breaks, left
