"""Logs of containers in which the runtime split long lines, and logs of NCCL's forks: read as the lines that the job wrote.

A runtime that follows Kubernetes' CRI marks a part by `P` and the last one by `F`; the json-file driver of Docker leaves out the
line end. Both split at 16 KiB, so that bars of tqdm, which end with a carriage return, tear the record behind them::

    2026-05-07T12:00:00.000000000Z stdout P 10%|###  | 1/10\\rnode01:101:140 [0] NCCL WA
    2026-05-07T12:00:00.000000001Z stdout F RN Call to ibv_modify_qp failed

A fork of NCCL writes the lines of NCCL with its own name before the level: `node01:101:140 [0] MCCL INFO Using network IB`.
"""

import json
import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes, text_lines
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 18
_LONGEST = text_lines.LONGEST_PIECE  # bytes of a joined line
_CRI = compiled(rb"(\d{4}-\d\d-\d\dT\S{8,40} (stdout|stderr) )([FP])(?::\S{1,40})? (.*)", re.DOTALL)
_CRI_PART = compiled(rb"^\d{4}-\d\d-\d\dT\S{8,40} (?:stdout|stderr) P ", re.MULTILINE)
_DOCKER = compiled(rb'\{"log":"(?:[^"\\]|\\.)*","(?:stream|time|attrs)":')
_DOCKER_PART = compiled(rb'^\{"log":"(?:[^"\\]|\\.){0,100000}(?<!\\n)","(?:stream|time|attrs)":[^\n]*\n', re.MULTILINE)
_FORK = compiled(
    rb"(:\d{1,10}:\d{1,10} \[-?\d{1,10}\] (?:[\w./-]{1,200}:\d{1,6} (?:\(\w{1,100}\) )?)?)(?!NCCL )[A-Z]{1,6}CCL(?= (?:INFO|WARN) )"
)
_CRI_CUT = compiled(rb" (?:stdout|stderr) P ")
_DOCKER_CUT = compiled(rb'(?<!\\n)","(?:stream|time|attrs)":"')
_OVERLAP = 64  # bytes of a block that are looked at again with the next one
_FORKED = 3  # lines that make a log that of a fork


def recognise(head: bytes) -> str | None:
    """The kind of such a log by its first bytes; None for any other."""
    if b'{"log":"' in head[:8] and _DOCKER_PART.search(head):
        return "docker-parts"
    if b" P " in head and _CRI_PART.search(head):
        return "cri-parts"
    if b"CCL INFO " in head and head.count(b"] NCCL INFO ") < len(_FORK.findall(head)) >= _FORKED:
        return "fork"
    return None


def recognise_later(head: bytes, stream: Readable) -> str | None:
    """The kind of a container's log of which only a line behind its first bytes was split; None for any other. Reads the stream."""
    if head.startswith(b'{"log":"') and _DOCKER.match(head):
        kind, marks = "docker-parts", _DOCKER_CUT
    elif _CRI.match(head):
        kind, marks = "cri-parts", _CRI_CUT
    else:
        return None
    rest = b""
    while block := stream.read(_BLOCK):
        if marks.search(rest + block):
            return kind
        rest = block[-_OVERLAP:]
    return None


def cri_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number of the first part and text of every line of a CRI log."""
    waiting: dict[bytes, tuple[int, bytearray]] = {}  # stream -> number of the first part, line so far
    for number, line in text_lines.numbered(stream):
        match = _CRI.match(line)
        if match is None:
            yield number, [line]
            continue
        before, of, mark, text = match.groups()
        first, begun = waiting.pop(of, (number, bytearray(before + b"F ")))
        begun += text
        if mark == b"P" and len(begun) < _LONGEST:
            waiting[of] = first, begun
        else:
            yield first, [bytes(begun)]
    for first, begun in sorted(waiting.values()):
        yield first, [bytes(begun)]


def docker_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number of the first part and record of every line that Docker's json-file driver kept."""
    waiting: dict[str | None, tuple[int, str, str | None]] = {}  # stream -> number, text so far, time of the first part
    for number, line in text_lines.numbered(stream):
        record = _record(line)
        if record is None:
            yield number, [line]
            continue
        of = record.get("stream")
        first, begun, time = waiting.pop(of, (number, "", record.get("time")))
        begun += record["log"]
        if not begun.endswith("\n") and len(begun) < _LONGEST:
            waiting[of] = first, begun, time
        else:
            yield first, [_written(begun, of, time)]
    for of, (first, begun, time) in sorted(waiting.items(), key=lambda entry: entry[1][0]):
        yield first, [_written(begun, of, time)]


def opened_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number and text of every line that Docker's json-file driver kept, behind its time."""
    for number, line in text_lines.numbered(stream):
        yield number, [prefixes.opened(line.decode("utf-8", "replace")).encode("utf-8", "replace")]


def _record(line: bytes) -> dict[str, str] | None:
    if not _DOCKER.match(line):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("log"), str) else None


def _written(text: str, of: str | None, time: str | None) -> bytes:
    return json.dumps({"log": text, "stream": of, "time": time}, separators=(",", ":")).encode()


def fork_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Every line, with the name of a fork replaced by that of NCCL."""
    for number, line in text_lines.numbered(stream):
        yield number, [_FORK.sub(rb"\1NCCL", line)]
