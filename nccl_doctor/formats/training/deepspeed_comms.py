"""Lines of DeepSpeed's communication logger (`comms_logger` with `verbose`): one timed collective each."""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CommOp
from nccl_doctor.inputs import prefixes

_LINE = compiled(
    rb"rank[:=] ?(\d+) \| comm op: (\w+)[^|]{0,200}\| time \(ms\): ([\d.]+) \| msg size: ([\d.]+) ?([KMGT]?B)"
    rb"(?: \| algbw \(Gbps\): [\d.]+ \| busbw \(Gbps\): ([\d.]+))?"
)
_UNITS = {b"B": 1, b"KB": 1 << 10, b"MB": 1 << 20, b"GB": 1 << 30, b"TB": 1 << 40}
_KEEP = 2_000  # times kept of one operation and size


class _Times:
    def __init__(self, number: int, line: bytes) -> None:
        self.n = 0
        self.times: list[float] = []
        self.busbw: list[float] = []
        self.slowest = 0.0
        self.place = number, line


class CommOps:
    """Folds the lines of a log."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str, int], _Times] = {}

    def note(self, line: bytes, number: int) -> int:
        """Take a line; 1 where it was one of these."""
        match = _LINE.search(line)
        if match is None:
            return 0
        size = round(float(match[4]) * _UNITS[match[5]])
        key = int(match[1]), match[2].decode(), size
        times = self._found.get(key)
        if times is None:
            times = self._found[key] = _Times(number, line)
        times.n += 1
        value = float(match[3])
        if len(times.times) < _KEEP:
            times.times.append(value)
            if match[6]:
                times.busbw.append(float(match[6]))
        if value > times.slowest:
            times.slowest, times.place = value, (number, line)
        return 1

    def rows(self, facts: Facts, file: str) -> Iterator[CommOp]:
        """One row for each rank, operation and size."""
        for (rank, op, size), times in self._found.items():
            number, line = times.place
            text = prefixes.clean(line[:600].decode("utf-8", "replace"))
            busbw = median(times.busbw) if times.busbw else None
            ref = facts.evidence(file, number, text)
            host = prefixes.split(text)[0].host
            yield CommOp(
                host=host, rank=rank, op=op, size=size, n=times.n, milliseconds=median(times.times),
                slowest=times.slowest, busbw=busbw, ref=ref,
            )  # fmt: skip
