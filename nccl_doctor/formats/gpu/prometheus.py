"""Samples of GPUs that Prometheus collected: the text of an exporter, and the JSON that its API answers to a query.

Known names are those of NVIDIA's DCGM exporter and of nvidia_gpu_exporter.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

LARGEST = 256 << 20  # bytes of one answer of the API
_COLUMNS = {
    "DCGM_FI_DEV_GPU_UTIL": ("util", 1.0), "DCGM_FI_DEV_FB_USED": ("memory", 1.0), "DCGM_FI_DEV_FB_TOTAL": ("memory_total", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power", 1.0), "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("clock", 1.0), "DCGM_FI_DEV_GPU_TEMP": ("temperature", 1.0), "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("mask", 1.0), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("mask", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("counter:xid", 1.0), "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter:ecc-uncorrected", 1.0),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter:ecc-corrected", 1.0), "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("counter:remap-failed", 1.0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter:remapped-rows", 1.0),
    "nvidia_smi_utilization_gpu_ratio": ("util", 100.0), "nvidia_smi_memory_used_bytes": ("memory", 1 / (1 << 20)),
    "nvidia_smi_memory_total_bytes": ("memory_total", 1 / (1 << 20)), "nvidia_smi_power_draw_watts": ("power", 1.0),
    "nvidia_smi_enforced_power_limit_watts": ("power_limit", 1.0), "nvidia_smi_temperature_gpu": ("temperature", 1.0),
    "nvidia_smi_clocks_current_sm_clock_hz": ("clock", 1e-6),
}  # fmt: skip
"""Metric -> column, and the factor to its unit."""
_SAMPLE = re.compile(r"([A-Za-z_:]\w{0,120})\{(.{0,4000})\} (\S{1,40})(?: (\d{10,16}))?\s*$")
_LABEL = re.compile(r'(\w{1,80})="((?:[^"\\]|\\.){0,400})"')
_HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "exported_instance", "instance")
_BLOCK = 8 << 20
_ROWS = 20_000  # of a batch


class _Value(NamedTuple):
    gpu: Gpu
    time: float  # NaN where the text has none
    column: str
    value: float
    place: Place


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file.

    Source: dcgm-exporter 3 and 4 (`curl -s HOST:9400/metrics`), Prometheus `/api/v1/query_range`::

        DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-…",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node01"} 97
        {"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL",…},"values":[[…
    """
    parts: list[bytes] = []
    while sum(map(len, parts)) < LARGEST and (part := stream.read(_BLOCK)):
        parts.append(part)
    data = b"".join(parts)
    samples = Samples()
    note = f"is longer than {LARGEST >> 20} MiB; reading ended there" if stream.read(1) else None
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        found, number, note = _answer(data, note)
    else:
        found, number = _exposition(data)
    used = _add(samples, found)
    if samples.gpus:
        samples.write(facts, name, "dcgm")
    if samples.refused:
        note = f"names more than {Samples.MAX_GPUS:,} GPUs; the others were left out"
    return Reading(number, used, note)


def _exposition(data: bytes) -> tuple[list[_Value], int]:
    """The values of an exporter's text; several answers, one behind the other, are samples in that order."""
    found: list[_Value] = []
    seen: dict[tuple[object, str], int] = {}
    number = 0
    for number, line in lines(io.BytesIO(data)):
        match = _SAMPLE.match(line)
        known = _COLUMNS.get(match[1]) if match else None
        if match is None or known is None:
            continue
        gpu = _gpu(dict(_LABEL.findall(match[2])))
        value = _number(match[3])
        if gpu is None or value is None:
            continue
        column, factor = known
        turn = seen[gpu[:3], column] = seen.get((gpu[:3], column), -1) + 1
        time = int(match[4]) / 1000 if match[4] else float(turn)
        found.append(_Value(gpu, time, column, value * factor, (number, line[:600])))
    return found, number


def _answer(data: bytes, note: str | None) -> tuple[list[_Value], int, str | None]:
    """The values of an answer of the API: a matrix of a range, or a vector of one moment."""
    number = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        return [], number, note or f"is no complete JSON: {str(error)[:100]}"
    body = top.get("data") if isinstance(top, dict) else None
    series = body.get("result") if isinstance(body, dict) else None
    found: list[_Value] = []
    for one in series if isinstance(series, list) else []:
        metric = one.get("metric") if isinstance(one, dict) else None
        if not isinstance(metric, dict):
            continue
        known, gpu = _COLUMNS.get(str(metric.get("__name__"))), _gpu(metric)
        points = one.get("values") if isinstance(one.get("values"), list) else [one.get("value")]
        if known is None or gpu is None:
            continue
        place = 1, json.dumps(metric)[:600]
        found += [_Value(gpu, time, known[0], value * known[1], place) for time, value in _points(points)]
    return found, number, note


def _points(points: list[Any]) -> Iterator[tuple[float, float]]:
    for point in points:
        if isinstance(point, list) and len(point) == 2 and isinstance(point[0], int | float):
            value = _number(str(point[1]))
            if value is not None:
                yield float(point[0]), value


def _gpu(labels: dict[str, Any]) -> Gpu | None:
    """Who a series is of; None for one of a link, of an instance of MIG, or of no GPU."""
    number, uuid = str(labels.get("gpu", labels.get("index", ""))), labels.get("UUID", labels.get("uuid"))
    index = int(number) if number.isdecimal() and len(number) < 5 else None
    if labels.get("GPU_I_ID") or (index is None and not isinstance(uuid, str)):
        return None
    host = next((str(labels[key]) for key in _HOSTS if labels.get(key)), None)
    model = labels.get("modelName", labels.get("name"))
    return Gpu(
        host.rpartition(":")[0] if host and re.fullmatch(r"[^\[\]]+:\d{1,5}", host) else host,
        index,
        uuid if isinstance(uuid, str) else None,
        model if isinstance(model, str) else None,
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _add(samples: Samples, found: list[_Value]) -> int:
    """Join the values of each GPU and moment to a row, and take the rows in the order of time."""
    rows: dict[tuple[float, int], tuple[dict[str, float], Place]] = {}
    for one in found:
        key = one.gpu.host, one.gpu.number if one.gpu.number is not None else one.gpu.uuid
        slot = samples.slot(key, lambda gpu=one.gpu: gpu)  # type: ignore[misc]
        if slot >= 0:
            at = one.time, slot
            values, place = rows.get(at, ({}, one.place))
            values[one.column] = one.value
            rows[at] = values, one.place if one.column == "counter:xid" and one.value else place
    ordered = sorted(rows.items())
    for start in range(0, len(ordered), _ROWS):
        part = ordered[start : start + _ROWS]
        names = sorted({name for _, (values, _) in part for name in values})
        times = np.array([time for (time, _), _ in part])
        samples.add(
            Batch(
                np.array([slot for (_, slot), _ in part], np.int64),
                {name: np.array([values.get(name, np.nan) for _, (values, _) in part]) for name in names},
                times if times.max() > 1e8 else None,  # smaller numbers only count the answers
                lambda row, part=part: part[row][1][1],  # type: ignore[misc]
            )
        )
    return len(found)
