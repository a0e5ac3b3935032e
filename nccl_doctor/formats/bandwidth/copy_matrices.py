"""Matrices of copies: `nvbandwidth` as text and with `--json`, on one node and on several, and `p2pBandwidthLatencyTest`."""

import re
from itertools import count

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.bandwidth import nvbandwidth_json
from nccl_doctor.formats.bandwidth.matrix import Device, Matrix, without_matrix
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_HEADS = re.compile(
    rb"nvbandwidth Version: |Running [a-z]\w{2,80}\.|\(column\) bandwidth \(GB/s\)"
    rb"|P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|P2P=(?:Enabled|Disabled) "
)
_RUNNING = re.compile(r"Running ([a-z]\w{2,80})\.+\s*$")
_TITLE = re.compile(r"(\S.{4,100}?) ?\((GB/s|ns|us)\)$|(Bisect benchmarking.{0,60})$")
_COLUMNS = re.compile(r" {0,40}(?:(?:D\\D|GPU|CPU) )? {0,40}\b0(?: {1,40}\d{1,4})*$")
_CELL = r"(?:\d{1,9}(?:\.\d{1,6})?(?:e[+-]\d{1,3})?|N/A)"
_ROW = re.compile(rf"\s*(\d{{1,4}})(?:->\s*(\d{{1,4}}))?((?:\s+{_CELL})+)\s*$")
_SUM = re.compile(r"SUM ([a-z]\w{2,80}) (\d{1,12}(?:\.\d{1,6})?)\s*$")
_DEVICE = re.compile(r"Device:? (\d{1,4})[:,] (\S.{1,120}?)(?: \([\da-fA-F:]{8,20}\)|, pciBusID: .{1,80})?\s*$")
_PROCESS = re.compile(
    r"Process +(\d{1,6}) \((\S{1,253})\): device (\d{1,4}): (\S.{1,120}?)(?: \([\da-fA-F:]{8,20}\))?\s*$"
)
_ENDED = re.compile(r"(?:ERROR|Error|Waived|WAIVED): ?(.{0,300})$")
_FAILED = re.compile(
    r"\[?(?:CUDA_ERROR_\w{2,60}|cudaError[A-Z]\w{2,60})|Invalid value when checking the pattern|NVML_ERROR_\w{2,60}"
)
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,253}$")
_UNITS = ("(GB/s)", "(ns)", "(us)", " CE BW")
_STARTS = ("SUM ", "Running ")
_ABOUT = (
    "Process ",
    "Device",
    "nvbandwidth Version: ",
    "[P2P",
    "ERROR",
    "Error",
    "Waived",
    "WAIVED",
    "[CUDA",
    "[cudaError",
    "CUDA_ERROR",
    "Invalid value",
    "NVML_ERROR",
)
_KEEP = 60  # lines after the last that said something
_MOST = 200_000  # cells of a file


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every matrix of a file.

    Source: NVIDIA/nvbandwidth `inline_common.h`, `output.cpp`, `json_output.cpp` (0.1 to 0.9), NVIDIA/cuda-samples
    `p2pBandwidthLatencyTest.cu`::

        memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
                   0         1         2         3
         0     55.63     55.64     27.80     55.61
    """
    facts.mark_covered("copy_test", "copy_rate")
    first = facts.query("SELECT coalesce(max(number), 0) FROM copy_test")[0][0] + 1
    head = read_head(stream, 1 << 16)
    stream = Joined(head, stream)
    if begins_json(head):
        return nvbandwidth_json.read_json(stream, name, facts, first)
    budget = _Budget(first)
    readers: dict[str | None, _Reader] = {}  # of the hosts that a prefix names
    sections = Sections(stream, _HEADS, _KEEP)
    for first_line, label, texts in sections.batches():
        if budget.cells > _MOST:
            continue
        reader = readers.get(label.host)
        if reader is None:
            reader = readers[label.host] = _Reader(name, facts, budget, label.host)
        last = 0
        for number, text in enumerate(texts, first_line):
            if reader.line(text.rstrip(), number):
                last = number
        if last:
            sections.used(last)
    for reader in readers.values():
        reader.ends()
    note = f"holds more than {_MOST:,} numbers; the others were left out" if budget.cells > _MOST else None
    return Reading(sections.lines, sum(reader.used for reader in readers.values()), note)


class _Budget:
    """What the readers of a file share: the number of the next test, and how many numbers they took."""

    def __init__(self, first: int) -> None:
        self.tests = count(first)
        self.cells = 0


class _Reader:
    """What one host wrote into a file, while it is being read."""

    def __init__(self, name: str, facts: Facts, budget: _Budget, host: str | None) -> None:
        self._name = name
        self._facts = facts
        self._budget = budget
        self._label = host
        self._tool = "nvbandwidth"
        self._devices: dict[int, Device] = {}
        self._host: str | None = None
        self._before = ""
        self._test: str | None = None
        self._title: tuple[str, str] | None = None
        self._matrix: Matrix | None = None
        self.used = 0

    def line(self, text: str, number: int) -> bool:
        """Take a line; returns whether it says something."""
        said = self._line(text, number)
        self._before = text
        self.used += said
        return said

    def _line(self, text: str, number: int) -> bool:
        if self._matrix is not None and self._row(text, number):
            return True
        if not text:
            return False
        if not text.startswith(_STARTS):
            return self._other(text, number)
        if (match := _SUM.match(text)) is not None:
            if self._matrix is not None:
                self._matrix.test, self._matrix.total = match[1], float(match[2])
            self.ends()
            return True
        if (match := _RUNNING.match(text)) is not None:
            self.ends()
            self._test, self._tool = match[1], "nvbandwidth"
            return True
        return False

    def _other(self, text: str, number: int) -> bool:
        """A line that neither begins a test nor ends one: a title, the numbers of columns, or what is said of the run."""
        if text.endswith(_UNITS) and (match := _TITLE.match(text)) is not None:
            self.ends()
            self._title = (match[1] or match[3]).strip(), match[2] or "GB/s"
            if "P2P=" in text:  # also where its first lines were left out
                self._tool, self._test = "p2pBandwidthLatencyTest", None
            return True
        if self._title is not None and text[0] == " " and _COLUMNS.match(text):
            labels = [part for part in text.split() if part.isdigit()]
            title, unit = self._title
            if text.lstrip().startswith("CPU"):
                title += " by the CPU"
            self.ends()
            if labels == [str(at) for at in range(len(labels))]:
                test = self._test if self._tool == "nvbandwidth" else None
                self._matrix = Matrix(title, unit, test)
                self._matrix.columns = len(labels)
            return True
        return text.startswith(_ABOUT) and self._about(text, number)

    def _about(self, text: str, number: int) -> bool:
        """A line on the run, a device, or the end of a test."""
        if (match := _PROCESS.match(text)) is not None:
            self._devices[int(match[1])] = Device(match[2].partition(".")[0], int(match[3]), match[4])
            return True
        if (match := _DEVICE.match(text)) is not None:
            if match[1] == "0":
                self._devices.clear()
                self._host = self._label or (self._before if _HOST.match(self._before) else None)
            self._devices[int(match[1])] = Device(self._host, int(match[1]), match[2])
            return True
        if text.startswith("nvbandwidth Version: "):
            self._devices.clear()
            self._tool = "nvbandwidth"
            return True
        if "GPU Bandwidth Latency Test" in text:
            self._devices.clear()
            self._tool, self._test = "p2pBandwidthLatencyTest", None
            return True
        ended = _ENDED.match(text)
        if self._test is not None and (ended is not None or _FAILED.search(text)):
            self._stopped("waived" if text[:6].lower() == "waived" else "error", text, number)
            return True
        return False

    def _stopped(self, status: str, text: str, number: int) -> None:
        """A test that gave no matrix."""
        ref = self._facts.evidence(self._name, number, text)
        self._facts.add(
            [without_matrix(next(self._budget.tests), self._name, self._test or "", status, text, self._devices, ref)]
        )

    def _row(self, text: str, number: int) -> bool:
        matrix = self._matrix
        if matrix is None or (match := _ROW.match(text)) is None:
            return False
        cells = match[3].split()
        if len(cells) != matrix.columns:
            return False
        self._budget.cells += len(cells)
        values = [None if cell == "N/A" else float(cell) for cell in cells]
        partner = int(match[2]) if match[2] else None
        matrix.rows.append((int(match[1]), partner, values, number, text.strip()))
        return True

    def ends(self) -> None:
        """Add the open matrix, if any."""
        matrix, self._matrix = self._matrix, None
        if matrix is None or not matrix.rows:
            return
        self._facts.add(matrix.facts(self._facts, self._name, next(self._budget.tests), self._tool, self._devices))
