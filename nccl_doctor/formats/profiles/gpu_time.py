"""The time of a GPU from the intervals of its kernels and copies: communication, what overlaps it, and gaps."""

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST = 2_000_000  # intervals kept of one kind
_NCCL_KERNEL = re.compile(r"(?:nccl|rccl|msccl)\w{0,120}?Kernel_(\w{1,120}?)_|(?:nccl|rccl|msccl)")
_OPERATIONS = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "allgather": "all_gather", "_allgather_base": "all_gather",
    "all_gather_into_tensor": "all_gather", "reducescatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "all_to_allv": "all_to_all", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all", "sendrecv": "send_recv", "bcast": "broadcast",
}  # fmt: skip


def collective_of(kernel: str) -> str | None:
    """What a kernel of NCCL or RCCL does as its name says it, `AllReduce`; None for other kernels."""
    match = _NCCL_KERNEL.match(kernel)
    return (match[1] or "collective") if match else None


def operation(name: str) -> str:
    """The name of a collective as all tables have it: `AllReduce` and `_allgather_base` -> all_reduce, all_gather."""
    return _OPERATIONS.get(name.lower(), name.lower())


@dataclass
class Spans:
    """Intervals in us, as many as `MOST`."""

    start: "array[float]" = field(default_factory=lambda: array("d"))
    stop: "array[float]" = field(default_factory=lambda: array("d"))
    left_out: int = 0

    def add(self, start: float, stop: float) -> None:
        """Append an interval."""
        if len(self.start) < MOST:
            self.start.append(start)
            self.stop.append(stop)
        else:
            self.left_out += 1

    def extend(self, starts: Iterable[float], stops: Iterable[float]) -> None:
        """Append intervals."""
        for start, stop in zip(starts, stops, strict=True):
            self.add(start, stop)

    def both(self) -> tuple[Floats, Floats]:
        """The starts, and the ends."""
        return np.array(self.start), np.array(self.stop)


class GpuTime(NamedTuple):
    """Seconds of one GPU, as in table `trace`."""

    span_s: float
    compute_s: float
    comm_s: float
    exposed_s: float
    copy_s: float
    idle_s: float
    gap_s: float  # the longest time in which it did nothing


def gpu_time(compute: Spans, comm: Spans, copy: Spans) -> GpuTime:
    """What a GPU did, of which at least one interval is known."""
    others, talk, copies = compute.both(), comm.both(), copy.both()
    kernel = np.concatenate([others[0], talk[0]]), np.concatenate([others[1], talk[1]])
    every = np.concatenate([kernel[0], copies[0]]), np.concatenate([kernel[1], copies[1]])
    span = float(every[1].max() - every[0].min())
    busy, gap = _union_and_gap(*every)
    alone = union(*others)
    seconds = (span, alone, union(*talk), union(*kernel) - alone, union(*copies), span - busy, gap)
    return GpuTime(*(one / 1e6 for one in seconds))


def union(start: Floats, stop: Floats) -> float:
    """Length of the union of intervals."""
    return _union_and_gap(start, stop)[0]


def _union_and_gap(start: Floats, stop: Floats) -> tuple[float, float]:
    """Length of the union of intervals, and the longest time between two of them that no other covers."""
    if not start.size:
        return 0.0, 0.0
    order = np.argsort(start, kind="stable")
    start, stop = start[order], stop[order]
    reached = np.maximum.accumulate(np.concatenate([start[:1], stop[:-1]]))
    return float(np.maximum(stop - np.maximum(start, reached), 0).sum()), float(np.maximum(start - reached, 0).max())
