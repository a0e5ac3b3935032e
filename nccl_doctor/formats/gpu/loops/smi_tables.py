"""Tables of plain `nvidia-smi` that one node printed again and again: `nvidia-smi -l 5`, `while true; do nvidia-smi; sleep 5; done`.

Nothing says that tables without a prefix are of one node. They count as samples of it where there are many, each with the same
GPUs, nothing else between them than the time, and these times go on evenly. A loop over nodes names the nodes.
"""

import math
import re
from array import array
from collections.abc import Mapping

import numpy as np

from nccl_doctor.common.timestamps import asctime_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Floats, Gpu, Place
from nccl_doctor.inputs.streams import Readable

_LEAST = 10  # tables
_EVENLY = 0.8  # of the gaps between tables are within a second, or half, of the usual one
_UNTIMED = 0.1  # of the tables that may lack a time, such as the first of a log
_MOST = 1 << 22  # rows that are kept
_HEAD = re.compile(
    rb"(?:([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}) {0,20}\r?\n)?\+[-+]{20,200} {0,20}\r?\n\| NVIDIA-SMI \d"
)
_LONGEST_HEAD = 320  # bytes
_COLUMNS = {  # of the samples: what the table's second line of a GPU calls them
    "util": "util", "power": "power", "power_limit": "power_limit", "temperature": "temperature", "memory": "memory_used",
    "memory_total": "memory_total",
}  # fmt: skip


class Clocks:
    """A stream that notes the times above the tables, which count as prefixes of lines to those who read it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._rest = b""
        self.times = array("d")  # seconds since the epoch, as the node writes them; NaN for a table without one

    def read(self, size: int) -> bytes:
        """Read on."""
        data = self._stream.read(size)
        text, end = self._rest + data, 0
        for head in _HEAD.finditer(text):
            when = asctime_seconds(head[1].decode("ascii")) if head[1] is not None else None
            self.times.append(math.nan if when is None else when)
            end = head.end()
        self._rest = text[max(end, len(text) - _LONGEST_HEAD) :]
        return data


class TableLoop:
    """The tables of one node, in their order."""

    def __init__(self) -> None:
        self._gpus: dict[int, tuple[object, object]] = {}  # index -> bus id and model
        self._rows = array("q")  # table, index and line of each
        self._values = {name: array("d") for name in _COLUMNS}
        self._tables = 0
        self._others = 0  # lines that are neither of a table nor a time
        self._same = True  # GPUs in each table

    def begin(self) -> None:
        """A table begins."""
        self._tables += 1

    def beside(self, text: str) -> None:
        """Take a line that is not of a table."""
        self._others += bool(text.strip())

    def take(self, gpu: int, known: Mapping[str, object], load: Mapping[str, object], line: int) -> None:
        """Take what a table says of one GPU, and the number of its line."""
        who = known["pci"], known["model"]
        self._same = self._same and self._gpus.setdefault(gpu, who) == who
        if not self._same or len(self._rows) >= 3 * _MOST:
            return
        self._rows.extend((self._tables - 1, gpu, line))
        for name, key in _COLUMNS.items():
            value = load.get(key)
            self._values[name].append(float(value) if isinstance(value, int | float) else math.nan)

    def write(self, facts: Facts, file: str, host: str | None, clocks: Clocks) -> None:
        """Add the samples, where the tables are a loop."""
        tables, times = self._tables, np.array(clocks.times)
        rows = np.array(self._rows, np.int64).reshape(-1, 3)
        whole = np.bincount(rows[:, 0], minlength=tables) if len(rows) else np.zeros(tables, np.int64)
        if not self._same or tables < _LEAST or self._others > _UNTIMED * tables:
            return
        if len(times) != tables or not _is_even(times):
            return
        if not len(rows) or (whole[:-1] != len(self._gpus)).any():
            return
        samples = Samples()
        slots = {
            number: samples.slot(number, lambda number=number: Gpu(host, number, None, self._model(number)))  # type: ignore[misc]
            for number in self._gpus
        }

        def place(row: int) -> Place:
            number = int(rows[row, 2])
            return number, f"GPU {rows[row, 1]} in table {rows[row, 0] + 1:,} of nvidia-smi"

        samples.add(
            Batch(
                np.array([slots[number] for number in rows[:, 1].tolist()], np.int64),
                {name: np.array(values) for name, values in self._values.items()},
                times[rows[:, 0]],
                place,
            )
        )
        samples.write(facts, file, "nvidia-smi")

    def _model(self, number: int) -> str | None:
        model = self._gpus[number][1]
        return model if isinstance(model, str) else None


def _is_even(times: Floats) -> bool:
    """Whether the times of tables go on, at about the same pace."""
    known = times[np.isfinite(times)]
    if len(known) < (1 - _UNTIMED) * len(times):
        return False
    gaps = np.diff(known)
    usual = float(np.median(gaps))
    if known[-1] <= known[0] or (gaps < 0).any():  # `-lms 200` prints several tables a second
        return False
    return float((np.abs(gaps - usual) <= max(1.0, usual / 2)).mean()) >= _EVENLY
