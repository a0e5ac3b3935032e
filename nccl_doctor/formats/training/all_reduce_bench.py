"""Output of `all_reduce_bench.py`, a benchmark of torch.distributed that many sites start from."""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CommOp
from nccl_doctor.inputs import prefixes

LITERALS = (b" data size: ", b" duration: ", b" busbw: ")
_LINE = compiled(
    rb"(?:(data size): (\d+(?:\.\d*)?) GB| (duration): (\d+(?:\.\d*)?) sec| (busbw): (\d+(?:\.\d*)?) +Gbps)"
    rb"(?:\x1b\[[\d;]{0,20}m|\s){0,20}(?:$|[\"\\<])"  # a collector's record goes on behind it
)
_KEEP = 2_000  # numbers kept of each kind


class AllReduceBench:
    """Gathers what all ranks print; their lines are mixed, so they count together.

    Source: stas00/ml-engineering `all_reduce_bench.py`, one block a rank and repetition::

        0 data size: 4.0 GB
         duration: 0.6633 sec
         algo throughput: 96488131490.3540 bps, 96.4881 Gbps
         busbw: 72.3661  Gbps
    """

    def __init__(self) -> None:
        self._size = 0
        self._seconds: list[float] = []
        self._busbw: list[float] = []
        self._place = 0, b""

    def note(self, line: bytes, number: int) -> int:
        """Take a line; 1 where it was one of these."""
        match = _LINE.search(line)
        if match is None:
            return 0
        if match[1]:
            self._size = round(float(match[2]) * 1e9)
        elif match[3] and len(self._seconds) < _KEEP:
            self._seconds.append(float(match[4]))
        elif match[5] and len(self._busbw) < _KEEP:
            self._busbw.append(float(match[6]))
            self._place = number, line
        return 1

    def rows(self, facts: Facts, file: str) -> Iterator[CommOp]:
        """One row, where sizes, times and bandwidths were printed."""
        if not (self._size and self._seconds and self._busbw):
            return
        number, line = self._place
        ref = facts.evidence(file, number, prefixes.clean(line[:600].decode("utf-8", "replace")))
        milliseconds = [1000 * seconds for seconds in self._seconds]
        yield CommOp(
            host=None, rank=None, op="all_reduce", size=self._size, n=len(self._busbw),
            milliseconds=median(milliseconds), slowest=max(milliseconds),
            busbw=median(self._busbw), ref=ref,
        )  # fmt: skip
