"""Traces of torch.profiler (Kineto, Chrome trace JSON), of one rank each: communication, overlap, waiting for input.

A kernel of NCCL runs from its launch until the slowest peer has come and the data is through, so its length says more about
the others than about the network; `derive.speed` compares the traces of several ranks.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceCall, TraceOp
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.profiles.gpu_time import GpuTime, Spans, collective_of, gpu_time, operation, union
from nccl_doctor.inputs.json_depth import Shallow, TooDeep
from nccl_doctor.inputs.json_items import BrokenJson, array_items
from nccl_doctor.inputs.streams import Readable

_Args = dict[str, Any] | str | None  # of an event: decoded, or their text
_NAMES = 20_000  # of kernels that are remembered
CALLS = 5000  # collectives that become rows
_ENDS = 1 << 18  # bytes kept of the start and of the end of the file, which hold the properties of the trace
_PLACES = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "Kernel": "kernel",
    "Memcpy": "copy",
    "Memset": "copy",
    "mtia_ccp_events": "kernel",
    "hpu_op": "kernel",
}
# What only traces of one kind of accelerator hold; calls of CUDA and HIP are of one category and tell it by their names.
_ACCELERATORS = {
    "mtia_runtime": "mtia", "mtia_ccp_events": "mtia", "mtia_insight": "mtia", "xpu_runtime": "xpu", "xpu_driver": "xpu", "hpu_op": "hpu",
}  # fmt: skip
_RUNTIMES = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
_TRAINS = ("autograd::engine::evaluate_function", "Optimizer.step#", "Optimizer.zero_grad#")
_LANE = re.compile(r"(?:\d{1,3} )?(?:GPU(?P<gpu>\d{1,3})|(?P<copy>COPY)|CPU HIP API)")
_LANES = 1000
_QUOTED = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?")
_COPIES = ("Copy", "hcMemcpy", "hcCommandMemcpy")  # on the GPU
_ON_CPU = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
_INPUT = "enumerate(DataLoader)#"
_STEP = "ProfilerStep#"
_USED = frozenset((*_PLACES, *_ACCELERATORS, "cpu_op", "user_annotation", "Operator"))


def _event_pattern(used: Iterable[str]) -> re.Pattern[str]:
    """An event as Kineto prints it: the fields of one of these categories, of others only the end, in front of the next one."""
    return re.compile(
        r'\s*(?:,\s*)?\{\s*"ph"\s*:\s*"(?:X"\s*,\s*"cat"\s*:\s*"'
        rf'(?:({"|".join(sorted(used))})"\s*,\s*"name"\s*:\s*"([^"\\]*)"\s*,'
        r'\s*"pid"\s*:\s*(?:"[^"\\]*"|-?\d{1,20})\s*,\s*"tid"\s*:\s*(?:"[^"\\]*"|-?\d{1,20})\s*,'
        r'\s*"ts"\s*:\s*(\d{1,17}(?:\.\d{1,9})?)\s*,\s*"dur"\s*:\s*(\d{1,17}(?:\.\d{1,9})?)\s*'
        r'(?:,\s*"args"\s*:\s*(\{[^{}]*\})\s*)?\}'
        rf'|(?!(?:{"|".join(sorted(used))})")[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)?\}}(?=\s*[,\]]))'
        r'|[A-WYZa-z]"[^{}]*(?:\{[^{}]*\}[^{}]*)?\}(?=\s*[,\]]))'
    )


_KINETO_EVENT = _event_pattern(_USED)
_KINETO_EVENT_OR_CALL = _event_pattern((*_USED, *_RUNTIMES))
_DEVICE = re.compile(r'"device"\s{0,9}:\s{0,9}(\d{1,6})\b')
_RANK = re.compile(r"(?:rank|worker)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one trace; a cut one as far as it is whole.

    Source: libkineto/src/output_json.cpp, in PyTorch 1.8 and newer::

        {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}, "traceEvents": [
          {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ts": 4211.2, "dur": 812.0, ...},

    and `results.json` of `rocprof --hip-trace` (rocprofiler `bin/sqlitedb.py`), whose processes say what their events are::

        { "traceEvents":[{}
        ,{"args":{"name":"GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":2}
        ,{"ph":"X","name":"ncclDevKernel_Generic","ts":"4211","dur":"812","pid":"6","tid":"1",
    """
    facts.mark_covered("trace", "trace_op", "trace_call")
    kept = _Kept(stream)
    seen = _Seen()
    problem: str | None = None
    try:
        for event in array_items(Shallow(kept), "traceEvents", seen.take):
            seen.events += 1
            if isinstance(event, dict) and event.get("ph") == "X":
                seen.add(event)
            elif isinstance(event, dict) and event.get("name") == "process_name":
                seen.label(event)
    except BrokenJson:
        problem = "ends in the middle of the trace" if kept.ended else "is not valid JSON"
        problem += f", behind event {seen.events:,}"
    except TooDeep as error:
        problem = f"{error}, behind event {seen.events:,}"
    properties = kept.properties()
    facts.add(_rows(facts, name, seen, properties, complete=problem is None))
    if problem is None and not seen.used:
        problem = "holds no event of a kernel, an operator or a collective"
    return Reading(seen.events, seen.used, problem)


class _Kept:
    """A stream that keeps the bytes of its start and its end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._head = b""
        self._tail = b""
        self.ended = False

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self.ended = size > 0 and not data
        if len(self._head) < _ENDS:
            self._head += data[: _ENDS - len(self._head)]
        self._tail = (self._tail + data)[-_ENDS:]
        return data

    def properties(self) -> dict[str, Any]:
        """The values beside the events that are of use."""
        found: dict[str, Any] = {}
        decoder = json.JSONDecoder()
        head = self._head.split(b'"traceEvents"')[0]
        for text in (head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")):
            for key in ("distributedInfo", "deviceProperties", "host_name"):
                at = re.search(rf'"{key}"\s*:\s*', text)
                if at and key not in found:
                    try:
                        found[key] = decoder.raw_decode(text, at.end())[0]
                    except (ValueError, RecursionError):
                        continue
        return found


@dataclass
class _Call:
    pg: str
    op: str
    seq: int | None
    elements: int | None
    at: float
    took: float
    place: str
    number: int  # of the event


class _Seen:
    """The events of one trace, by kind."""

    def __init__(self) -> None:
        self.events = 0
        self.used = 0
        self.compute: dict[int, Spans] = defaultdict(Spans)  # by device
        self.comm: dict[int, Spans] = defaultdict(Spans)
        self.copy: dict[int, Spans] = defaultdict(Spans)
        self.cpu_comm = Spans()
        self.input = Spans()
        self.steps: list[float] = []
        self.calls: list[_Call] = []
        self.accelerator: str | None = None
        self._collectives: dict[str, str | None] = {}  # of names of kernels
        self.lanes: dict[int, tuple[str, int]] = {}  # category and device of the events of a process that have none
        self.operators = False  # of PyTorch were seen
        self.trains = False  # a backward pass or an optimizer was seen
        self.first = float("inf")
        self.last = float("-inf")

    def take(self, text: str, at: int) -> int:
        """Take the events from a place on that are printed as Kineto does: the place behind them."""
        match = _KINETO_EVENT.match if self.accelerator else _KINETO_EVENT_OR_CALL.match
        while (event := match(text, at)) is not None:
            at = event.end()
            self.events += 1
            category, name, start, took, args = event.groups()
            if category is not None:
                self._add(category, name, float(start), float(took), args)
        return at

    def label(self, event: dict[str, Any]) -> None:
        """Take the name of a process of roctracer: a GPU, its copies, or the calls of HIP."""
        args, pid = event.get("args"), _number(event.get("pid"))
        name = args.get("name") if isinstance(args, dict) else None
        lane = _LANE.fullmatch(name) if isinstance(name, str) else None
        if lane is not None and pid is not None and len(self.lanes) < _LANES:
            category = "kernel" if lane["gpu"] else "gpu_memcpy" if lane["copy"] else "hip_runtime"
            self.lanes[int(pid)] = category, int(lane["gpu"] or 0)

    def add(self, event: dict[str, Any]) -> None:
        """Take an event of phase X that was decoded."""
        start, took, name, category = (
            _number(event.get("ts")),
            _number(event.get("dur")),
            event.get("name"),
            event.get("cat"),
        )
        lane = self.lanes.get(int(pid)) if category is None and (pid := _number(event.get("pid"))) is not None else None
        if lane is not None and start is not None and took is not None and took >= 0 and isinstance(name, str):
            copies = lane[0] == "kernel" and name.startswith(_COPIES)
            self._add("gpu_memcpy" if copies else lane[0], name, start, took, {"device": lane[1]})
            return
        if start is not None and took is not None and isinstance(name, str) and isinstance(category, str) and took >= 0:
            args = event.get("args")
            self._add(category, name, start, took, args if isinstance(args, dict) else None)

    def _add(self, category: str, name: str, start: float, took: float, args: _Args) -> None:
        place = _PLACES.get(category)
        stop = start + took
        if category in _RUNTIMES:
            self.accelerator = self.accelerator or (
                "rocm" if name.startswith("hip") else "cuda" if name.startswith("cu") else None
            )
        elif category in _ACCELERATORS:
            self.accelerator = _ACCELERATORS[category]
        if place is not None:
            self._on_gpu(place, name, args, start, took)
        elif category in ("cpu_op", "user_annotation", "Operator"):
            self.first = start if start < self.first else self.first
            self.last = stop if stop > self.last else self.last
            self.used += 1
            self.operators = self.operators or name.startswith("aten::")
            self.trains = self.trains or name.startswith(_TRAINS)
            if name.startswith(_STEP):
                self.steps.append(took)
            elif name.startswith(_INPUT):
                self.input.add(start, stop)
            elif category == "user_annotation" and (match := _ON_CPU.match(name)):
                values = _arguments(args)
                if values.get("finished") is not False:
                    self.cpu_comm.add(start, stop)
                    self._call("", match[1], values, start, took, "cpu")

    def _on_gpu(self, place: str, name: str, args: _Args, start: float, took: float) -> None:
        self.used += 1
        device = _device(args)
        if place == "copy":
            self.copy[device].add(start, start + took)
        elif (kernel_op := self._collective(name)) is not None:
            self.comm[device].add(start, start + took)
            values = _arguments(args)
            said = values.get("Collective name")
            op = said if isinstance(said, str) and said else kernel_op
            self._call(str(values.get("Process Group Name") or ""), op, values, start, took, "gpu")
        else:
            self.compute[device].add(start, start + took)

    def _collective(self, name: str) -> str | None:
        """As `collective_of`; most kernels have one of few names."""
        found = self._collectives.get(name, "")
        if found == "":
            found = collective_of(name)
            if len(self._collectives) < _NAMES:
                self._collectives[name] = found
        return found

    def _call(self, pg: str, op: str, args: dict[str, Any], start: float, took: float, place: str) -> None:
        if len(self.calls) < 40 * CALLS:
            seq = _whole(args.get("Seq"), None)
            elements = _whole(args.get("In msg nelems"), _elements(args.get("Input Dims")))
            op = operation(op)
            self.calls.append(_Call(pg, op, seq, elements, start, took, place, self.events))


def _arguments(args: _Args) -> dict[str, Any]:
    """The arguments of an event; none where they are not JSON."""
    if not isinstance(args, str):
        return args or {}
    try:
        found = json.loads(args)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    """A number, also one in quotes, as roctracer writes them."""
    if isinstance(value, str):
        return float(value) if _QUOTED.fullmatch(value) is not None else None
    return finite(value)


def _device(args: _Args) -> int:
    """The number of the device of a kernel or copy; 0 where the event does not say it."""
    if isinstance(args, str):
        found = _DEVICE.search(args)
        return int(found[1]) if found else 0
    device = args.get("device") if args else 0
    return device if isinstance(device, int) else 0


def _elements(dims: Any) -> int | None:
    """Elements of the first tensor: `[[2, 3]]` -> 6."""
    while isinstance(dims, list) and dims and isinstance(dims[0], list) and dims[0] and isinstance(dims[0][0], list):
        dims = dims[0]
    if not (isinstance(dims, list) and dims and isinstance(dims[0], list) and all(isinstance(d, int) for d in dims[0])):
        return None
    return _whole(math.prod(dims[0][:16]), None)


def _seconds(value: float) -> str:
    """`1.20 s`, `0.00084 s`."""
    return f"{value:.2f} s" if value >= 1 or not value else f"{value:.3g} s"


def _rows(facts: Facts, file: str, seen: _Seen, properties: dict[str, Any], *, complete: bool) -> Iterator[object]:
    info = properties.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    named = _RANK.search(file.rsplit("/", 1)[-1])
    rank = _whole(info.get("rank"), int(named[1]) if named else None)
    host = properties.get("host_name")
    host = host if isinstance(host, str) else None
    trace = _trace(seen, info, properties)
    trace.update(file=file, host=host, rank=rank, complete=int(complete))
    parts = [f"{seen.events:,} events over {_seconds(trace['span_s'])}", f"communication {_seconds(trace['comm_s'])}"]
    if trace["compute_s"] is not None:
        parts += [
            f"other kernels {_seconds(trace['compute_s'])}",
            f"communication alone {_seconds(trace['exposed_s'])}",
        ]
    if trace["input_s"] is not None:
        parts.append(f"waiting for input {_seconds(trace['input_s'])}")
    trace["ref"] = facts.evidence(file, max(seen.events, 1), "; ".join(parts))
    yield Trace(**trace)
    place = "gpu" if any(call.place == "gpu" for call in seen.calls) else "cpu"
    calls = sorted((call for call in seen.calls if call.place == place), key=lambda call: call.at)
    yield from _calls(facts, file, host, rank, place, calls, calls[0].at if calls else 0.0)


def _trace(seen: _Seen, info: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    kernels = {d: len(seen.compute[d].start) + len(seen.comm[d].start) for d in {*seen.compute, *seen.comm}}
    device = max(kernels, key=lambda d: kernels[d], default=None)
    cards = properties.get("deviceProperties")
    card = next((c.get("name") for c in cards if isinstance(c, dict)), None) if isinstance(cards, list) else None
    values: dict[str, Any] = dict.fromkeys(GpuTime._fields)
    if device is None:
        span = max(seen.last - seen.first, 0.0) if seen.used else 0.0
        values.update(span_s=span / 1e6, comm_s=union(*seen.cpu_comm.both()) / 1e6)
    else:
        values = gpu_time(seen.compute[device], seen.comm[device], seen.copy[device])._asdict()
    return {
        **values,
        "world": _whole(info.get("world_size"), None),
        "backend": info["backend"] if isinstance(info.get("backend"), str) else None,
        "device": card if isinstance(card, str) else None,
        "tool": "rocprof" if seen.lanes else "torch.profiler",
        "accelerator": seen.accelerator or ("cuda" if isinstance(card, str) and "NVIDIA" in card else None),
        "workload": "training" if seen.trains else "inference" if seen.operators else None,
        "gpu": device,
        "events": seen.events,
        "input_s": union(*seen.input.both()) / 1e6 if seen.input.start else None,
        "steps": len(seen.steps) or None,
        "step_s": float(np.median(seen.steps)) / 1e6 if seen.steps else None,
        "steps_s": sum(seen.steps) / 1e6 if seen.steps else None,
    }


def _calls(
    facts: Facts, file: str, host: str | None, rank: int | None, place: str, calls: list[_Call], origin: float
) -> Iterator[object]:
    by_op: dict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        by_op[call.op].append(call)
    refs = {}
    for op, group in by_op.items():
        took = [call.took / 1000 for call in group]
        worst = max(group, key=lambda call: call.took)
        text = f"{op} at {(worst.at - origin) / 1000:.1f} ms after the first collective, {worst.took / 1000:.2f} ms"
        refs[op] = facts.evidence(file, worst.number, text)
        middle = float(np.median(took))
        yield TraceOp(
            file=file, host=host, rank=rank, op=op, place=place, n=len(took), total_ms=sum(took), median_ms=middle,
            min_ms=min(took), max_ms=max(took), ref=refs[op],
        )  # fmt: skip
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for call in calls[:CALLS]:
        counts[call.pg, call.op] += 1
        seq = call.seq if call.seq is not None else counts[call.pg, call.op]
        at, took_ms = (call.at - origin) / 1000, call.took / 1000
        yield TraceCall(
            file=file, rank=rank, pg=call.pg, op=call.op, seq=seq, elements=call.elements, at_ms=at,
            took_ms=took_ms, ref=refs[call.op],
        )  # fmt: skip


def _whole(value: Any, default: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else default
