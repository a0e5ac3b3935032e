"""Logs that a log service or a JSON logger wrote: recognised by their head, and read as the lines of the job behind them.

JSON with a record a line is read as it comes, also between lines of text. A document of JSON, a CSV table and the journal's export
form are read whole, because log services often put the newest line first.
"""

import csv
import io
import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.inputs import export_records, partials, prefixes, wrapping
from nccl_doctor.inputs.export_records import MESSAGE, Record
from nccl_doctor.inputs.streams import Readable

LARGEST = 256 << 20  # bytes of a document or table that is read whole
LONGEST = 1 << 21  # bytes of a line that is looked into
_BLOCK = 1 << 18
_SHARE = 20  # one line in so many must be a record
_LINES = 400  # of the head that tell
_FRONT = 300  # characters in which a record of a line begins
_JOURNAL = b"__CURSOR="
_KEY = "|".join(MESSAGE)
_HOLDS = re.compile(rf'"(?:{_KEY})"\s*:\s*(?:"|\[|\{{)|"values"\s*:\s*\[\s*\[\s*"\d{{10,19}}"'.encode())
_DOCKER = re.compile(rb'\{"log":"(?!\{)(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')
_COLUMNS = frozenset(
    name.lower() for name in (*MESSAGE, "_source.message", "jsonPayload.message", "log.message", "log line")
)
_UNSURE = frozenset(("event", "body", "content", "text", "log", "line"))  # such a column needs one of times beside it
_TIME_COLUMN = re.compile(r"@?_?(?:time|date|timestamp|ts)\w*|.*\.timestamp", re.IGNORECASE)
_WORD = re.compile(r"[@\w][\w .@/-]{0,60}")


class Exported:
    """A stream of the lines inside a stream of records. `source_line` gives where a line was in the file."""

    def __init__(self, stream: Readable, kind: str) -> None:
        self._rows = _READERS[kind](stream)
        self._ready = bytearray()
        self._given = 0  # lines
        self._starts = [1]  # lines of the output from which on the lines of the file are …
        self._places = [1]  # … these, one after another

    def read(self, size: int) -> bytes:
        """So many bytes of lines, fewer only at the end."""
        while len(self._ready) < size:
            row = next(self._rows, None)
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
    if not 0 <= at < _FRONT or len(line) > LONGEST or not line.rstrip().endswith(b"}"):
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
    number, rest = 0, b""
    while block := stream.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) > LONGEST:
            whole, rest = [*whole, rest], b""
        for line in whole:
            number += 1
            yield number, _opened(line)
    if rest:
        yield number + 1, _opened(rest)


def _opened(line: bytes) -> list[bytes]:
    record = _unpacked(line) if b"{" in line else None
    return [line] if record is None else _encoded(record)


def _encoded(record: Record) -> list[bytes]:
    return [line.encode("utf-8", "replace") for line in record.lines]


def _whole(stream: Readable) -> tuple[bytes, bool]:
    """The bytes of a stream, and whether these are all."""
    data = bytearray()
    while len(data) <= LARGEST and (block := stream.read(_BLOCK)):
        data += block
    return bytes(data), len(data) <= LARGEST


def _raw(data: bytes, stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """What cannot be read as the kind that its head promised, line by line."""
    number, rest = 0, data
    while True:
        *whole, rest = rest.split(b"\n")
        for line in whole:
            number += 1
            yield number, [line]
        block = stream.read(_BLOCK)
        if not block:
            break
        rest += block
    if rest:
        yield number + 1, [rest]


def _oldest_first(rows: list[tuple[int, Record]]) -> Iterable[tuple[int, Record]]:
    """The records in the order of their times where the file has the newest first."""
    stamps = [record.stamp for _, record in rows if record.stamp is not None]
    falling = sum(a > b for a, b in itertools.pairwise(stamps))
    rising = sum(a < b for a, b in itertools.pairwise(stamps))
    return reversed(rows) if falling > 3 * rising else rows


def _of_document(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    data, complete = _whole(stream)
    rows: list[tuple[int, Record]] = []
    if complete:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        rows = list(_placed(_found(_values(text)), text))
    if not rows:
        yield from _raw(data, stream)
        return
    for number, record in _oldest_first(rows):
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
    data, complete = _whole(stream)
    if not complete:
        yield from _raw(data, stream)
        return
    fields: dict[str, Any] = {}
    at, number, first = 0, 1, 1
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        name, equals, value = data[at:end].partition(b"=")
        if not name and fields:
            yield from _of_fields(first, fields)
            fields = {}
        elif not equals and name:
            size = int.from_bytes(data[end + 1 : end + 9], "little")
            value = data[end + 9 : end + 9 + size]
            number += data.count(b"\n", end, end + 9 + size)
            end = min(end + 9 + size, len(data))
        if name:
            first = first if fields else number
            fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at, number = end + 1, number + 1
    if fields:
        yield from _of_fields(first, fields)


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
    data, complete = _whole(stream)
    sign = _dialect(data[: 1 << 16].removeprefix(b"\xef\xbb\xbf").lstrip()) if complete else None
    if sign is None:
        yield from _raw(data, stream)
        return
    csv.field_size_limit(LARGEST)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\x00", "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
    rows: list[tuple[int, Record]] = []
    names: list[str] = []
    try:
        number = 1
        for cells in reader:
            if not names:
                names = [_column(name) for name in cells]
            elif (record := export_records.read(dict(zip(names, cells, strict=False)))) is not None:
                rows.append((number, record))
            number = reader.line_num + 1
    except csv.Error:
        pass  # the rows before it are read
    for number, record in _oldest_first(rows):
        yield number, _encoded(record)


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
