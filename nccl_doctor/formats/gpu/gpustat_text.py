"""What `gpustat` prints without `--json`, as the records of its JSON."""

import re
from collections.abc import Iterator
from functools import lru_cache

from nccl_doctor.common.timestamps import asctime_seconds
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import line_lists

_CLOCK = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d"
HEAD = re.compile(
    rf"\A\s{{0,20}}[\w.-]{{1,253}} {{1,60}}{_CLOCK}[^\n]{{0,60}}\n\[\d{{1,3}}\] [^\n|]{{1,100}}\|".encode()
)
_TIME = re.compile(rf"([\w.-]{{1,253}}) {{1,60}}({_CLOCK})\b")
_GPU = re.compile(r"\[(\d{1,3})\] (\S.{0,80}?) {0,40}")
_MEMORY = re.compile(r" {0,8}(\d{1,8}) {0,4}/ {0,4}(\d{1,8}) MB\b")
_ROW = re.compile(rf"({_GPU.pattern.replace('(', '(?:')})\|(.{{3,60}}?)\|({_MEMORY.pattern.replace('(', '(?:')})")
_DEGREES = re.compile(r"(\d{1,3})(?:°|')C")
_SHARE = re.compile(r" {0,8}(\d{1,3}) % {0,8}")  # behind the speed of a fan, where that is shown: the load
_WATTS = re.compile(r"(\d{1,4}) {0,4}/ {0,4}(\d{1,4}) W")


Sample = tuple[int, str, str | None, str, tuple[int, str], tuple[str, ...], tuple[float, ...]]
"""Number and text of a line; host; seconds since the epoch, empty where no time is known; index and model of the GPU; columns, values."""


class Records:
    """The GPUs of each line, with the host and the time of the line above them."""

    def __init__(self, stream: Readable) -> None:
        self.lines = 0
        self.torn: int | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[Sample]:
        """What each line of a GPU says whose load is known.

        Source: `gpustat/core.py` of wookayin/gpustat (0.4 to 1.1), without colours::

            [3] NVIDIA A100-SXM4-80GB | 88°C,  12 %,  310 / 400 W | 70215 / 81920 MB | ada(70000M)
        """
        host, time = None, ""
        for first, texts in line_lists(self._stream):
            for number, line in enumerate(texts, first):
                cells = line.split("|", 3)
                if len(cells) > 2 and (gpu := _gpu(cells[0])) is not None and (used := _memory(cells[2])) is not None:
                    state = _state(cells[1])
                elif (row := _ROW.match(line)) is not None:  # of a model with a bar in its name
                    gpu, state, used = _gpu(row[1]), _state(row[2]), _memory(row[3])
                else:
                    if (head := _TIME.match(line.strip())) is not None:
                        when = asctime_seconds(head[2])
                        host, time = head[1], "" if when is None else str(when)
                    continue
                if gpu is not None and used is not None and state is not None:
                    yield number, line.strip(), host, time, gpu, state[0], used + state[1]
            self.lines = first + len(texts) - 1


@lru_cache(1 << 10)
def _gpu(cell: str) -> tuple[int, str] | None:
    """Index and model, `[3] NVIDIA A100-SXM4-80GB `."""
    found = _GPU.fullmatch(cell)
    return None if found is None else (int(found[1]), found[2])


@lru_cache(1 << 14)  # many lines say the same
def _state(cell: str) -> tuple[tuple[str, ...], tuple[float, ...]] | None:
    """Names of all columns of a line, and the values of those behind the memory; None where the load is not among them."""
    values: dict[str, float] = {}
    if (degrees := _DEGREES.search(cell)) is not None:
        values["temperature"] = float(degrees[1])
    shares = [share for part in cell.split(",") if (share := _SHARE.fullmatch(part)) is not None]
    if not shares or not 3 <= len(cell) <= 60:
        return None
    values["util"] = float(shares[-1][1])
    if (watts := _WATTS.search(cell)) is not None:
        values |= {"power": float(watts[1]), "power_limit": float(watts[2])}
    return ("memory", "memory_total", *values), tuple(values.values())


@lru_cache(1 << 14)
def _memory(cell: str) -> tuple[float, float] | None:
    """MiB of memory in use, and of all."""
    found = _MEMORY.match(cell)
    return None if found is None else (float(found[1]), float(found[2]))
