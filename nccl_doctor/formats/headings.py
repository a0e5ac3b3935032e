"""The sections of a log that begin with a heading, for readers of files that hold nothing else.

======== ROCm System Management Interface ========       begins a section
step 120 loss 2.31 812.0 samples/s                       a line of a job ends it
"""

import re
from bisect import bisect_left
from collections.abc import Iterator

from nccl_doctor.formats.job_lines import job_lines
from nccl_doctor.formats.windows import SIZE, Parts
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable


class Sections(Parts):
    """A stream with those lines of another one that follow a heading, each time up to the next line of a job.

    An empty line stands for what is passed over. With `opened` the first section begins with the stream.
    """

    def __init__(self, stream: Readable, heading: re.Pattern[bytes], *, opened: bool = False) -> None:
        super().__init__(self._sections(stream))
        self._heading = heading
        self._opened = opened

    def _sections(self, stream: Readable) -> Iterator[bytes]:
        is_open = self._opened
        for block in blocks(stream, SIZE):
            data, number, counted = block.data, block.first, 0
            headings = [found.start() for found in self._heading.finditer(data)]
            ends = list(job_lines(data)) if is_open or headings else []
            at = 0
            while at < len(data):
                stops = ends if is_open else headings
                found = bisect_left(stops, at)
                stop = stops[found] if found < len(stops) else len(data)
                if is_open and stop > at:
                    number, counted = number + data.count(b"\n", counted, at), at
                    yield self._given(data[at:stop], number)
                if stop == len(data):
                    break
                if is_open:
                    yield self._given(b"\n", number + data.count(b"\n", counted, stop))
                at, is_open = stop, not is_open

    def _given(self, data: bytes, number: int) -> bytes:
        data = data if data.endswith(b"\n") else data + b"\n"
        self._numbers.add(number, data.count(b"\n"))
        return data
