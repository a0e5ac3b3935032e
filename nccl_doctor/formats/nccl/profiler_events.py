"""Events that the example profiler plug-in of NCCL writes (ext-profiler/example, NCCL 2.23 and newer), one file a communicator and rank.

The lines are those of a Chrome trace, but 2.28.3 writes some values without their quotes, so they are read by pattern. The events
of a collective are between its begin and its end.
"""

import re
from collections.abc import Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl.collective_series import CollectiveSeries, Kind
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_PROFILER_EVENT = re.compile(
    r'\s*\{"name": ?"([^"]{1,60})", ?"cat": ?"(\w{1,20})", ?"ph": ?"([be])", ?"id": ?\d{1,10}, ?"pid": ?(\d{1,10}),'
    r' ?"tid": ?\d{1,10}, ?"ts": ?(-?\d{1,16}(?:\.\d{1,9})?)'
)
_PROFILER_ARGUMENT = re.compile(r'"(CommHash|Rank|Count|Datatype|StartGpuClk|StopGpuClk)": ?"?(\w{1,40})')
_BYTES = {
    "ncclInt8": 1, "ncclUint8": 1, "ncclFloat8e4m3": 1, "ncclFloat8e5m2": 1, "ncclFloat16": 2, "ncclBfloat16": 2, "ncclInt32": 4,
    "ncclUint32": 4, "ncclFloat32": 4, "ncclInt64": 8, "ncclUint64": 8, "ncclFloat64": 8,
    # NCCL 2.23 writes the number of the type
    "0": 1, "1": 1, "2": 4, "3": 4, "4": 8, "5": 8, "6": 2, "7": 4, "8": 8, "9": 2,
}  # fmt: skip
_TIMED = ("COLL", "P2P")


class _Call:
    """A collective whose end was not read yet."""

    def __init__(self, op: str, pid: int, begin: float, arguments: dict[str, str], number: int, line: str) -> None:
        self.op, self.pid, self.begin, self.arguments, self.at = op, pid, begin, arguments, (number, line)
        self.clocks: list[tuple[int, int]] = []  # of its kernel in each channel, ns
        self.network = 0.0  # the end of its last transfer

    def time(self, end: float) -> tuple[float, str]:
        """How long it took in us, and by which clock: that of the GPU, else the network's, else the launch is all there is."""
        if self.clocks:
            return (max(stop for _, stop in self.clocks) - min(start for start, _ in self.clocks)) / 1000, "kernel_gpu"
        if self.network > self.begin:
            return self.network - self.begin, "proxy"
        return end - self.begin, "collective_cpu"


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the events of one communicator and rank.

    Source: ext-profiler/example/print_event.cc, from 2.29.7 plugins/profiler/example::

        {"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 4242, "tid": 1, "ts": 11.4, "args": {"SeqNum": 0, "Rank": 0, ...}},
        {"name": "KernelCh", "cat": "GPU", "ph": "b", "id": 0, ..., "args": {"Channel": 0, "StartGpuClk": 175613, "StopGpuClk": 175698}},
    """
    series = CollectiveSeries(facts, name)
    number = used = 0
    call: _Call | None = None
    closed = False
    for number, line in lines(stream):
        event = _PROFILER_EVENT.match(line)
        if event is None:
            closed = closed or line.rstrip().endswith("]")
            continue
        op, category, phase, pid, at = event.groups()
        used += 1
        if category in _TIMED:
            if phase == "b":
                call = _Call(op, int(pid), float(at), dict(_PROFILER_ARGUMENT.findall(line)), number, line)
            elif call is not None:
                for measured in _measured(call, float(at)):
                    series.add(*measured, *call.at)
                call = None
        elif call is not None and category == "GPU" and phase == "b":
            _add_clocks(call, dict(_PROFILER_ARGUMENT.findall(line)))
        elif call is not None and category in ("PROXY", "NET") and phase == "e":
            call.network = max(call.network, float(at))
    series.write()
    return Reading(number, used, None if closed else f"ends before the end of the list, behind line {number:,}")


def _add_clocks(call: _Call, arguments: dict[str, str]) -> None:
    start, stop = (arguments.get(key, "") for key in ("StartGpuClk", "StopGpuClk"))
    if start.isdecimal() and stop.isdecimal() and 0 < int(start) < int(stop) < 1 << 63:
        call.clocks.append((int(start), int(stop)))


def _measured(call: _Call, end: float) -> Iterator[tuple[Kind, float, float | None, float | None]]:
    given = call.arguments
    width = _BYTES.get(given.get("Datatype", ""))
    if width is None or not all(given.get(key, "").isdecimal() for key in ("Rank", "Count", "CommHash")):
        return
    took, timing = call.time(end)
    size = min(width * int(given["Count"]), 1 << 62)
    if took <= 0:
        return
    yield (
        Kind(
            host=None, pid=call.pid, comm=f"0x{int(given['CommHash']) % (1 << 64):x}", comm_name=None, rank=int(given["Rank"]),
            nranks=None, nodes=None, op=call.op, size=size, timing=timing,
        ),
        took,
        size / took / 1000 if timing != "collective_cpu" else None,
        None,
    )  # fmt: skip
