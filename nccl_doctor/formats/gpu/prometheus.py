"""Samples of GPUs that Prometheus collected: the text of an exporter, and the JSON that its API answers to a query.

Known names are those of NVIDIA's DCGM exporter and of nvidia_gpu_exporter.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.collected.value_rows import ValueRows
from nccl_doctor.formats.gpu.exporter_events import Event, EventRows, event_of
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Gpu
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, lines, read_head

LARGEST = 256 << 20  # bytes of one answer of the API
COLUMNS = {
    "DCGM_FI_DEV_GPU_UTIL": ("util", 1.0), "DCGM_FI_DEV_FB_USED": ("memory", 1.0), "DCGM_FI_DEV_FB_TOTAL": ("memory_total", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power", 1.0), "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("clock", 1.0), "DCGM_FI_DEV_GPU_TEMP": ("temperature", 1.0), "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("mask", 1.0), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("mask", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("counter:xid", 1.0), "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter:ecc-uncorrected", 1.0),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter:ecc-corrected", 1.0), "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("counter:remap-failed", 1.0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter:remapped-rows", 1.0),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("counter:remap-pending", 1.0),
    "DCGM_FI_DEV_RETIRED_DBE": ("counter:retired-pages", 1.0), "DCGM_FI_DEV_RETIRED_PENDING": ("counter:retired-pending", 1.0),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("counter:thermal-violation", 1.0), "DCGM_FI_DEV_POWER_VIOLATION": ("counter:power-violation", 1.0),
    "nvidia_smi_utilization_gpu_ratio": ("util", 100.0), "nvidia_smi_memory_used_bytes": ("memory", 1 / (1 << 20)),
    "nvidia_smi_memory_total_bytes": ("memory_total", 1 / (1 << 20)), "nvidia_smi_power_draw_watts": ("power", 1.0),
    "nvidia_smi_enforced_power_limit_watts": ("power_limit", 1.0), "nvidia_smi_temperature_gpu": ("temperature", 1.0),
    "nvidia_smi_clocks_current_sm_clock_hz": ("clock", 1e-6),
}  # fmt: skip
"""Metric -> column, and the factor to its unit."""
_NAMES = ("DCGM_", "nvidia_smi_", "dcgm_")
_OLD_NAMES = {
    "dcgm_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL", "dcgm_fb_used": "DCGM_FI_DEV_FB_USED", "dcgm_power_usage": "DCGM_FI_DEV_POWER_USAGE",
    "dcgm_sm_clock": "DCGM_FI_DEV_SM_CLOCK", "dcgm_gpu_temp": "DCGM_FI_DEV_GPU_TEMP", "dcgm_xid_errors": "DCGM_FI_DEV_XID_ERRORS",
    "dcgm_ecc_dbe_volatile_total": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "dcgm_ecc_sbe_volatile_total": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "dcgm_thermal_violation": "DCGM_FI_DEV_THERMAL_VIOLATION", "dcgm_power_violation": "DCGM_FI_DEV_POWER_VIOLATION",
    "dcgm_retired_pages_dbe": "DCGM_FI_DEV_RETIRED_DBE", "dcgm_retired_pages_pending": "DCGM_FI_DEV_RETIRED_PENDING",
}  # fmt: skip
"""Metrics of dcgm-exporter 1, of gpu-monitoring-tools, and what they are called since."""
_INFO = "nvidia_smi_gpu_info"  # index, name and UUID of a GPU; nvidia_gpu_exporter's other metrics have the UUID alone
_SAMPLE = re.compile(r"([A-Za-z_:]\w{0,120})\{(.{0,4000})\Z")
EXPORTED = compiled(
    rb'\A(?:\xef\xbb\xbf)?\s{0,20}\{\s{0,4}"metric"\s{0,4}:\s{0,4}\{[^{}]{0,3000}\}\s{0,4},\s{0,4}"(?:values|timestamps)"\s{0,4}:'
)
_VALUE = re.compile(r"(\S{1,40})(?: (\d{10,16}))?\s*")
LABEL = re.compile(r'(\w{1,80})="((?:[^"\\]|\\.){0,400})"')
HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "exported_instance", "instance")
_BLOCK = 8 << 20
_SERIES = 50_000  # whose labels are remembered


class _Series(NamedTuple):
    """What a name and its labels are."""

    slot: int
    column: str
    factor: float
    turns: Iterator[int]  # of the values of this column that come without a time
    event: Event | None = None
    gpu: Gpu | None = None  # of an event that is no column


class _Rows(ValueRows):
    """Values of columns, and the events that newer exporters count."""

    def __init__(self) -> None:
        super().__init__()
        self.events = EventRows()
        self.known: dict[
            tuple[str | None, str], Gpu
        ] = {}  # by host and UUID, where one metric says who the others are of

    def name(self) -> None:
        """Number the GPUs that their own metrics show by a UUID only."""
        for slot, gpu in enumerate(self.samples.gpus):
            if gpu.number is None and gpu.uuid is not None:
                self.samples.gpus[slot] = self.known.get((gpu.host, gpu.uuid), gpu)

    def take(self, series: _Series, time: float, value: float, number: int, line: str) -> None:
        """Take one value of a series, from a line."""
        event = series.event
        if event is None:
            self.add(series.slot, time, series.column, value * series.factor, number, line)
        elif series.column:
            self.add(
                series.slot,
                time,
                series.column,
                float(event.bit if value > 0 else 0) if event.bit else value,
                number,
                line,
            )
        elif series.gpu is not None:
            self.used += 1
            self.events.add(series.gpu, event, value, (number, line[:600]))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file.

    Source: dcgm-exporter 1 to 4 (`curl -s HOST:9400/metrics`), Prometheus `/api/v1/query_range`::

        DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-…",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node01"} 97
        {"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL",…},"values":[[…
    """
    head = read_head(stream, 1 << 12)
    stream = Joined(head, stream)
    rows = _Rows()
    if EXPORTED.match(head):
        number, note = _exported(stream, rows)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        data = read_head(stream, LARGEST)
        note = f"is longer than {LARGEST >> 20} MiB; reading ended there" if stream.read(1) else None
        number, note = _answer(data, note, rows)
    else:
        number, note = _exposition(stream, rows), None
    rows.flush()
    rows.name()
    facts.add(rows.events.rows(facts, name))
    if rows.samples.gpus:
        rows.samples.write(facts, name, "dcgm")
    if rows.samples.refused:
        note = f"names more than {Samples.MAX_GPUS:,} GPUs; the others were left out"
    return Reading(number, rows.used, note)


def _exposition(stream: Readable, rows: _Rows) -> int:
    """Take an exporter's text; several answers, one behind the other, are samples in that order. Returns the number of lines."""
    known: dict[str, _Series | None] = {}
    turns: dict[tuple[object, str], Iterator[int]] = {}
    number = 0
    for number, line in lines(stream):
        head, _, written = line.rpartition("} ")
        if head not in known:
            if len(known) >= _SERIES:
                known.clear()
            known[head] = _series(head, rows, turns)
        series = known[head]
        said = _VALUE.fullmatch(written) if series is not None else None
        if series is None or said is None or (value := _number(said[1])) is None:
            continue
        time = int(said[2]) / 1000 if said[2] else float(next(series.turns))
        rows.take(series, time, value, number, line)
    return number


def _series(head: str, rows: _Rows, turns: dict[tuple[object, str], Iterator[int]]) -> _Series | None:
    """What a name and labels are, without the last brace; None for what is not read."""
    match = _SAMPLE.match(head)
    if match is None or not match[1].startswith(_NAMES):
        return None
    labels = dict(LABEL.findall(match[2]))
    return _series_of(match[1], labels, rows, turns)


def _series_of(
    metric: str, labels: dict[str, Any], rows: _Rows, turns: dict[tuple[object, str], Iterator[int]]
) -> _Series | None:
    """What a metric with these labels is; None for what is not read."""
    metric = _OLD_NAMES.get(metric, metric)
    if metric == _INFO and (gpu := gpu_of(labels)) is not None and gpu.uuid is not None and gpu.number is not None:
        if len(rows.known) < Samples.MAX_GPUS:
            rows.known[gpu.host, gpu.uuid] = gpu
        return None
    known = COLUMNS.get(metric)
    event = event_of(metric, labels) if known is None else None
    gpu = gpu_of(labels) if known is not None or event is not None else None
    if gpu is None:
        return None
    column, factor = known if known is not None else (event.column if event is not None else "", 1.0)
    slot = rows.slot(gpu) if column else -1
    # a bit of the mask counts as of the same moment as the other bits, which are series of their own
    moment = f"{column} {event.bit}" if event is not None else column
    return _Series(slot, column, factor, turns.setdefault((gpu[:3], moment), count()), event, gpu)


def _answer(data: bytes, note: str | None, rows: _Rows) -> tuple[int, str | None]:
    """Take an answer of the API: a matrix of a range, or a vector of one moment. Returns the number of lines, and a note."""
    number = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        return number, note or f"is no complete JSON: {str(error)[:100]}"
    body = top.get("data") if isinstance(top, dict) else None
    series = body.get("result") if isinstance(body, dict) else None
    # An answer is one line: the place of a value is the number of its series.
    for place, one in enumerate(series if isinstance(series, list) else [], 1):
        metric = one.get("metric") if isinstance(one, dict) else None
        if not isinstance(metric, dict):
            continue
        known = _series_of(str(metric.get("__name__")), metric, rows, {})
        points = one.get("values") if isinstance(one.get("values"), list) else [one.get("value")]
        if known is None:
            continue
        shown = json.dumps(metric)
        for time, value in _points(points):
            rows.take(known, time, value, place, shown)
    return number, note


def _exported(stream: Readable, rows: _Rows) -> tuple[int, str | None]:
    """Take what VictoriaMetrics exports: one series a line, its values and their times in milliseconds."""
    number, note = 0, None
    for number, line in lines(stream):
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            note = note or f"line {number} is no complete JSON"
            continue
        metric, values, times = (
            one.get(key) if isinstance(one, dict) else None for key in ("metric", "values", "timestamps")
        )
        if not (isinstance(metric, dict) and isinstance(values, list) and isinstance(times, list)):
            continue
        known = _series_of(str(metric.get("__name__")), metric, rows, {})
        if known is None:
            continue
        shown = json.dumps(metric)
        for time, value in zip(times, values, strict=False):
            if isinstance(time, int | float) and (found := _number(str(value))) is not None:
                rows.take(known, time / 1000, found, number, shown)
    return number, note


def _points(points: list[Any]) -> Iterator[tuple[float, float]]:
    for point in points:
        if isinstance(point, list) and len(point) == 2 and isinstance(point[0], int | float):
            value = _number(str(point[1]))
            if value is not None:
                yield float(point[0]), value


def gpu_of(labels: dict[str, Any]) -> Gpu | None:
    """Who a series is of; None for one of a link, of an instance of MIG, or of no GPU."""
    number, uuid = str(labels.get("gpu", labels.get("index", ""))), labels.get("UUID", labels.get("uuid"))
    index = int(number) if number.isdecimal() and len(number) < 5 else None
    if labels.get("GPU_I_ID") or (index is None and not isinstance(uuid, str)):
        return None
    host = next((str(labels[key]) for key in HOSTS if labels.get(key)), None)
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
    return value if math.isfinite(value) else None
