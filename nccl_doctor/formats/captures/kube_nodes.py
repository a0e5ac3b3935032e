"""Nodes of Kubernetes and what they and pods use: `kubectl get nodes`, `kubectl describe node`, `kubectl top nodes`, `kubectl top pods`."""

import re
from collections.abc import Callable, Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, KubeNode
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_MOST = 100_000  # nodes and pods of one file
_NAME = r"[a-z0-9][a-z0-9.-]{0,252}"
_NODES = re.compile(r"NAME +STATUS +ROLES +AGE +VERSION\b")
_NODE = re.compile(
    rf"(?P<name>{_NAME}) +(?P<status>(?:Not)?Ready[\w,]{{0,80}}|Unknown[\w,]{{0,80}}) +\S{{1,200}} +\S{{1,16}} +v\d"
)
_USE = re.compile(r"(?:NAMESPACE +)?(?:POD +)?NAME +CPU\(cores\) +(?P<shares>CPU\(?%\)? +)?MEMORY\(bytes\)")
_DESCRIBED = re.compile(rf"Name: {{2,40}}(?P<name>{_NAME})\s*$")
_CONDITION = re.compile(
    r" {2}(?P<type>[A-Z][A-Za-z]{2,60}) +(?P<status>True|False|Unknown) +\w{3}, \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4} +"
    r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4} +(?P<reason>\S{1,80})(?: +(?P<message>\S.{0,300}))?"
)
_GOOD = re.compile(r"(?:Ready|Healthy|Available)$")  # conditions that have to be true
_BAD = re.compile(
    r"(?:Pressure|Unavailable|Problem|Deadlock|Filesystem|FileSystem|Unhealthy|Errors?|Fail(?:ed|ure)|Restart|Lost|Down)$"
)
_CPU = re.compile(r"(\d{1,12})([mnu]?)")
_CORES = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_BYTES = re.compile(r"(\d{1,18})(|Ki|Mi|Gi|Ti)")
_SIZES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SHARE = re.compile(r"(\d{1,4})%")
Row = KubeNode | HostNumber
Parse = Callable[[str], Iterator[Row]]


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the nodes and the use of every list, and the conditions of every description.

    Source: staging/src/k8s.io/kubectl/pkg/metricsutil and pkg/describe, pkg/printers/internalversion of Kubernetes::

        gpu-node-2   NotReady   <none>   10d   v1.29.4
        gpu-node-1   95012m       99%    412311Mi        20%
          Ready   Unknown   Tue, 24 Nov 2026 10:11:12 +0000   Tue, 24 Nov 2026 08:11:12 +0000   NodeStatusUnknown   Kubelet stopped …
    """
    reader = _Reader()
    rows: list[Row] = []
    number = used = 0
    for number, _, text in plain_lines(stream):
        found = reader.take(text.rstrip("\r"))
        if found is None:
            continue
        used += 1
        if len(rows) < _MOST:
            rows += (row._replace(file=name, ref=facts.evidence(name, number, text.strip()[:600])) for row in found)
    facts.add(rows)
    facts.mark_covered("kube_node", "host_number")
    note = f"holds more than {_MOST:,} nodes and pods; the others were left out" if len(rows) >= _MOST else None
    return Reading(number, used, note)


class _Reader:
    def __init__(self) -> None:
        self._parse: Parse | None = None
        self._described: str | None = None

    def take(self, text: str) -> list[Row] | None:
        """The rows that a line gives; None for a line that is part of nothing."""
        if _NODES.match(text):
            self._parse = _node
            return []
        if (head := _USE.match(text)) is not None:
            titles = text.split()
            self._parse = lambda line: _use(line, titles.index("NAME"), shares=head["shares"] is not None)
            return []
        if (node := _DESCRIBED.match(text)) is not None:
            self._described, self._parse = node["name"], None
            return []
        if self._described is not None and (found := self._of_description(text)) is not None:
            return found
        if self._parse is None:
            return None
        rows = list(self._parse(text))
        if not rows and not text.strip():
            self._parse = None
        return rows or None

    def _of_description(self, text: str) -> list[Row] | None:
        host = self._described
        condition = _CONDITION.match(text)
        if host is None:
            return None
        if condition is not None:
            told = condition["message"] or condition["reason"]
            return [
                KubeNode(host, "", condition["type"], is_bad(condition["type"], condition["status"]), told.strip(), 0)
            ]
        if text.startswith("Unschedulable: ") and text.endswith(" true"):
            return [KubeNode(host, "", "SchedulingDisabled", 0, None, 0)]
        return None


def _node(text: str) -> Iterator[Row]:
    row = _NODE.match(text)
    if row is not None:
        first, *more = row["status"].split(",")
        yield KubeNode(row["name"], "", "Ready", int(first != "Ready"), None if first == "Ready" else first, 0)
        yield from (KubeNode(row["name"], "", state, 0, None, 0) for state in more[:3])


def _use(text: str, at: int, *, shares: bool) -> Iterator[Row]:
    """The processors and the memory that a node or pod uses; nothing where the metrics are missing (`<unknown>`)."""
    cells = text.split()
    if len(cells) < at + (5 if shares else 3) or not re.fullmatch(_NAME, cells[at]):
        return
    host = cells[at]
    cpu = _CPU.fullmatch(cells[at + 1])
    memory = _BYTES.fullmatch(cells[at + 3 if shares else at + 2])
    if cpu is not None:
        yield HostNumber(host, "", "kubectl top", "CPUs used", int(cpu[1]) * _CORES[cpu[2]], "", 0)
    if memory is not None:
        yield HostNumber(host, "", "kubectl top", "memory used", float(int(memory[1]) * _SIZES[memory[2]]), "B", 0)
    if shares:
        for name, cell in (("CPUs busy", cells[at + 2]), ("memory share", cells[at + 4])):
            if (share := _SHARE.fullmatch(cell)) is not None:
                yield HostNumber(host, "", "kubectl top", name, float(share[1]), "%", 0)


def is_bad(condition: str, status: str) -> int:
    """1 where a condition says that something is wrong; conditions of other people's controllers may mean anything."""
    if _GOOD.search(condition):
        return int(status != "True" if condition == "Ready" else status == "False")
    return int(status == "True" and _BAD.search(condition) is not None)
