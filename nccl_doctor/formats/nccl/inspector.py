"""JSON lines of NCCL's Inspector profiler plug-in (ext-profiler/inspector, NCCL 2.28 and newer), summed up a rank, kind and size."""

import json
import statistics
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import InspectorColl
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_KEPT = 2000  # values of one series that a median is taken of; then every second one is dropped
_SERIES = 20_000


class _Key(NamedTuple):
    host: str | None
    pid: int | None
    comm: str
    comm_name: str | None
    rank: int
    nranks: int | None
    nodes: int | None
    op: str
    size: int


class _Series:
    """Times and bandwidths of one kind of collective, thinned out evenly when there are many."""

    def __init__(self, ref: int) -> None:
        self.ref = ref
        self.n = 0
        self.highest = 0.0
        self.lowest: float | None = None
        self.times: list[float] = []
        self.rates: list[float] = []
        self._step = 1

    def add(self, time: float, rate: float | None) -> None:
        self.highest = max(self.highest, time)
        if rate is not None:
            self.lowest = rate if self.lowest is None else min(self.lowest, rate)
        if self.n % self._step == 0:
            self.times.append(time)
            if rate is not None:
                self.rates.append(rate)
            if len(self.times) > _KEPT:
                self.times, self.rates, self._step = self.times[::2], self.rates[::2], self._step * 2
        self.n += 1


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lines of one process or of several.

    Source: ext-profiler/inspector/inspector.cc of NCCL 2.28 and newer, one object a line::

        {"header": {"id": "0x7f", "rank": 3, "n_ranks": 8, "nnodes": 1}, "metadata": {"pid": 4242, "hostname": "node01"},
         "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 33554432, "coll_exec_time_us": 412, "coll_busbw_gbs": 142.1}}
    """
    series: dict[_Key, _Series] = {}
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
        found = _key(record)
        if found is None:
            continue
        key, time, rate = found
        used += 1
        known = series.get(key)
        if known is None and len(series) < _SERIES:
            known = series[key] = _Series(facts.evidence(name, number, line))
        if known is not None:
            known.add(time, rate)
    facts.add(
        InspectorColl(
            *key, one.n, statistics.median(one.times), one.highest, statistics.median(one.rates) if one.rates else None,
            one.lowest, one.ref,
        )
        for key, one in series.items()
    )  # fmt: skip
    facts.mark_covered("inspector_coll")
    if note is not None and note.startswith(f"line {number} "):
        note = f"ends in the middle of line {number}"
    return Reading(number, used, note)


def _key(record: Any) -> tuple[_Key, float, float | None] | None:
    if not isinstance(record, dict):
        return None
    header, metadata, perf = (_dict(record.get(key)) for key in ("header", "metadata", "coll_perf"))
    time, rank = perf.get("coll_exec_time_us"), header.get("rank")
    if not isinstance(time, (int, float)) or not isinstance(rank, int):
        return None
    rate = perf.get("coll_busbw_gbs")
    key = _Key(
        _text(metadata.get("hostname")), _whole(metadata.get("pid")), str(header.get("id"))[:60], _text(header.get("comm_name")),
        rank, _whole(header.get("n_ranks")), _whole(header.get("nnodes")), str(perf.get("coll"))[:40],
        _whole(perf.get("coll_msg_size_bytes")) or 0,
    )  # fmt: skip
    return key, float(time), float(rate) if isinstance(rate, (int, float)) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None
