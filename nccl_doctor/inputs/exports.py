"""Logs that a log service or a JSON logger wrote: recognised by their head, and read as the lines of the job behind them.

JSON with a record a line, a CSV table and the journal's export form are read as they come, JSON also between lines of text. A
document of JSON, and a table whose newest line comes first, are held up to the budget `held`.
"""

import csv
import io
import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.common import budgets
from nccl_doctor.inputs import export_records, partials, prefixes, wrapping
from nccl_doctor.inputs.export_records import MESSAGE, Record
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LONGEST_PIECE, Joined, buffered, numbered, read_head

_HEAD = 1 << 16  # bytes that tell what separates columns
_AHEAD = 2_000  # records by which the order of a table is judged
_AHEAD_BYTES = 32 << 20  # bytes of more of them, where all have the same time
_SHARE = 20  # one line in so many must be a record
_LINES = 400  # of the head that tell
_FRONT = 300  # characters in which a record of a line begins
_JOURNAL = b"__CURSOR="
_KEY = "|".join(MESSAGE)
_HOLDS = re.compile(
    rf'"(?:{_KEY})"\s*:\s*(?:"|\[|\{{)|"values"\s*:\s*\[\s*\[\s*"\d{{10,19}}"|"kind"\s*:\s*"Pod"'.encode()
)
_DOCKER = re.compile(rb'\{"log":"(?!\{)(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')
_COLUMNS = frozenset(
    name.lower() for name in (*MESSAGE, "_source.message", "jsonPayload.message", "log.message", "log line")
)
_UNSURE = frozenset(("event", "body", "content", "text", "log", "line"))  # such a column needs one of times beside it
_TIME_COLUMN = re.compile(r"@?_?(?:time|date|timestamp|ts)\w*|.*\.timestamp", re.IGNORECASE)
_WORD = re.compile(r"[@\w][\w .@/-]{0,60}")


class _Cut(Exception):
    """Ends the lines of an export of which not all was read; `str()` says what is missing."""


class Exported:
    """A stream of the lines inside a stream of records. `source_line` gives where a line was in the file."""

    def __init__(self, stream: Readable, kind: str) -> None:
        self.problem: str | None = None  # what was not read of the file
        self._rows = _READERS[kind](stream)
        self._ready = bytearray()
        self._given = 0  # lines
        self._starts = [1]  # lines of the output from which on the lines of the file are …
        self._places = [1]  # … these, one after another

    def read(self, size: int) -> bytes:
        """So many bytes of lines, fewer only at the end."""
        while len(self._ready) < size:
            try:
                row = next(self._rows, None)
            except _Cut as cut:
                self.problem = str(cut)
                break
            if row is None:
                break
            number, lines = row
            for line in lines:
                self._given += 1
                self._note(number)
                self._ready += line + b"\n"
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def source_line(self, line: int) -> int:
        """The number in the file of a line that was given."""
        at = bisect_right(self._starts, line) - 1
        return self._places[at] + max(line - self._starts[at], 0) if at >= 0 else line

    def _note(self, number: int) -> None:
        if self._places[-1] + self._given - self._starts[-1] != number:
            self._starts.append(self._given)
            self._places.append(number)


def recognise(head: bytes) -> str | None:
    """The kind of an exported log by its first bytes (64 kB are enough); None for any other file."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(_JOURNAL):
        return "journal"
    if (parts := partials.recognise(head)) is not None:
        return parts
    if _DOCKER.match(head):  # whose records are opened where they are read, also by several processes
        return None
    if head.startswith((b"{", b"[")) and _HOLDS.search(head) and not _is_line(head):
        return "document" if not _records(head) else "lines"
    if b'{"' in head and _HOLDS.search(head):
        rows = _head_lines(head)
        found = sum(_unpacked(row) is not None for row in rows)
        if found and found * _SHARE >= len(rows):
            return "lines"
    if _dialect(head) is not None:
        return "table"
    return "wrapped" if wrapping.recognise(head) is not None else None


def _is_line(head: bytes) -> bool:
    """Whether a whole object of JSON is on the first line and another on the next."""
    rows = _head_lines(head)[:2]
    return len(rows) == 2 and all(row.startswith(b"{") and row.rstrip().endswith(b"}") for row in rows)


def _records(head: bytes) -> bool:
    rows = _head_lines(head)
    return bool(rows) and _unpacked(rows[0]) is not None


def _head_lines(head: bytes) -> list[bytes]:
    whole = head if len(head) < (1 << 16) or b"\n" not in head else head[: head.rfind(b"\n")]
    return [row for row in whole.split(b"\n", _LINES)[:_LINES] if row.strip()]


def _unpacked(line: bytes) -> Record | None:
    """The record on a line, behind prefixes of launchers; None for any other line."""
    at = line.find(b'{"')
    at = line.find(b"{ ") if at < 0 else at
    if not 0 <= at < _FRONT or len(line) > LONGEST_PIECE or not line.rstrip().endswith(b"}"):
        return None
    try:
        row = json.loads(line[at:])
    except (ValueError, RecursionError):
        return None
    record = export_records.read(row) if isinstance(row, dict) else None
    if record is None or not at:
        return record
    left = prefixes.clean(line[:at].decode("utf-8", "replace"))
    if left.strip() and prefixes.split(left + "x")[1] != "x":
        return None
    return record._replace(lines=[left + text for text in record.lines])


def _of_lines(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number and lines of every line: those of the record on it, or the line itself."""
    for number, line in numbered(stream):
        yield number, _opened(line)


def _opened(line: bytes) -> list[bytes]:
    record = _unpacked(line) if b"{" in line else None
    return [line] if record is None else _encoded(record)


def _encoded(record: Record) -> list[bytes]:
    return [line.encode("utf-8", "replace") for line in record.lines]


def _raw(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """What cannot be read as the kind that its head promised, line by line."""
    for number, line in numbered(stream):
        yield number, [line]


def _oldest_first(rows: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
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
            raise _Cut(
                f"its newest lines come first, and older ones than line {row[0]:,} were not read; {budgets.reached('held')}"
            )
        ahead.append(row)
    yield from reversed(ahead)


def _of_document(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    largest = budgets.limit("held")
    data = read_head(stream, largest + 1)
    if len(data) > largest:
        yield from _raw(Joined(data, stream))
        raise _Cut(f"is a JSON document of more than {largest:,} bytes, read as plain text; {budgets.reached('held')}")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    rows = _oldest_first(_placed(_found(_values(text)), text))
    first = next(rows, None)
    if first is None:
        yield from _raw(io.BytesIO(data))
        return
    for number, record in itertools.chain([first], rows):
        yield number, _encoded(record)


def _values(text: str) -> Iterator[Any]:
    """The values of JSON in a text, one after another, up to the first that is broken."""
    decoder, at = json.JSONDecoder(), 0
    blank = re.compile(r"[\s,]*")
    while (match := blank.match(text, at)) is not None and match.end() < len(text):
        try:
            value, at = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            if text[match.end()] != "[":
                return
            at = match.end() + 1  # an array that was cut off
            continue
        yield value


def _found(values: Iterable[Any]) -> Iterator[tuple[dict[str, Any], Record]]:
    """The records in values of JSON, in their order."""
    waiting = [iter(values)]
    while waiting:
        value = next(waiting[-1], waiting)
        if value is waiting:
            waiting.pop()
        elif isinstance(value, list) and len(waiting) < 12:
            waiting.append(iter(value))
        elif isinstance(value, dict):
            record = export_records.read(value)
            if record is not None:
                yield value, record
            elif isinstance(value.get("values"), list):  # a stream of Loki: pairs of time and line
                waiting.append(iter(_of_stream(value)))
            elif len(waiting) < 12:
                waiting.append(iter(value.values()))


def _of_stream(value: dict[str, Any]) -> list[dict[str, Any]]:
    labels = value.get("stream")
    pairs = [pair for pair in value["values"] if isinstance(pair, list) and len(pair) >= 2]
    return [{"line": pair[1], "time": pair[0], "stream": labels} for pair in pairs]


def _placed(found: Iterable[tuple[dict[str, Any], Record]], text: str) -> Iterator[tuple[int, Record]]:
    """The records with the numbers of their lines: of the first words of each message behind the one before."""
    at = counted = 0
    number = 1
    for row, record in found:
        words = next((row[name] for name in MESSAGE if isinstance(row.get(name), str)), "")
        place = text.find(json.dumps(words, ensure_ascii=False)[:60].rstrip('"'), at) if words else -1
        if place >= 0:
            number += text.count("\n", counted, place)
            counted, at = place, place + 1
        yield number, record


def _of_journal(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """`journalctl -o export`: a field a line, a binary one as its name, its length in eight bytes and its bytes."""
    reader = buffered(stream)
    fields: dict[str, Any] = {}
    number = first = 1
    whole = True
    while line := reader.readline(LONGEST_PIECE):
        ended = line.endswith(b"\n")
        name, equals, value = line.removesuffix(b"\n").partition(b"=")
        begins, whole = whole, ended
        if not name and not equals and begins:
            if fields:
                yield from _of_fields(first, fields)
                fields = {}
        elif begins:
            first = first if fields else number
            if not equals:
                value, breaks, missing = _binary(reader)
                number += breaks
                if missing:
                    yield from _of_fields(first, fields)
                    raise _Cut(f"ends in the middle of a field: {missing:,} bytes are missing")
            if len(fields) < budgets.limit("columns"):
                fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        number += ended
    if fields:
        yield from _of_fields(first, fields)


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


def _of_fields(number: int, fields: dict[str, Any]) -> Iterator[tuple[int, list[bytes]]]:
    record = export_records.read(fields)
    if record is not None:
        yield number, _encoded(record)


def _dialect(head: bytes) -> str | None:
    """What separates the columns of a table of log lines; None for any other text."""
    first, _, rest = head.partition(b"\n")
    title = first.decode("utf-8", "replace").strip()
    if not rest.strip() or len(title) > 4000:
        return None
    for sign in ",\t;":
        names = [name.strip().strip('"') for name in title.split(sign)]
        known = _COLUMNS.intersection(map(str.lower, names))
        if len(names) < 2 or not known or not all(_WORD.fullmatch(name) for name in names):
            continue
        if known <= _UNSURE and not any(_TIME_COLUMN.fullmatch(name) for name in names):
            continue
        sample = next(csv.reader([rest.split(b"\n", 1)[0].decode("utf-8", "replace")], delimiter=sign), [])
        if len(sample) == len(names) or (len(sample) > 1 and '"' in rest[:4000].decode("utf-8", "replace")):
            return sign
    return None


def _of_table(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    head = read_head(stream, _HEAD)
    sign = _dialect(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    if sign is None:
        yield from _raw(Joined(head, stream))
        return
    table = _Table(Joined(head, stream), sign)
    for number, record in _oldest_first(table.records()):
        yield number, _encoded(record)
    if table.broken:
        rows = "row cannot" if table.broken == 1 else "rows cannot"
        raise _Cut(f"{table.broken:,} {rows} be read, the first on line {table.first_broken:,}: {table.reason}")


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
            elif (record := export_records.read(dict(zip(names, cells, strict=False)))) is not None:
                yield number, record

    def _lines(self, stream: Readable) -> Iterator[str]:
        for self._number, line in numbered(stream):
            text = line.decode("utf-8", "replace").replace("\x00", "") + "\n"
            text = text.removeprefix("\ufeff") if self._number == 1 else text
            if "\r" in text:  # also ends a row
                yield from io.StringIO(text, newline="")
            else:
                yield text


def _column(name: str) -> str:
    """The name of a column as the records of JSON call it."""
    name = name.strip().strip('"')
    low = name.lower().removeprefix("_source.").removeprefix("jsonpayload.")
    low = "message" if low in ("log.message", "log line", "textpayload") else low
    known = {one.lower(): one for one in ("_HOSTNAME", "podName", "MESSAGE")}
    if low != "message" and low in known:
        return known[low]
    return "timestamp" if _TIME_COLUMN.fullmatch(low) and "stamp" in low else low


_READERS = {
    "lines": _of_lines, "document": _of_document, "journal": _of_journal, "table": _of_table, "wrapped": wrapping.rows,
    "cri-parts": partials.cri_rows, "docker-parts": partials.docker_rows, "fork": partials.fork_rows,
}  # fmt: skip
