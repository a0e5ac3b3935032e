"""Events that the example profiler plug-in of NCCL writes (ext-profiler/example, NCCL 2.23 and newer), one file a communicator and rank.

The lines are those of a Chrome trace, but 2.28.3 writes some values without their quotes, so they are read by pattern. The events
of a collective are between its begin and its end.
"""

import re
from collections.abc import Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl.collective_series import CollectiveSeries, Kind
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_PROFILER_EVENT = re.compile(
    rb'^[ \t]*\{"name": ?"([^"\n]{1,60})", ?"cat": ?"(\w{1,20})", ?"ph": ?"([be])", ?"id": ?\d{1,10}, ?"pid": ?(\d{1,10}),'
    rb' ?"tid": ?\d{1,10}, ?"ts": ?(-?\d{1,16}(?:\.\d{1,9})?)([^\n]*)',
    re.MULTILINE,
)
_PROFILER_ARGUMENT = re.compile(rb'"(CommHash|Rank|Count|Datatype|StartGpuClk|StopGpuClk)": ?"?(\w{1,40})')
_BYTES = {
    "ncclInt8": 1, "ncclUint8": 1, "ncclFloat8e4m3": 1, "ncclFloat8e5m2": 1, "ncclFloat16": 2, "ncclBfloat16": 2, "ncclInt32": 4,
    "ncclUint32": 4, "ncclFloat32": 4, "ncclInt64": 8, "ncclUint64": 8, "ncclFloat64": 8,
    # NCCL 2.23 writes the number of the type
    "0": 1, "1": 1, "2": 4, "3": 4, "4": 8, "5": 8, "6": 2, "7": 4, "8": 8, "9": 2,
}  # fmt: skip
_TIMED = (b"COLL", b"P2P")
_END = 1_000  # bytes of a file in which its list may be closed


class _Call:
    """A collective whose end was not read yet."""

    def __init__(self, event: re.Match[bytes], number: int) -> None:
        self.op, self.pid, self.begin = event[1].decode("utf-8", "replace"), int(event[4]), float(event[5])
        self.arguments = _arguments(event[6])
        self.at = number, event[0].decode("utf-8", "replace")
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
    used = lines = 0
    call: _Call | None = None
    end = b""
    for block in blocks(stream):
        data = block.data
        end = (end + data[-_END:])[-_END:]
        counted, lines = 0, block.first
        for event in _PROFILER_EVENT.finditer(data):
            used += 1
            category, phase = event[2], event[3]
            if category in _TIMED:
                if phase == b"b":
                    lines += data.count(b"\n", counted, event.start())
                    counted = event.start()
                    call = _Call(event, lines)
                elif call is not None:
                    for measured in _measured(call, float(event[5])):
                        series.add(*measured, *call.at)
                    call = None
            elif call is not None and category == b"GPU" and phase == b"b":
                _add_clocks(call, _arguments(event[6]))
            elif call is not None and category in (b"PROXY", b"NET") and phase == b"e":
                call.network = max(call.network, float(event[5]))
        lines += data.count(b"\n", counted) - data.endswith(b"\n")
    series.write()
    closed = end.rstrip().endswith(b"]")
    return Reading(lines, used, None if closed else f"ends before the end of the list, behind line {lines:,}")


def _arguments(text: bytes) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in _PROFILER_ARGUMENT.findall(text)}


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
