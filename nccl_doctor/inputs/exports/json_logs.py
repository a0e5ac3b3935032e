"""Logs of JSON: a record a line, also between lines of text, or a document, which is held up to the budget `held`."""

import io
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_doctor.common import budgets
from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.exports import records
from nccl_doctor.inputs.exports.records import MESSAGE, Record
from nccl_doctor.inputs.exports.rows import Cut, encoded, oldest_first, raw
from nccl_doctor.inputs.exports.split_records import SplitRecords, is_piece
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import LONGEST_PIECE, Joined, numbered, read_head

_SHARE = 20  # one line in so many must be a record
_LINES = 400  # of the head that tell
_FRONT = 300  # characters in which a record of a line begins
_KEY = "|".join(MESSAGE)
_HOLDS = compiled(
    rf'"(?:{_KEY})"\s*:\s*(?:"|\[|\{{)|"values"\s*:\s*\[\s*\[\s*"\d{{10,19}}"|"kind"\s*:\s*"Pod"'.encode()
)

_BETWEEN = compiled(r"[\s,]*")
_TEXT = compiled(
    r"[ \t]{0,80}\r?\n\s{0,400}(?:[A-Za-z=#|+*(<]|\[(?:[A-Za-z]|20\d\d[-/]))"
)  # what a value of JSON does not begin with


def recognise(head: bytes) -> str | None:
    """`lines` or `document`; None for any other text."""
    if head.startswith((b"{", b"[")) and _HOLDS.search(head) and not _is_line(head):
        return "document" if not _records(head) else "lines"
    if b'{"' in head and _HOLDS.search(head):
        rows = _head_lines(head)
        found = sum(_unpacked(row) is not None for row in rows)
        if found and found * _SHARE >= len(rows):
            return "lines"
    return None


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


def _unpacked(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """The prefixes of launchers on a line and the record behind them; None for any other line."""
    found = _parsed(line)
    return found if found is not None and _is_record(found[1]) else None


def _parsed(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """The prefixes of launchers on a line and the object behind them; None for any other line."""
    at = line.find(b'{"')
    at = line.find(b"{ ") if at < 0 else at
    if not 0 <= at < _FRONT or len(line) > LONGEST_PIECE or not line.rstrip().endswith(b"}"):
        return None
    try:
        row = json.loads(line[at:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    left = prefixes.clean(line[:at].decode("utf-8", "replace")) if at else ""
    if left.strip() and prefixes.split(left + "x")[1] != "x":
        return None
    return left, row


def _is_record(row: dict[str, Any]) -> bool:
    return records.is_record(row) or _is_null(row)


def _is_null(row: dict[str, Any]) -> bool:
    """Whether the journal left the message of a record out because of its size."""
    return row.get("MESSAGE", "") is None and "__REALTIME_TIMESTAMP" in row


def _left_out(messages: int) -> Cut:
    """What a journal without messages says of itself."""
    many = "1 message is" if messages == 1 else f"{messages:,} messages are"
    return Cut(f"{many} too long for it and null: export again with `journalctl --all -o json`")


def line_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number and lines of every line: those of the record on it, or the line itself."""
    split, nulls = SplitRecords(), 0
    for number, line in numbered(stream):
        parsed = _parsed(line) if b"{" in line else None
        if parsed is None:
            yield number, [line]
            continue
        left, row = parsed
        if not is_piece(row):
            nulls += _is_null(row)
            lines = _lines(row, left)
            if lines or not _is_null(row):
                yield number, lines or [line]
        elif not _is_record(row):
            yield number, [line]
        else:
            nulls += _is_null(row)
            for first, whole in split.add(number, row):
                yield from _written(first, whole, left)
    for first, whole in split.rest():
        yield from _written(first, whole, "")
    if nulls:
        raise _left_out(nulls)


def _written(number: int, row: dict[str, Any], left: str) -> Iterator[tuple[int, list[bytes]]]:
    lines = _lines(row, left)
    if lines:
        yield number, lines


def _lines(row: dict[str, Any], left: str) -> list[bytes]:
    """The lines of a record behind prefixes; none for an object that is no record of a log."""
    record = records.read(row)
    if record is None:
        return []
    return encoded(record._replace(lines=[left + text for text in record.lines]) if left else record)


def document_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    largest = budgets.limit("held")
    data = read_head(stream, largest + 1)
    if len(data) > largest:
        yield from raw(Joined(data, stream))
        raise Cut(f"is a JSON document of more than {largest:,} bytes, read as plain text; {budgets.reached('held')}")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    found, values = _Found(), _Values(text)
    rows = oldest_first(_placed(found.records(values), text))
    begun = list(itertools.islice(rows, 2))
    if not begun or (len(begun) == 1 and not found.nulls and _is_remark(begun[0][1], text)):
        yield from raw(io.BytesIO(data))
        return
    for number, record in itertools.chain(begun, rows):
        yield number, encoded(record)
    if _TEXT.match(text, values.end):
        above = text.count("\n", 0, values.end)
        for number, line in numbered(io.BytesIO(text[values.end :].encode())):
            yield above + number, [line]
    if found.nulls:
        raise _left_out(found.nulls)


def _is_remark(record: Record, text: str) -> bool:
    """Whether the one message of a document is a remark among results: without a time, one line, less than a twentieth of the text."""
    return record.when is None and len(record.lines) == 1 and len(record.lines[0]) * _SHARE < len(text)


class _Values:
    """The values of JSON in a text, one after another, up to the first that is broken or to text; `end` is where the last one ends."""

    def __init__(self, text: str) -> None:
        self.end = 0
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        decoder, at, text = json.JSONDecoder(), 0, self._text
        while (match := _BETWEEN.match(text, at)) is not None and match.end() < len(text):
            try:
                value, at = decoder.raw_decode(text, match.end())
            except (ValueError, RecursionError):
                if text[match.end()] != "[":
                    return
                at = match.end() + 1  # an array that was cut off
                continue
            self.end = at
            yield value


class _Found:
    """Finds the records in values of JSON."""

    def __init__(self) -> None:
        self.nulls = 0  # messages that the journal left out
        self._split = SplitRecords()

    def records(self, values: Iterable[Any]) -> Iterator[tuple[dict[str, Any], Record]]:
        """The records, in their order."""
        for row in itertools.chain(self._rows(values), (row for _, row in self._split.rest())):
            record = records.read(row)
            if record is not None:
                yield row, record

    def _rows(self, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
        waiting = [iter(values)]
        while waiting:
            value = next(waiting[-1], waiting)
            if value is waiting:
                waiting.pop()
            elif isinstance(value, list) and len(waiting) < 12:
                waiting.append(iter(value))
            elif isinstance(value, dict):
                self.nulls += _is_null(value)
                if records.is_record(value):
                    yield from (row for _, row in self._split.add(0, value))
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
