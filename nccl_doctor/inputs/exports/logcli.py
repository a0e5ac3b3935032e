"""What `logcli query` of Grafana Loki prints: time, labels and line, the newest first unless it was told `--forward`.

Labels that all lines share are printed once before them, to standard error; a line break in an entry stays one::

    Common labels: {app="train", namespace="ml"}
    2026-05-07T12:00:01Z {pod="train-worker-0"} node01:101:140 [0] NCCL INFO Using network IB
    2026-05-07T12:00:00Z {}                     step 1
"""

import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.exports import records
from nccl_doctor.inputs.exports.records import Record
from nccl_doctor.inputs.exports.rows import encoded, oldest_first
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import numbered

_LABEL = r'[A-Za-z_][A-Za-z0-9_]{0,100}="(?:[^"\\]|\\.){0,1000}"'
_ENTRY = compiled(
    rf"(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{{1,9}})?(?:Z|[+-]\d\d:\d\d)) \{{((?:{_LABEL}(?:, )?){{0,60}})\}} +(.*)",
    re.DOTALL,
)
_PAIR = compiled(r'([A-Za-z_][A-Za-z0-9_]{0,100})="((?:[^"\\]|\\.){0,1000})"')
_COMMON = "Common labels: {"
_DATED = compiled(rb"\d{4}-\d\d-\d\dT")
_LINES = 100  # of the head that tell
_LONGEST = 100_000  # characters of an entry of several lines


def recognise(head: bytes) -> bool:
    """Whether the first dated line has labels, and most others have."""
    rows = [row for row in head.split(b"\n", _LINES)[:_LINES] if _DATED.match(row)]
    with_labels = [_ENTRY.match(row.decode("utf-8", "replace")) is not None for row in rows]
    return bool(rows) and with_labels[0] and 2 * sum(with_labels) >= len(rows)


def logcli_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number and lines of every entry, oldest first."""
    for number, record in oldest_first(_records(stream)):
        yield number, encoded(record)


def _records(stream: Readable) -> Iterator[tuple[int, Record]]:
    common: dict[str, str] = {}
    begun: tuple[int, str, dict[str, str], str] | None = None  # number, time, labels, text
    for number, line in numbered(stream):
        text = line.decode("utf-8", "replace")
        entry = _ENTRY.match(text)
        if entry is None and begun is not None and len(begun[3]) < _LONGEST:
            begun = (*begun[:3], f"{begun[3]}\n{text}")
            continue
        if begun is not None:
            yield from _record(*begun)
        begun = None
        if entry is not None:
            begun = number, entry[1], common | dict(_PAIR.findall(entry[2])), entry[3]
        elif text.startswith(_COMMON):
            common = dict(_PAIR.findall(text))
        elif text.strip():
            yield number, Record(None, [text])
    if begun is not None:
        yield from _record(*begun)


def _record(number: int, time: str, labels: dict[str, str], text: str) -> Iterator[tuple[int, Record]]:
    record = records.read({"line": text, "time": time, "stream": labels})
    if record is not None:
        yield number, record
