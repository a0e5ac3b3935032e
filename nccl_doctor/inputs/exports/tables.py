"""Logs as a table of CSV: what log viewers give for download, Cloud Logging, CloudWatch Insights, Grafana, Kibana and Splunk."""

import csv
import io
import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.exports import records
from nccl_doctor.inputs.exports.records import MESSAGE, Record
from nccl_doctor.inputs.exports.rows import Cut, encoded, oldest_first, raw
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LONGEST_PIECE, Joined, cells_of, numbered, read_head

_HEAD = 1 << 16  # bytes that tell what separates columns
_COLUMNS = frozenset(
    name.lower() for name in (*MESSAGE, "_source.message", "jsonPayload.message", "log.message", "log line")
)
_UNSURE = frozenset(("event", "body", "content", "text", "log", "line"))  # such a column needs one of times beside it
_TIME_COLUMN = compiled(r"@?_?(?:time|date|timestamp|ts)\w*|.*\.timestamp", re.IGNORECASE)
_WORD = compiled(r"[@\w][\w .@/\"-]{0,100}")


def dialect(head: bytes) -> str | None:
    """What separates the columns of a table of log lines; None for any other text."""
    first, _, rest = head.partition(b"\n")
    title = first.decode("utf-8", "replace").strip()
    if not rest.strip() or len(title) > 4000:
        return None
    for sign in ",\t;":
        names = [name.strip() for name in cells_of(title, sign)]
        known = _COLUMNS.intersection(map(str.lower, names))
        if len(names) < 2 or not known or not all(_WORD.fullmatch(name) for name in names):
            continue
        if known <= _UNSURE and not any(_TIME_COLUMN.fullmatch(name) for name in names):
            continue
        sample = cells_of(rest.split(b"\n", 1)[0].decode("utf-8", "replace"), sign)
        if len(sample) == len(names) or (len(sample) > 1 and '"' in rest[:4000].decode("utf-8", "replace")):
            return sign
    return None


def table_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    head = read_head(stream, _HEAD)
    sign = dialect(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    if sign is None:
        yield from raw(Joined(head, stream))
        return
    table = _Table(Joined(head, stream), sign)
    for number, record in oldest_first(table.records()):
        yield number, encoded(record)
    if table.broken:
        rows = "row cannot" if table.broken == 1 else "rows cannot"
        raise Cut(f"{table.broken:,} {rows} be read, the first on line {table.first_broken:,}: {table.reason}")


class _Table:
    """A CSV table of log lines while it is read."""

    def __init__(self, stream: Readable, sign: str) -> None:
        self.broken = self.first_broken = 0  # rows that cannot be read, and the line of the first
        self.reason = ""
        self._number = 0  # of the last line that was taken
        self._cells = csv.reader(self._lines(stream), delimiter=sign)

    def records(self) -> Iterator[tuple[int, Record]]:
        """The records of the rows that hold a message, with the numbers of their first lines."""
        names: list[str] = []
        while True:
            number = self._number + 1
            usual = csv.field_size_limit(LONGEST_PIECE)  # of the whole process, so only for this row
            try:
                cells = next(self._cells, None)
            except csv.Error as error:
                self.broken += 1
                self.first_broken = self.first_broken or number
                self.reason = self.reason or str(error)
                continue
            finally:
                csv.field_size_limit(usual)
            if cells is None:
                return
            if not names:
                names = [_column(name) for name in cells]
            elif (record := records.read(_row(names, cells))) is not None:
                yield number, record

    def _lines(self, stream: Readable) -> Iterator[str]:
        for self._number, line in numbered(stream):
            text = line.decode("utf-8", "replace").replace("\x00", "") + "\n"
            text = text.removeprefix("\ufeff") if self._number == 1 else text
            if "\r" in text:  # also ends a row
                yield from io.StringIO(text, newline="")
            else:
                yield text


def _row(names: list[str], cells: list[str]) -> dict[str, str]:
    """The cells by their names. Where two columns hold the message, one of them is empty."""
    row: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=False):
        if cell or name not in row:
            row[name] = cell
    return row


def _column(name: str) -> str:
    """The name of a column as the records of JSON call it."""
    name = name.strip().strip('"')
    low = name.lower().removeprefix("_source.").removeprefix("jsonpayload.")
    low = "message" if low in ("log.message", "log line", "textpayload") else low
    known = {one.lower(): one for one in ("_HOSTNAME", "podName", "MESSAGE")}
    if low != "message" and low in known:
        return known[low]
    return "timestamp" if _TIME_COLUMN.fullmatch(low) and "stamp" in low else low
