"""The table that `nvidia-smi` prints without options, alone or inside a log, also from many nodes.

Of several tables of one node the last counts: load and power are of one moment anyway, and errors only grow until a reset. Processes are
left out: a capture that was taken while a job ran shows that job.
"""

import re
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuHealth, NodeDriver, NodeGpu
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_Node = tuple[str | None, int | None]
_HOSTS = 4096
_GPUS = 64
_TABLE_HEADS = re.compile(rb"\| NVIDIA-SMI \d")
_TABLE_HEAD = re.compile(
    r"\| NVIDIA-SMI \S{1,20} {1,40}(?:KMD Version: \S{1,20} {1,20})?Driver Version: (\S{1,20}) {1,40}CUDA Version: (\d{1,3})\.(\d{1,2}) "
)
_TABLE_GPU = re.compile(
    r"\| {1,4}(\d{1,3}) {1,3}(\S.{0,40}?) {1,40}(On|Off|N/A) {0,3}\| {0,3}([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d) "
    r"{1,3}\S{1,4} {0,3}\| {0,22}(\d{1,15}|Off|N/A|ERR!) {0,3}\|"
)
_TABLE_USE = re.compile(
    r"\| {0,4}(?:\d{1,3}%|N/A|ERR!) {1,5}(\d{1,3}C|N/A|ERR!) {1,6}(P\d{1,2}|N/A|ERR!) {1,14}(\d{1,5}W|N/A|ERR!) / "
    r"{1,5}(\d{1,5}W|N/A|ERR!) {0,3}\| {0,8}(\d{1,8})MiB / {0,8}(\d{1,8})MiB {0,3}\| {0,8}(\d{1,3}%|N/A|ERR!) "
)
_TABLE_MIG = re.compile(r"\| {5,60}\| {5,60}\| {5,40}(Enabled|Disabled)\*? ?\|")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all tables; a file whose GPUs `nvidia-smi -q` shows in full needs none.

    Source: `nvidia-smi` of drivers 390 and newer::

        |   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                   12 |
        | N/A   87C    P0            310W /  700W |   70123MiB /  81559MiB |    100%      Default |
    """
    facts.mark_covered("node_driver", "node_gpu", "gpu_health")
    known = bool(
        facts.query("SELECT 1 FROM node_gpu g JOIN evidence e ON e.id = g.ref WHERE e.file = ? LIMIT 1", (name,))
    )
    sections = Sections(stream, _TABLE_HEADS)
    drivers: dict[_Node, tuple[int, str, str, int]] = {}
    gpus: dict[_Node, dict[int, dict[str, Any]]] = {}
    latest: dict[_Node, dict[str, Any]] = {}  # the GPU whose second and third line follow
    used = 0
    for number, label, text in sections:
        node = label.host, label.rank  # `srun -l` prints ranks
        if (match := _TABLE_HEAD.match(text)) is not None:
            if node in drivers or len(drivers) < _HOSTS:
                drivers[node] = number, text.strip(), match[1], int(match[2]) * 1000 + int(match[3]) * 10
            latest.pop(node, None)
        elif node not in drivers:
            continue
        elif (match := _TABLE_GPU.match(text)) is not None:
            row = _gpu(match, number, text)
            if len(own := gpus.setdefault(node, {})) < _GPUS:
                latest[node] = own[row["gpu"]] = row
        elif node in latest and (match := _TABLE_USE.match(text)) is not None:
            latest[node].update(_use(match))
        elif node in latest and (match := _TABLE_MIG.match(text)) is not None:
            latest.pop(node)["mig"] = int(match[1] == "Enabled")
        else:
            continue
        used += 1
        sections.used()
    if not known:
        _add(facts, name, drivers, gpus)
    return Reading(sections.lines, used)


def _gpu(match: re.Match[str], number: int, text: str) -> dict[str, Any]:
    ecc = match[5]
    return {
        "gpu": int(match[1]),
        "model": None if match[2].endswith("...") else match[2],
        "persistence": {"On": 1, "Off": 0}.get(match[3]),
        "pci": match[4].lower()[-12:],
        "ecc": 0 if ecc == "Off" else 1 if ecc.isdecimal() else None,
        "uncorrected": int(ecc) if ecc.isdecimal() else None,
        "line": (number, text.strip()),
    }


def _use(match: re.Match[str]) -> dict[str, Any]:
    def whole(text: str) -> int | None:
        digits = text.strip("PCW%")
        return int(digits) if digits.isdecimal() else None

    return {
        "temperature": whole(match[1]),
        "pstate": whole(match[2]),
        "power": whole(match[3]),
        "power_limit": whole(match[4]),
        "memory_used": float(match[5]),
        "memory_total": float(match[6]),
        "util": whole(match[7]),
    }


def _add(
    facts: Facts,
    name: str,
    drivers: dict[_Node, tuple[int, str, str, int]],
    gpus: dict[_Node, dict[int, dict[str, Any]]],
) -> None:
    rows: list[Any] = []
    for node, (number, text, driver, cuda) in drivers.items():
        host = node[0]
        unknown: dict[str, Any] = dict.fromkeys(NodeDriver._fields)
        own = gpus.get(node, {})
        values = {"host": host, "source": "nvidia-smi", "driver": driver, "cuda": cuda, "gpus": len(own)}
        rows.append(NodeDriver(**{**unknown, **values, "ref": facts.evidence(name, number, text)}))
        for gpu in own.values():
            both = {**gpu, "host": host, "ref": facts.evidence(name, *gpu["line"])}
            rows += [_row(NodeGpu, both), _row(GpuHealth, both)]
    facts.add(rows)


def _row(table: type[NodeGpu] | type[GpuHealth], values: dict[str, Any]) -> NodeGpu | GpuHealth:
    row: dict[str, Any] = {column: values.get(column) for column in table._fields}
    return table(**row)
