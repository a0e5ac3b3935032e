"""Times of the parts of a step on each rank: Megatron-LM's timers over ranks, and lines of loops of people's own."""

from array import array
from collections.abc import Iterator
from functools import lru_cache

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RankTime
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.steps.step_writers import named_rank, writer_of
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
_LINES = 400_000  # lines of parts that are read
_NAMES = 64  # parts of a file
_SERIES = 65_536  # of all parts and ranks
_VALUES = 256  # of one part of a rank, for its median
_LONGEST = 600  # bytes of a line
_HEAD = compiled(rb"(?:(?P<all>times)|\(min, max\) time|(?P<most>max time)) across ranks \(ms\):")
_NAME = compiled(rb"  ([a-z][\w-]{2,60}):\s*\Z")
_RANK = compiled(rb"     rank {1,6}(\d{1,7}): (\d{1,12}(?:\.\d{1,6})?)\s*\Z")
_RANGE = compiled(rb"    ([a-z][\w-]{2,60}) \.{2,60}: (?:\((\d{1,12}\.\d{1,6}), (\d{1,12}\.\d{1,6})\))\s*\Z")
_PART = compiled(
    rb"(?i)(?<![\w.-])(data(?:_?load(?:er|ing)?|_?wait)?|load(?:ing)?|fwd|forward|bwd|backward|opt|optim|optimizer|update|comm|all_?reduce|sync|h2d"
    rb"|compute|io|loss)(?:[_ ](?:time|pass))?(?:[_ ](ms|s))?[\"']?[ \t]{0,2}[:=]?[ \t]{0,3}(\d{1,12}\.\d{1,9})[ \t]?(ms|s|sec)?(?![\w.%/])"
)
_WORDS = b"fwd", b"bwd", b"orward", b"ackward", b"ompute"
_TELLS = frozenset((b"fwd", b"forward", b"bwd", b"backward", b"compute"))


_Key = tuple[str | None, int | None, str, str | None]  # host, rank, name, unit


@lru_cache(1 << 14)
def _writer(text: bytes) -> tuple[str | None, int | None]:
    """Host and rank of a line that begins so."""
    return writer_of(text + b" ", len(text) + 1, anywhere=True)[:2]


class _Times:
    """The times of one part on one rank."""

    def __init__(self) -> None:
        self.n = 0
        self.values = array("d")
        self.least = array("d")  # on the fastest rank, where lines tell the slowest and the fastest
        self.slowest = -1.0
        self.place = 0, b""

    def add(self, value: float, line: bytes, number: int, least: float | None = None) -> None:
        self.n += 1
        if len(self.values) < _VALUES:
            self.values.append(value)
            if least is not None:
                self.least.append(least)
        if value > self.slowest:
            self.slowest, self.place = value, (number, line)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read times of parts of a step, which lines tell by the name of the part.

    Source: Megatron-LM `core/timers.py` with `--timing-log-level 2` and `--timing-log-option all` or `minmax`, and people's own loops::

        times across ranks (ms):
          forward-compute:
             rank  0: 1010.21
        (min, max) time across ranks (ms):
            forward-compute ................................: (1010.21, 1893.55)
        rank 3: data 0.101 fwd 0.541 bwd 0.902
    """
    facts.mark_covered("rank_time")
    times = RankTimers()
    lines = 0
    for block in blocks(stream, _BLOCK):
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        times.block(block.data, block.first)
    if not times.tells:
        return Reading(lines, 0)
    facts.add(times.rows(facts, name))
    note = f"only the first {_LINES:,} lines with times of ranks were read" if times.used >= _LINES else None
    return Reading(lines, times.used, note)


class RankTimers:
    """The parts of all ranks of one file."""

    def __init__(self) -> None:
        self.used = 0
        self._times: dict[_Key, _Times] = {}
        self._names: set[str] = set()
        self._open: str | None = None  # timer whose ranks follow
        self._kind = ""  # all, minmax, or of no table

    def block(self, data: bytes, first: int) -> None:
        """Take the lines of a block that tell times."""
        for number, line in enumerate(data.split(b"\n"), first):
            if len(line) <= _LONGEST and self.used < _LINES and self._line(line, number):
                self.used += 1

    def _line(self, line: bytes, number: int) -> bool:
        if self._open is not None and (rank := _RANK.search(line)) is not None:
            return self._add((None, int(rank[1]), self._open, "s"), float(rank[2]) / 1000, line, number)
        if b" across ranks (ms):" in line and (head := _HEAD.search(line)) is not None:
            self._kind = "all" if head["all"] else "" if head["most"] else "minmax"
            self._open = None
            return True
        if self._kind == "all" and line.rstrip().endswith(b":") and (name := _NAME.search(line)) is not None:
            self._open = name[1].decode()
            return True
        if self._kind == "minmax" and b" .." in line and (least := _RANGE.search(line)) is not None:
            key = None, None, least[1].decode(), "s"
            return self._add(key, float(least[3]) / 1000, line, number, float(least[2]) / 1000)
        return any(word in line for word in _WORDS) and self._parts(line, number)

    def _parts(self, line: bytes, number: int) -> bool:
        """`rank 3: data 0.101 fwd 0.541 bwd 0.902`: two parts or more, and whose they are."""
        parts = _PART.findall(line)
        if len(parts) < 2 or not any(part[0].lower() in _TELLS for part in parts):
            return False
        named = named_rank(line, 0, anywhere=True)
        if named is None:
            return False
        host, rank = _writer(line[: named[1]])
        for name, inner, value, behind in parts:
            if name.lower() != b"loss":
                unit = (behind or inner).decode().lower()
                seconds = float(value) * (1e-3 if unit == "ms" else 1.0)
                self._add((host, rank, name.decode().lower(), "s" if unit else None), seconds, line, number)
        return True

    def _add(self, key: _Key, value: float, line: bytes, number: int, least: float | None = None) -> bool:
        times = self._times.get(key)
        if times is None:
            if len(self._times) >= _SERIES or (key[2] not in self._names and len(self._names) >= _NAMES):
                return False
            self._names.add(key[2])
            times = self._times[key] = _Times()
        times.add(value, line, number, least)
        return True

    @property
    def tells(self) -> bool:
        """Whether ranks can be compared: those of one alone tell nothing of it."""
        ranks = {(host, rank) for host, rank, *_ in self._times}
        return len(ranks) > 1 or (None, None) in ranks

    def rows(self, facts: Facts, file: str) -> Iterator[RankTime]:
        """A row for each part of each rank."""
        for (host, rank, name, unit), times in self._times.items():
            number, line = times.place
            text = prefixes.clean(line.decode("utf-8", "replace")).strip()
            if rank is not None and name not in text.lower():  # Megatron-LM names the part above
                text = f"{name}: {text}"
            yield RankTime(
                file=file, host=host, rank=rank, name=name, n=times.n, seconds=median(times.values), unit=unit,
                least=median(times.least) if times.least else None, slowest=times.slowest, ref=facts.evidence(file, number, text),
            )  # fmt: skip
