"""JSON lines of NCCL's Inspector profiler plug-in (ext-profiler/inspector, NCCL 2.28 and newer), summed up a rank, kind and size."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.nccl.collective_series import CollectiveSeries, Kind
from nccl_doctor.inputs.json_items import LineObjects
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, line_lists, read_head

_TOGETHER = 256  # lines that are decoded at once
_NO_JSON = object()
_FIRST_LINE = 1 << 14  # bytes of a file within which its first line ends


def _keys(word: str) -> tuple[str, ...]:
    return (
        f"{word}_perf", word, f"{word}_exec_time_us", f"{word}_msg_size_bytes", f"{word}_timing_source",
        f"{word}_algobw_gbs", f"{word}_busbw_gbs",
    )  # fmt: skip


_COLL, _P2P = _keys("coll"), _keys("p2p")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lines of one process or of several.

    Source: ext-profiler/inspector/inspector.cc of NCCL 2.28 and newer, one object a line::

        {"header": {"id": "0x7f", "rank": 3, "n_ranks": 8, "nnodes": 1}, "metadata": {"pid": 4242, "hostname": "node01"},
         "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 33554432, "coll_exec_time_us": 412, "coll_busbw_gbs": 142.1}}
    """
    series = CollectiveSeries(facts, name)
    head = read_head(stream, _FIRST_LINE)
    stream = Joined(head, stream)
    if not head.lstrip().partition(b"\n")[0].rstrip().endswith(b"}") and b"\n" in head.strip():
        return _of_objects(LineObjects(stream), series)
    number = used = 0
    note = None
    for first, texts in line_lists(stream):
        number = first + len(texts) - 1
        for at, line, record in _records(first, texts):
            if record is _NO_JSON:
                note = f"line {at} is not JSON"
            elif (found := _measured(record)) is not None:
                used += 1
                series.add(*found, at, line)
    series.write()
    if note is not None and note.startswith(f"line {number} "):
        note = f"ends in the middle of line {number}"
    return Reading(number, used, note)


def _of_objects(objects: LineObjects, series: CollectiveSeries) -> Reading:
    """Read objects that stand in several lines each, as `jq` prints them."""
    used = 0
    for number, text, record in objects:
        if (found := _measured(record)) is not None:
            used += 1
            series.add(*found, number, text)
    series.write()
    note = f"ends in the middle of the object in line {objects.torn}" if objects.torn is not None else None
    return Reading(objects.lines, used, note)


def _records(first: int, texts: list[str]) -> Iterator[tuple[int, str, Any]]:
    """The lines that are not empty, with their numbers and what they hold."""
    for start in range(0, len(texts), _TOGETHER):
        part = texts[start : start + _TOGETHER]
        records: list[Any] = []
        if all(map(_is_object, part)):
            with suppress(ValueError, RecursionError):
                records = json.loads(f"[{','.join(part)}]")
        if len(records) == len(part):
            yield from zip(count(first + start), part, records)
        else:
            yield from (
                (number, line, _loaded(line)) for number, line in enumerate(part, first + start) if line.strip()
            )


def _is_object(line: str) -> bool:
    return line[:1] == "{" and line[-1:] == "}"


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return _NO_JSON


def _measured(record: Any) -> tuple[Kind, float, float | None, float | None] | None:
    """What a record measured, with its time and bandwidths; point-to-point transfers have keys of their own."""
    if not isinstance(record, dict):
        return None
    header, metadata = _dict(record.get("header")), _dict(record.get("metadata"))
    perf_key, op_key, time_key, size_key, timing_key, algbw_key, busbw_key = _COLL if "coll_perf" in record else _P2P
    perf = _dict(record.get(perf_key))
    time, rank = perf.get(time_key), header.get("rank")
    if (took := finite(time)) is None or not isinstance(rank, int):
        return None
    values = (
        metadata.get("hostname"), metadata.get("pid"), header.get("id"), header.get("comm_name"), rank,
        header.get("n_ranks"), header.get("nnodes"), perf.get(op_key), perf.get(size_key), perf.get(timing_key),
    )  # fmt: skip
    try:
        kind = _kind(*values)
    except TypeError:  # a list or an object
        kind = _kind.__wrapped__(*values)
    algbw, busbw = perf.get(algbw_key), perf.get(busbw_key)
    return (
        kind,
        took,
        finite(algbw),
        finite(busbw),
    )


@lru_cache(maxsize=4096, typed=True)
def _kind(
    host: Any, pid: Any, comm: Any, comm_name: Any, rank: int, nranks: Any, nodes: Any, op: Any, size: Any, timing: Any
) -> Kind:
    return Kind(
        host=_text(host), pid=_whole(pid), comm=str(comm)[:60], comm_name=_text(comm_name), rank=rank, nranks=_whole(nranks),
        nodes=_whole(nodes), op=str(op)[:40], size=_whole(size) or 0, timing=_text(timing),
    )  # fmt: skip


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None
