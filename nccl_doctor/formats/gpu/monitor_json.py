"""JSON of GPU monitors: one object a line or one after the other.

Known shapes: keys `gpu_usage:0` (SuperBench) and `system.gpu.0.gpu` (events of Weights & Biases), an object a GPU with a
utilisation, a list `gpus` (gpustat) or an object `gpus` with one of each, `nodes` with `gpu_utilization` (the summary of jobstats).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess, GpuUse
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.columns import canonical, wandb_column
from nccl_doctor.formats.gpu.loops.process_looks import Looks
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Floats, Gpu, Place
from nccl_doctor.formats.gpu.smi_csv import seconds
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.json_items import LineObjects
from nccl_doctor.inputs.streams import Readable

_NUMBERED = re.compile(r"\D{0,20}(\d{1,3})")
_INDEXED = re.compile(r"gpu_(\w+):(\d{1,3})$")
_SUPERBENCH = {
    "usage": "util", "temperature": "temperature", "power": "power", "power_limit": "power_limit",
    "mem_used": "memory", "mem_total": "memory_total", "corrected_ecc": "counter:ecc-corrected",
    "uncorrected_ecc": "counter:ecc-uncorrected",
}  # fmt: skip
_FLAT = {
    "utilization": "util", "util": "util", "gpu_util": "util", "gpu_utilization": "util", "utilization_gpu": "util",
    "power": "power", "power_w": "power", "power_draw": "power", "memory_used": "memory", "mem_used": "memory",
    "memory_used_mb": "memory", "memory_total_mb": "memory_total",
    "memory_total": "memory_total", "mem_total": "memory_total", "clock": "clock", "sm_clock": "clock",
    "clocks_sm": "clock", "temperature": "temperature", "temperature_gpu": "temperature", "sm_active": "sm_active",
    "power_limit": "power_limit", "enforced_power_limit": "power_limit", "clock_reasons": "mask",
    "throttle_reasons": "mask", "ecc_uncorrected": "counter:ecc-uncorrected", "ecc_corrected": "counter:ecc-corrected",
}  # fmt: skip
_TIMES = ("time", "timestamp", "query_time", "ts", "_timestamp")
_HOSTS = ("host", "hostname", "node", "nodename")
_INDEX = ("index", "gpu", "gpu_index", "gpu_id", "minor_number", "device", "id")
_NOT_SAMPLED = ("index", "uuid", "model", "host", "bus", "time")  # columns that say whose samples these are
_BATCH = 20_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up every object that holds samples of GPUs.

    Source: SuperBench `superbench/monitor/record.py` 0.5 and newer, `gpustat --json` 1.0 and newer, jobstats `jobstats -j`::

        {"time": "2026-05-07 12:00:01", "gpu_usage:0": 97, "gpu_temperature:0": 61, "gpu_power:0": 688}
        {"hostname": "node01", "query_time": "2026-05-07T12:00:01", "gpus": [{"index": 0, "utilization.gpu": 97, ...}]}

    and loops of people's own::

        {"timestamp": "2026-05-07T12:00:01.5", "gpus": {"gpu_0": {"utilization": 97.0, "memory_used_mb": 21447.0}}}
    """
    return _Reader(name, facts).read_records(LineObjects(stream))


class _Shape(NamedTuple):
    """Which values a row has."""

    columns: tuple[str, ...]
    scales: tuple[float, ...]  # what they are multiplied by


class _Indexed(NamedTuple):
    """The values of one GPU among those of others: `gpu_usage:0`."""

    gpu: int
    shape: _Shape
    values: Callable[[Mapping[str, Any]], tuple[Any, ...]]  # of an object with these keys


@lru_cache(64)  # the objects of one monitor have the same keys
def _indexed(keys: tuple[str, ...]) -> tuple[_Indexed, ...]:
    """The GPUs whose number is in the keys of an object."""
    found: dict[int, dict[str, str]] = {}  # GPU -> column -> key
    for key in keys:
        match = _INDEXED.match(key)
        if match is not None and match[1] in _SUPERBENCH:
            found.setdefault(int(match[2]), {})[_SUPERBENCH[match[1]]] = key
        elif (named := wandb_column(key)) is not None:
            found.setdefault(named[0], {})[named[1]] = key
    return tuple(
        _Indexed(gpu, _Shape(tuple(own), tuple(map(_scale, own))), _values_of(tuple(own.values())))
        for gpu, own in found.items()
    )


def _scale(column: str) -> float:
    """What makes the numbers of such a monitor those of a column: it counts memory in bytes."""
    return 2.0**-20 if column.startswith("memory") else 1.0


def _values_of(keys: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    return itemgetter(*keys) if len(keys) > 1 else lambda record: (record[keys[0]],)


@lru_cache(64)
def _unscaled(columns: tuple[str, ...]) -> _Shape:
    return _Shape(columns, (1.0,) * len(columns))


@lru_cache(64)
def _flat(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The keys of an object of one GPU that have a column: titles of nvidia-smi with dots, or words with underscores."""
    named = ((key, _FLAT.get(key.lower()) or column) for key, column in zip(keys, canonical(keys), strict=True))
    return tuple((key, column) for key, column in named if column is not None)


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._samples = Samples()
        self._rows: list[tuple[int, _Shape, tuple[Any, ...], float, Place]] = []  # slot, values, time
        self._processes: dict[tuple[str | None, int | None, int], GpuProcess] = {}
        self._times_seen: dict[tuple[str | None, int | None, int], int] = {}
        self._looks = Looks()
        self._of_node = False  # as Weights & Biases samples them, whatever the job uses

    def read_records(self, objects: LineObjects) -> Reading:
        used = self._take_all(objects)
        self._flush()
        self._facts.add(
            row._replace(n=self._times_seen[key], last=self._looks.last(key)) for key, row in self._processes.items()
        )
        if self._samples.gpus:
            self._samples.write(self._facts, self._name, "wandb" if self._of_node else "json", of_job=not self._of_node)
        note = None if objects.torn is None else f"ends in the middle of the object that starts in line {objects.torn}"
        return Reading(objects.lines, used, note)

    def _take_all(self, objects: LineObjects) -> int:
        """How many objects were of use."""
        used = 0
        for number, text, record in objects:
            used += self._take(record, (number, text))
            if len(self._rows) >= _BATCH:
                self._flush()
        return used

    def _take(self, record: dict[str, Any], place: Place) -> int:
        host = next((str(record[key]) for key in _HOSTS if isinstance(record.get(key), str)), None)
        time = next((seconds(str(record[key])) for key in _TIMES if key in record), float("nan"))
        if isinstance(record.get("nodes"), dict):
            return self._jobstats(record, place)
        if isinstance(record.get("gpus"), list):
            found = [self._one(gpu, host, time, place) for gpu in record["gpus"] if isinstance(gpu, dict)]
            return int(any(found))
        if isinstance(record.get("gpus"), dict):
            found = [self._one({"index": at, **gpu}, host, time, place) for at, gpu in _by_name(record["gpus"])]
            return int(any(found))
        gpus = _indexed(tuple(record))
        self._of_node = self._of_node or (bool(gpus) and "_timestamp" in record)
        for gpu in gpus:
            self._add(Gpu(host, gpu.gpu), gpu.shape, gpu.values(record), time, place)
        return int(bool(gpus)) or int(self._one(record, host, time, place))

    def _one(self, record: dict[str, Any], host: str | None, time: float, place: Place) -> bool:
        """A record of one GPU."""
        values: dict[str, float] = {}
        for key, column in _flat(tuple(record)):
            value = record[key]
            if isinstance(value, str):
                value = _number(value)
            if column not in values and (found := finite(value)) is not None:
                values[column] = found
        index = next((record[key] for key in _INDEX if isinstance(record.get(key), int)), None)
        if "util" not in values or (index is None and not isinstance(record.get("uuid"), str)):
            return False
        if values.get("memory", 0) > 1e7:  # bytes, not MiB
            values |= {key: value / (1 << 20) for key, value in values.items() if key.startswith("memory")}
        gpu = Gpu(host, index, _text(record.get("uuid")), _text(record.get("name")))
        self._add(gpu, _unscaled(tuple(values)), tuple(values.values()), time, place)
        processes = record.get("processes")
        for process in processes if isinstance(processes, list) else ():
            if isinstance(process, dict) and isinstance(process.get("pid"), int):
                own = host, index, process["pid"]
                self._times_seen[own] = n = self._times_seen.get(own, 0) + 1
                look = self._looks.at(own, str(time))
                if n == 1:
                    memory = process.get("gpu_memory_usage")
                    self._processes[own] = GpuProcess(
                        host=host, gpu=index, uuid=gpu.uuid, pid=process["pid"], kind=None,
                        name=_text(process.get("command")), memory=finite(memory),
                        sm=None, n=1, first=look, last=look, ref=self._facts.evidence(self._name, *place),
                    )  # fmt: skip
        return True

    def _add(self, gpu: Gpu, shape: _Shape, values: tuple[Any, ...], time: float, place: Place) -> None:
        slot = self._samples.slot((gpu.host, gpu.number if gpu.number is not None else gpu.uuid), lambda: gpu)
        if slot >= 0:
            self._rows.append((slot, shape, values, time, place))

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        of_shape: dict[int, list[int]] = {}
        for at, row in enumerate(rows):
            of_shape.setdefault(id(row[1]), []).append(at)
        columns: dict[str, Floats] = {}
        for places in of_shape.values():
            shape = rows[places[0]][1]
            cells = _numbers([rows[at][2] for at in places]) * shape.scales
            for number, name in enumerate(shape.columns):
                if name not in _NOT_SAMPLED:
                    columns.setdefault(name, np.full(len(rows), np.nan))[places] = cells[:, number]
        known = np.zeros(len(rows), bool)
        for values in columns.values():
            known |= ~np.isnan(values)
        keep = np.flatnonzero(known)
        times = np.array([row[3] for row in rows])[keep]
        self._samples.add(
            Batch(
                np.array([row[0] for row in rows], np.int64)[keep],
                {name: values[keep] for name, values in columns.items()},
                None if np.isnan(times).all() else times,
                lambda row: rows[keep[row]][4],
            )
        )

    def _jobstats(self, record: dict[str, Any], place: Place) -> int:
        """The summary that jobstats keeps: means over the job, no samples."""
        ref = self._facts.evidence(self._name, *place)
        length = finite(record.get("total_time"))
        length = length if length is not None and length > 0 else None
        rows = []
        for host, node in record["nodes"].items():
            if not isinstance(node, dict) or not isinstance(node.get("gpu_utilization"), dict):
                continue
            for key, util in node["gpu_utilization"].items():
                if (mean := finite(util)) is None:
                    continue
                used, total = (
                    finite(group.get(key)) if isinstance(group := node.get(name), dict) else None
                    for name in ("gpu_used_memory", "gpu_total_memory")
                )
                rows.append(
                    GpuUse(
                        host=str(host), gpu=int(key) if key.isdecimal() and len(key) < 10 else None, uuid=None, model=None,
                        source="jobstats",
                        file=self._name, samples=1, first=None, seconds=length, busy_share=None, idle_share=None,
                        util_mean=mean, util_median=None, dips=None, dip_share=None, high_share=None, spin_share=None,
                        power_median=None, power_limit=None, clock_median=None, clock_max=None, temperature_max=None,
                        memory_max=used / (1 << 20) if used is not None else None,
                        memory_total=total / (1 << 20) if total is not None else None,
                        sm_active=None, width_min=None, width_max=None, ref=ref,
                    )
                )  # fmt: skip
        self._facts.add(rows)
        return int(bool(rows))


def _by_name(gpus: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of GPUs whose numbers end the names of them: `gpu_0`, `cuda:1`, `2`."""
    for name, gpu in gpus.items():
        number = _NUMBERED.fullmatch(name)
        if number is not None and isinstance(gpu, dict):
            yield int(number[1]), gpu


def _numbers(rows: list[tuple[Any, ...]]) -> Floats:
    try:
        return np.array(rows, np.float64)
    except (TypeError, ValueError, OverflowError):  # an answer of another kind among them
        return np.array([[np.nan if (found := finite(value)) is None else found for value in row] for row in rows])


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(text: str) -> float | None:
    match = re.match(r"\s{0,40}(-?\d{1,40}(?:\.\d{1,40})?)\s{0,40}(?:%|MiB|W|MHz|C)?\s*$", text)
    if match is not None:
        return float(match[1])
    return float(int(text, 16)) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else None
