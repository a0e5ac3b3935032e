"""Metrics that NCCL's Inspector profiler plug-in writes for Prometheus, one file a GPU, or what node_exporter makes of them."""

import re
from functools import lru_cache

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl.collective_series import CollectiveSeries, Kind
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_METRIC = re.compile(
    r"nccl_(?:p2p_)?(?P<what>algorithm_bandwidth_gbs|bus_bandwidth_gbs|(?:collective_|p2p_)?exec_time_microseconds)"
    r"\{(?P<labels>.{10,2000})\} (?P<value>\S{1,40})"
)
_LABEL = re.compile(r'(\w{1,40})="([^"]{0,300})"')
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)([KMGT]?)B")
_FACTORS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_OPEN = 4096  # measurements of which not all three lines came yet


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the metrics of one rank or of several.

    Source: ext-profiler/inspector/inspector_prom.cc of NCCL 2.29 and newer, three lines a collective::

        nccl_bus_bandwidth_gbs{comm_id="0x7f",hostname="node01",rank="3",…,collective="AllReduce",coll_sn="9",message_size="64.00MB"} 182.1
        nccl_collective_exec_time_microseconds{comm_id="0x7f",hostname="node01",rank="3",…} 645
    """
    series = CollectiveSeries(facts, name)
    waiting: dict[str, dict[str, float]] = {}
    number = used = 0
    for number, line in lines(stream):
        match = _METRIC.match(line)
        value = _number(match["value"]) if match else None
        if match is None or value is None or (kind := _kind(match["labels"])) is None:
            continue
        used += 1
        found = waiting.setdefault(match["labels"], {})
        found[match["what"].rpartition("_")[2]] = value
        if match["what"].startswith("algorithm"):
            found["algorithm"] = found.pop("gbs")
        if {"algorithm", "gbs", "microseconds"} <= found.keys():
            del waiting[match["labels"]]
            series.add(kind, found["microseconds"], found["algorithm"], found["gbs"], number, line[:600])
        elif len(waiting) > _OPEN:
            waiting.clear()
    series.write()
    return Reading(number, used)


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?", text) else None


@lru_cache(maxsize=1 << 14)
def _kind(text: str) -> Kind | None:
    """What the labels say; None where they name no rank or no operation."""
    labels = dict(_LABEL.findall(text))
    rank, op = labels.get("rank", ""), labels.get("collective") or labels.get("p2p_operation") or labels.get("p2p")
    size = _SIZE.fullmatch(labels.get("message_size", ""))
    if not rank.isdecimal() or len(rank) > 7 or not op:
        return None
    return Kind(
        host=labels.get("hostname") or None, pid=None, comm=labels.get("comm_id", "")[:60], comm_name=None, rank=int(rank),
        nranks=_whole(labels.get("nranks")), nodes=_whole(labels.get("n_nodes")), op=op[:40],
        size=round(float(size[1]) * (1 << _FACTORS[size[2]])) if size else 0, timing=None,
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 8 else None
