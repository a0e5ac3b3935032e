"""JSON of GPU monitors: one object a line or one after the other.

Known shapes: keys `gpu_usage:0` (SuperBench), an object a GPU with a utilisation, a list `gpus` (gpustat), `nodes` with
`gpu_utilization` (the summary of jobstats).
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess, GpuUse
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.columns import canonical
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place
from nccl_doctor.formats.gpu.smi_csv import seconds
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_INDEXED = re.compile(r"gpu_(\w+):(\d{1,3})$")
_SUPERBENCH = {
    "usage": "util", "temperature": "temperature", "power": "power", "power_limit": "power_limit",
    "mem_used": "memory", "mem_total": "memory_total", "corrected_ecc": "counter:ecc-corrected",
    "uncorrected_ecc": "counter:ecc-uncorrected",
}  # fmt: skip
_FLAT = {
    "utilization": "util", "util": "util", "gpu_util": "util", "gpu_utilization": "util", "utilization_gpu": "util",
    "power": "power", "power_w": "power", "power_draw": "power", "memory_used": "memory", "mem_used": "memory",
    "memory_total": "memory_total", "mem_total": "memory_total", "clock": "clock", "sm_clock": "clock",
    "clocks_sm": "clock", "temperature": "temperature", "temperature_gpu": "temperature", "sm_active": "sm_active",
    "power_limit": "power_limit", "enforced_power_limit": "power_limit", "clock_reasons": "mask",
    "throttle_reasons": "mask", "ecc_uncorrected": "counter:ecc-uncorrected", "ecc_corrected": "counter:ecc-corrected",
}  # fmt: skip
_TIMES = ("time", "timestamp", "query_time", "ts")
_HOSTS = ("host", "hostname", "node", "nodename")
_INDEX = ("index", "gpu", "gpu_index", "gpu_id", "minor_number", "device", "id")
_LONGEST = 8 << 20  # characters of one object over several lines
_BATCH = 20_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up every object that holds samples of GPUs.

    Source: SuperBench `superbench/monitor/record.py` 0.5 and newer, `gpustat --json` 1.0 and newer, jobstats `jobstats -j`::

        {"time": "2026-05-07 12:00:01", "gpu_usage:0": 97, "gpu_temperature:0": 61, "gpu_power:0": 688}
        {"hostname": "node01", "query_time": "2026-05-07T12:00:01", "gpus": [{"index": 0, "utilization.gpu": 97, ...}]}
    """
    return _Reader(name, facts).read_records(stream)


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._samples = Samples()
        self._rows: list[tuple[int, dict[str, float], float, Place]] = []
        self._processes: dict[tuple[str | None, int | None, int], GpuProcess] = {}
        self._lines = 0
        self._torn: int | None = None

    def read_records(self, stream: Readable) -> Reading:
        used = 0
        for number, text, record in self._records(stream):
            used += self._take(record, (number, text))
            if len(self._rows) >= _BATCH:
                self._flush()
        self._flush()
        self._facts.add(self._processes.values())
        if self._samples.gpus:
            self._samples.write(self._facts, self._name, "json")
        note = None if self._torn is None else f"ends in the middle of the object that starts in line {self._torn}"
        return Reading(self._lines, used, note)

    def _records(self, stream: Readable) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Objects on a line of their own, or over several lines from a `{` to a `}` in the first column."""
        waiting: list[str] = []
        size = start = 0
        for number, line in lines(stream):
            self._lines = number
            text = line.strip().rstrip(",")
            if not waiting:
                if not text.startswith("{"):
                    continue
                start, size = number, 0
            waiting.append(line)
            size += len(line)
            if text.endswith("}") and (len(waiting) == 1 or line.startswith("}")):
                record = _object("\n".join(waiting).strip().rstrip(","))
                if record is not None:
                    yield start, waiting[0] if len(waiting) == 1 else " ".join(waiting)[:500], record
                    waiting = []
                    continue
            if size > _LONGEST or (len(waiting) > 1 and line.startswith("{")):
                waiting = [line] if line.startswith("{") else []
                start, size = number, len(line)
        self._torn = start if waiting else None

    def _take(self, record: dict[str, Any], place: Place) -> int:
        host = next((str(record[key]) for key in _HOSTS if isinstance(record.get(key), str)), None)
        time = next((seconds(str(record[key])) for key in _TIMES if key in record), float("nan"))
        if isinstance(record.get("nodes"), dict):
            return self._jobstats(record, place)
        if isinstance(record.get("gpus"), list):
            found = [self._one(gpu, host, time, place) for gpu in record["gpus"] if isinstance(gpu, dict)]
            return int(any(found))
        by_gpu: dict[int, dict[str, float]] = {}
        for key, value in record.items():
            match = _INDEXED.match(key)
            if match is not None and match[1] in _SUPERBENCH and isinstance(value, (int, float)):
                column = _SUPERBENCH[match[1]]
                by_gpu.setdefault(int(match[2]), {})[column] = (
                    value / (1 << 20) if column.startswith("memory") else value
                )
        for index, values in by_gpu.items():
            self._add(Gpu(host, index), values, time, place)
        return int(bool(by_gpu)) or int(self._one(record, host, time, place))

    def _one(self, record: dict[str, Any], host: str | None, time: float, place: Place) -> bool:
        """A record of one GPU: titles of nvidia-smi with dots, or words with underscores."""
        values: dict[str, float] = {}
        for key, column in zip(record, canonical(tuple(record)), strict=True):
            column = _FLAT.get(key.lower()) or column
            value = record[key]
            if column is not None and isinstance(value, str):
                value = _number(value)
            if column is not None and isinstance(value, (int, float)) and column not in values:
                values[column] = float(value)
        index = next((record[key] for key in _INDEX if isinstance(record.get(key), int)), None)
        if "util" not in values or (index is None and not isinstance(record.get("uuid"), str)):
            return False
        if values.get("memory", 0) > 1e7:  # bytes, not MiB
            values |= {key: value / (1 << 20) for key, value in values.items() if key.startswith("memory")}
        gpu = Gpu(host, index, _text(record.get("uuid")), _text(record.get("name")))
        self._add(gpu, values, time, place)
        for process in record.get("processes") or []:
            if isinstance(process, dict) and isinstance(process.get("pid"), int):
                ref = self._facts.evidence(self._name, *place)
                memory = process.get("gpu_memory_usage")
                memory = float(memory) if isinstance(memory, (int, float)) else None
                row = GpuProcess(
                    host=host, gpu=index, uuid=gpu.uuid, pid=process["pid"], kind=None,
                    name=_text(process.get("command")), memory=memory, n=1, ref=ref,
                )  # fmt: skip
                old = self._processes.get((host, index, row.pid))
                self._processes[host, index, row.pid] = row if old is None else old._replace(n=old.n + 1)
        return True

    def _add(self, gpu: Gpu, values: dict[str, float], time: float, place: Place) -> None:
        slot = self._samples.slot((gpu.host, gpu.number if gpu.number is not None else gpu.uuid), lambda: gpu)
        if slot >= 0:
            self._rows.append((slot, values, time, place))

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        names = {name for _, values, _, _ in rows for name in values} - {
            "index",
            "uuid",
            "model",
            "host",
            "bus",
            "time",
        }
        columns = {name: np.array([values.get(name, np.nan) for _, values, _, _ in rows], np.float64) for name in names}
        times = np.array([time for _, _, time, _ in rows])
        self._samples.add(
            Batch(
                np.array([slot for slot, _, _, _ in rows], np.int64),
                columns,
                None if np.isnan(times).all() else times,
                lambda row: rows[row][3],
            )
        )

    def _jobstats(self, record: dict[str, Any], place: Place) -> int:
        """The summary that jobstats keeps: means over the job, no samples."""
        ref = self._facts.evidence(self._name, *place)
        length = record.get("total_time")
        length = float(length) if isinstance(length, (int, float)) and length > 0 else None
        rows = []
        for host, node in record["nodes"].items():
            if not isinstance(node, dict) or not isinstance(node.get("gpu_utilization"), dict):
                continue
            for key, util in node["gpu_utilization"].items():
                if not isinstance(util, (int, float)):
                    continue
                used, total = (
                    group.get(key) if isinstance(group := node.get(name), dict) else None
                    for name in ("gpu_used_memory", "gpu_total_memory")
                )
                rows.append(
                    GpuUse(
                        host=str(host), gpu=int(key) if key.isdigit() else None, uuid=None, model=None, source="jobstats",
                        file=self._name, samples=1, first=None, seconds=length, busy_share=None, idle_share=None,
                        util_mean=float(util), util_median=None, dips=None, dip_share=None, high_share=None, spin_share=None,
                        power_median=None, power_limit=None, clock_median=None, clock_max=None, temperature_max=None,
                        memory_max=used / (1 << 20) if isinstance(used, (int, float)) else None,
                        memory_total=total / (1 << 20) if isinstance(total, (int, float)) else None,
                        sm_active=None, width_min=None, width_max=None, ref=ref,
                    )
                )  # fmt: skip
        self._facts.add(rows)
        return int(bool(rows))


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(text: str) -> float | None:
    match = re.match(r"\s{0,40}(-?\d{1,40}(?:\.\d{1,40})?)\s{0,40}(?:%|MiB|W|MHz|C)?\s*$", text)
    if match is not None:
        return float(match[1])
    return float(int(text, 16)) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else None
