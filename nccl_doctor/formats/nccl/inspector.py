"""JSON lines of NCCL's Inspector profiler plug-in (ext-profiler/inspector, NCCL 2.28 and newer), summed up a rank, kind and size."""

import json
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl.collective_series import CollectiveSeries, Kind
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lines of one process or of several.

    Source: ext-profiler/inspector/inspector.cc of NCCL 2.28 and newer, one object a line::

        {"header": {"id": "0x7f", "rank": 3, "n_ranks": 8, "nnodes": 1}, "metadata": {"pid": 4242, "hostname": "node01"},
         "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 33554432, "coll_exec_time_us": 412, "coll_busbw_gbs": 142.1}}
    """
    series = CollectiveSeries(facts, name)
    number = used = 0
    note = None
    for number, line in lines(stream):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            note = f"line {number} is not JSON"
            continue
        found = _measured(record)
        if found is not None:
            used += 1
            series.add(*found, number, line)
    series.write()
    if note is not None and note.startswith(f"line {number} "):
        note = f"ends in the middle of line {number}"
    return Reading(number, used, note)


def _measured(record: Any) -> tuple[Kind, float, float | None, float | None] | None:
    """What a record measured, with its time and bandwidths; point-to-point transfers have keys of their own."""
    if not isinstance(record, dict):
        return None
    header, metadata = _dict(record.get("header")), _dict(record.get("metadata"))
    word = "coll" if "coll_perf" in record else "p2p"
    perf = _dict(record.get(f"{word}_perf"))
    time, rank = perf.get(f"{word}_exec_time_us"), header.get("rank")
    if not isinstance(time, (int, float)) or not isinstance(rank, int):
        return None
    kind = Kind(
        host=_text(metadata.get("hostname")), pid=_whole(metadata.get("pid")), comm=str(header.get("id"))[:60],
        comm_name=_text(header.get("comm_name")), rank=rank, nranks=_whole(header.get("n_ranks")),
        nodes=_whole(header.get("nnodes")), op=str(perf.get(word))[:40],
        size=_whole(perf.get(f"{word}_msg_size_bytes")) or 0, timing=_text(perf.get(f"{word}_timing_source")),
    )  # fmt: skip
    rates = (perf.get(f"{word}_{rate}_gbs") for rate in ("algobw", "busbw"))
    algbw, busbw = (float(rate) if isinstance(rate, (int, float)) else None for rate in rates)
    return kind, float(time), algbw, busbw


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None
