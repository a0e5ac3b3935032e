"""What `gpustat` prints without `--json`, as the records of its JSON."""

import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.timestamps import asctime_seconds
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_CLOCK = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d"
HEAD = re.compile(
    rf"\A\s{{0,20}}[\w.-]{{1,253}} {{1,60}}{_CLOCK}[^\n]{{0,60}}\n\[\d{{1,3}}\] [^\n|]{{1,100}}\|".encode()
)
_TIME = re.compile(rf"([\w.-]{{1,253}}) {{1,60}}({_CLOCK})\b")
_GPU = re.compile(r"\[(\d{1,3})\] (\S.{0,80}?) {0,40}\|(.{3,60}?)\| {0,8}(\d{1,8}) {0,4}/ {0,4}(\d{1,8}) MB\b")
_DEGREES = re.compile(r"(\d{1,3})(?:°|')C")
_SHARE = re.compile(r" {0,8}(\d{1,3}) % {0,8}")  # behind the speed of a fan, where that is shown: the load
_WATTS = re.compile(r"(\d{1,4}) {0,4}/ {0,4}(\d{1,4}) W")


class Records:
    """The GPUs of each line, with the host and the time of the line above them."""

    def __init__(self, stream: Readable) -> None:
        self.lines = 0
        self.torn: int | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Number and text of each line of a GPU, and what it says.

        Source: `gpustat/core.py` of wookayin/gpustat (0.4 to 1.1), without colours::

            [3] NVIDIA A100-SXM4-80GB | 88°C,  12 %,  310 / 400 W | 70215 / 81920 MB | ada(70000M)
        """
        about: dict[str, Any] = {}
        for number, line in lines(self._stream):
            self.lines = number
            if (match := _GPU.match(line)) is not None:
                index, model, state, used, total = match.groups()
                record = {"index": int(index), "name": model, "memory.used": int(used), "memory.total": int(total)}
                if (degrees := _DEGREES.search(state)) is not None:
                    record["temperature.gpu"] = int(degrees[1])
                if shares := [share for cell in state.split(",") if (share := _SHARE.fullmatch(cell)) is not None]:
                    record["utilization.gpu"] = int(shares[-1][1])
                if (watts := _WATTS.search(state)) is not None:
                    record |= {"power.draw": int(watts[1]), "enforced.power.limit": int(watts[2])}
                yield number, line.strip(), about | {"gpus": [record]}
            elif (head := _TIME.match(line.strip())) is not None:
                when = asctime_seconds(head[2])
                about = {"hostname": head[1]} | ({"query_time": when} if when is not None else {})
