"""The table that `nvidia-smi` prints without options, alone or inside a log, also from many nodes.

Of several tables of one node the last counts, but of errors the worst: nothing says that tables without a prefix are of one node.
Those of a loop are samples, too.
"""

import re
from functools import lru_cache
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuHealth, GpuProcess, NodeDriver, NodeGpu
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.loops.smi_tables import Clocks, TableLoop
from nccl_doctor.formats.gpu.refusals import Refusal, error_row, is_refused, refusal
from nccl_doctor.formats.line_forms import RowSpans
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_Node = tuple[str | None, int | None]
_HOSTS = 4096
_GPUS = 64
_PROCESSES = 4096  # of a node
_TABLE_HEADS = re.compile(rb"\| NVIDIA-SMI \d")
_TABLE_HEAD = re.compile(
    r"\| NVIDIA-SMI \S{1,20} [^|]{1,80}?(?:Driver|KMD) Version: (\S{1,20})(?: {1,40}CUDA (?:UMD )?Version: (?:(\d{1,3})\.(\d{1,2}))?)?"
)
_TABLE_NAME = re.compile(r" {1,4}(\d{1,3}) {1,3}(\S.{0,40}?) {1,40}(On|Off|N/A|ERR!|TCC|WDDM|MCDM) {0,3}$")
_TABLE_BUS = re.compile(r" {0,3}((?:[0-9A-Fa-f]{4}){1,2}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d) {1,3}")
_TABLE_LOAD = re.compile(r" {0,4}(\S{1,5}) {1,6}(\S{1,5}) {1,6}(\S{1,5}) {1,14}(\S{1,6}) / {1,5}(\S{1,6}) {0,3}$")
_TABLE_MEMORY = re.compile(r" {0,12}(\d{1,8})MiB / {0,8}(\d{1,8})MiB")
_loads = RowSpans(_TABLE_LOAD)
_TABLE_MIG = re.compile(r"(Enabled|Disabled|N/A)\*? {0,3}$")

# Processes of an instance of a divided GPU, whose numbers stand in the second and third column, share nothing.
_TABLE_PROCESS = re.compile(
    r" {1,6}(\d{1,3}) {1,12}(?:N/A {1,4}N/A {1,12})?(\d{1,10}) {1,7}(C|G|C\+G|M|M\+C) {1,4}"
    r"(\S.{0,90}?) {1,60}(?:(\d{1,8})MiB|N/A) {1,8}$"
)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all tables; a file whose GPUs `nvidia-smi -q` shows in full needs none.

    Source: `nvidia-smi` of drivers 390 and newer::

        |   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                   12 |
        | N/A   87C    P0            310W /  700W |   70123MiB /  81559MiB |    100%      Default |
    """
    facts.mark_covered("node_driver", "node_gpu", "gpu_health", "gpu_process", "node_gpu_error")
    known = bool(
        facts.query("SELECT 1 FROM node_gpu g JOIN evidence e ON e.id = g.ref WHERE e.file = ? LIMIT 1", (name,))
    )
    clocks = Clocks(stream)
    sections = Sections(clocks, _TABLE_HEADS)
    tables: dict[_Node, _Table] = {}
    used, last = 0, (0, "")
    for first, label, texts in sections.batches():
        node = label.host, label.rank  # `srun -l` prints ranks
        table = tables.get(node)
        taken = 0
        for number, text in enumerate(texts, first):
            match = _TABLE_HEAD.match(text) if "NVIDIA-SMI" in text else None
            if match is not None:
                if table is None and len(tables) < _HOSTS:
                    table = tables[node] = _Table()
                if table is not None:
                    table.begin(match, number, text.strip())
            elif table is None or not table.take(number, text):
                if table is not None and text[:1] not in "+|":
                    table.loop.beside(text)
                continue
            used += 1
            taken = number
        last = number, text.lstrip()[:1]
        if taken:
            sections.used(taken)
    if not known:
        _add(facts, name, tables)
    for (host, _), table in tables.items():
        table.loop.write(facts, name, host, clocks)
    facts.add(
        _process(host, match, facts.evidence(name, *line))
        for (host, _), table in tables.items()
        for match, line in table.processes.values()
    )
    cut = last == (sections.lines, "|")  # a table ends with a line of dashes
    note = f"ends in line {last[0]}, inside the table of nvidia-smi: the file is cut" if cut else None
    return Reading(sections.lines, used, note)


class _Table:
    """The tables of one node, the last over those before."""

    def __init__(self) -> None:
        self.driver = ""
        self.cuda: int | None = None
        self.head = 0, ""
        self.gpus: dict[int, dict[str, Any]] = {}
        self.refusals: dict[int, list[Refusal]] = {}
        self.processes: dict[tuple[int, int], tuple[re.Match[str], tuple[int, str]]] = {}
        self.loop = TableLoop()
        self._open: dict[str, Any] | None = None  # the GPU whose second and third line follow

    def begin(self, match: re.Match[str], number: int, text: str) -> None:
        self.driver, self.head = match[1], (number, text)
        self.cuda = int(match[2]) * 1000 + int(match[3]) * 10 if match[2] else None
        self._open = None
        self.loop.begin()
        self.processes.clear()

    def take(self, number: int, text: str) -> bool:
        """Take a line of a GPU or a process; False for any other."""
        if "|" not in text:
            return False
        text = text.strip()
        cells = text.split("|")
        if len(cells) == 3 and (match := _TABLE_PROCESS.match(cells[1])) is not None:
            if len(self.processes) < _PROCESSES:
                self.processes[int(match[1]), int(match[2])] = match, (number, text)
            return True
        if len(cells) != 5:
            return False
        _, name, bus, state, _ = cells
        line = number, text
        row = self._open
        if row is not None and _loads.of(name) is not None:
            row["load"] = name, bus, state
            self.loop.take(row["gpu"], row, _parse_load(name, bus, state)[0], number)
            if is_refused(text):
                self._refused(row["gpu"], _parse_load(name, bus, state)[1], line)
            return True
        if row is not None and not name.strip():
            mig = _parse_mig(state)
            if mig is not None:
                row["mig"] = {"Enabled": 1, "Disabled": 0}.get(mig)
                self._open = None
            return mig is not None
        parsed = _parse_name(name, bus, state)
        return parsed is not None and self._gpu(*parsed, line)

    def _gpu(self, gpu: int, known: dict[str, Any], cells: dict[str, str], line: tuple[int, str]) -> bool:
        if gpu not in self.gpus and len(self.gpus) >= _GPUS:
            self._open = None
            return False
        before = self.gpus.get(gpu, {})
        count = known["uncorrected"]
        # Errors only grow until a reset: a lower count is that of another node, or of this one after the reset.
        highest = before.get("uncorrected")
        worst = count if highest is None or (count is not None and count > highest) else highest
        health = line if worst == count else before["health"]
        self._open = self.gpus[gpu] = {**known, "uncorrected": worst, "line": line, "health": health}
        if is_refused(line[1]):
            self._refused(gpu, cells, line)
        return True

    def _refused(self, gpu: int, cells: dict[str, str], line: tuple[int, str]) -> None:
        found = [one for what, cell in cells.items() if (one := refusal(what, cell, line)) is not None]
        if found:
            self.refusals.setdefault(gpu, []).extend(found[: 20 - len(self.refusals.get(gpu, ()))])


@lru_cache(1 << 10)  # in each table the same
def _parse_name(name: str, bus: str, state: str) -> tuple[int, dict[str, Any], dict[str, str]] | None:
    """The first line of a GPU: its index, what is known of it, and the cells; None for another line."""
    match, place = _TABLE_NAME.match(name), _TABLE_BUS.match(bus)
    if match is None or place is None:
        return None
    ecc = state.strip()
    count = int(ecc) if ecc.isdecimal() else None
    known = {
        "gpu": int(match[1]),
        "model": None if match[2].endswith("...") or match[2] == "ERR!" else match[2],
        "persistence": {"On": 1, "Off": 0}.get(match[3]),
        "pci": place[1].lower()[-12:],
        "ecc": 0 if ecc == "Off" else 1 if count is not None else None,
        "uncorrected": count,
    }
    return int(match[1]), known, {"name": match[2], "persistence mode": match[3], "uncorrected errors": ecc}


@lru_cache(1 << 8)
def _parse_mig(state: str) -> str | None:
    """Whether the third line of a GPU says that it is divided; None for another line."""
    mig = _TABLE_MIG.search(state)
    return None if mig is None else mig[1]


@lru_cache(1 << 12)
def _parse_load(name: str, memory: str, state: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The second line of a GPU: what it says, and its cells."""
    match = _TABLE_LOAD.match(name)
    assert match is not None
    util = state.strip().split(" ")[0]
    known: dict[str, Any] = {"temperature": _whole(match[2]), "pstate": _whole(match[3]), "power": _whole(match[4])}
    known |= {"power_limit": _whole(match[5]), "util": _whole(util)}
    if (found := _TABLE_MEMORY.match(memory)) is not None:
        known |= {"memory_used": float(found[1]), "memory_total": float(found[2])}
    cells = {"fan": match[1], "temperature": match[2], "performance state": match[3], "power": match[4]}
    return known, {**cells, "power limit": match[5], "memory": memory, "utilisation": util}


def _process(host: str | None, match: re.Match[str], ref: int) -> GpuProcess:
    gpu, pid, kind, program, memory = match.groups()
    held = float(memory) if memory else None
    return GpuProcess(host, int(gpu), None, int(pid), kind, program, held, sm=None, n=1, first=0, last=0, ref=ref)


def _whole(text: str) -> int | None:
    digits = text.strip("PCW%")
    return int(digits) if digits.isdecimal() else None


def _add(facts: Facts, name: str, tables: dict[_Node, _Table]) -> None:
    rows: list[Any] = []
    for (host, _), table in tables.items():
        unknown: dict[str, Any] = dict.fromkeys(NodeDriver._fields)
        values = {
            "host": host,
            "source": "nvidia-smi",
            "driver": table.driver,
            "cuda": table.cuda,
            "gpus": len(table.gpus),
        }
        rows.append(NodeDriver(**{**unknown, **values, "ref": facts.evidence(name, *table.head)}))
        for gpu in table.gpus.values():
            if "load" in gpu:
                gpu |= _parse_load(*gpu["load"])[0]
            rows.append(_row(NodeGpu, {**gpu, "host": host, "ref": facts.evidence(name, *gpu["line"])}))
            rows.append(_row(GpuHealth, {**gpu, "host": host, "ref": facts.evidence(name, *gpu["health"])}))
        for number, cells in table.refusals.items():
            rows.append(error_row(facts, name, host, number, table.gpus[number]["pci"], cells))
    facts.add(rows)


def _row(table: type[NodeGpu] | type[GpuHealth], values: dict[str, Any]) -> NodeGpu | GpuHealth:
    row: dict[str, Any] = {column: values.get(column) for column in table._fields}
    return table(**row)
