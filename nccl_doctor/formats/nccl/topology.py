"""Topology and graph files of NCCL (graph/xml.cc, since 2.6), dumped by a job or written by hand for NCCL_TOPO_FILE."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import TopoFile, TopoGpu, TopoGraph, TopoNet
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs import safe_xml
from nccl_doctor.inputs.streams import Readable

_MOST = 256  # devices of the other kind that a distance is sought to; no machine has more
_ORDER = ("PIX", "PXB", "PHB", "SYS")  # from near to far
_USED = {"system", "cpu", "pci", "gpu", "nvlink", "xgmi", "c2c", "pcilink", "nic", "net", "graphs", "graph", "channel"}


class _Node(NamedTuple):
    name: str
    attributes: dict[str, str]
    line: int
    path: tuple[int, ...]  # numbers of the elements above, from the root, and of itself


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file: a topology, or a graph (table `topo_graph`).

    Source: src/graph/xml.cc and src/graph/search.cc of NCCL 2.6 and newer::

        <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
          <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    """
    reader = _Reader(name, facts)
    lines, note = safe_xml.parse(stream, reader.start, reader.end)
    reader.write()
    return Reading(lines, reader.understood, note)


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._nodes: list[_Node] = []
        self._open: list[int] = []
        self._below: dict[int, list[_Node]] = {}
        self.understood = 0

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        number = len(self._nodes)
        above = self._open[-1] if self._open else -1
        self._open.append(number)
        node = _Node(name, attributes, line, tuple(self._open))
        self._nodes.append(node)
        self._below.setdefault(above, []).append(node)
        self.understood += name in _USED

    def end(self, name: str) -> None:
        self._open.pop()

    def write(self) -> None:
        names = {node.name for node in self._nodes}
        if "graphs" in names or "graph" in names:
            self._facts.add(self._graph(node) for node in self._nodes if node.name == "graph")
            self._facts.mark_covered("topo_graph")
        if "system" in names or "cpu" in names:
            self._system()

    def _system(self) -> None:
        gpus = [node for node in self._nodes if self._is_gpu(node)]
        nets = [node for node in self._nodes if node.name == "net" or self._is_bare_nic(node)]
        rows: list[object] = [self._gpu(node, nets) for node in gpus]
        rows += [self._net(node, gpus) for node in nets]
        cpus = [node for node in self._nodes if node.name == "cpu"]
        devices = [node for node in self._nodes if node.name == "pci"]
        switches = [node for node in devices if self._children(node, "pci")]
        first = self._nodes[0]
        rows.append(
            TopoFile(
                file=self._name,
                host_hash=next((c.attributes["host_hash"] for c in cpus if "host_hash" in c.attributes), None),
                cpus=len(cpus), gpus=len(gpus), nets=len(nets), switches=len(switches),
                written=int(bool(gpus) and "gpu" not in {node.name for node in self._nodes}),
                emulated=sum(map(_emulated, devices)),
                arch=next((c.attributes["arch"] for c in cpus if "arch" in c.attributes), None),
                ref=self._ref(first),
            )
        )  # fmt: skip
        self._facts.add(rows)
        self._facts.mark_covered("topo_file", "topo_gpu", "topo_net")

    def _children(self, node: _Node, name: str) -> list[_Node]:
        return [other for other in self._below.get(node.path[-1], []) if other.name == name]

    def _is_gpu(self, node: _Node) -> bool:
        if node.name == "gpu":
            return True
        # A hand-written file names only PCI devices; NCCL adds the GPUs when it starts.
        return (
            node.name == "pci"
            and node.attributes.get("class", "").startswith(("0x0302", "0x0300", "0x0380", "0x1200"))
            and not self._children(node, "gpu")
        )

    def _is_bare_nic(self, node: _Node) -> bool:
        kind = node.attributes.get("class", "")
        return node.name == "pci" and kind.startswith("0x02") and not self._children(node, "nic")

    def _pci(self, node: _Node) -> _Node | None:
        return next((self._nodes[n] for n in reversed(node.path) if self._nodes[n].name == "pci"), None)

    def _cpu(self, node: _Node) -> int | None:
        cpu = next((self._nodes[n] for n in node.path if self._nodes[n].name == "cpu"), None)
        return _whole(cpu.attributes.get("numaid")) if cpu is not None else None

    def _distance(self, a: _Node, b: _Node) -> str | None:
        """The path word of NCCL between two devices: how many bridges are between them."""
        left, right = self._pci(a), self._pci(b)
        if left is None or right is None:
            return None
        shared = 0
        for x, y in zip(left.path, right.path, strict=False):
            if x != y:
                break
            shared += 1
        common = self._nodes[left.path[shared - 1]]
        if left.path == right.path:
            return "PIX"
        if common.name == "pci":
            bridges = len(left.path) + len(right.path) - 2 * shared - 1  # PCI nodes passed, without both ends
            return "PIX" if bridges <= 1 else "PXB"
        return "PHB" if common.name == "cpu" else "SYS"

    def _nearest(self, node: _Node, others: list[_Node]) -> str | None:
        found = [distance for other in others[:_MOST] if (distance := self._distance(node, other)) is not None]
        return min(found, key=_ORDER.index, default=None)

    def _gpu(self, node: _Node, nets: list[_Node]) -> TopoGpu:
        pci = self._pci(node) or node
        links = self._children(node, "nvlink")
        c2c = self._children(node, "c2c")
        cut = node.path[-1] in self._open  # the file ends inside this GPU: it may have more links
        return TopoGpu(
            file=self._name, gpu=_whole(node.attributes.get("dev")), rank=_whole(node.attributes.get("rank")),
            bus=pci.attributes.get("busid"),
            sm=None if "gcn" in node.attributes else _whole(node.attributes.get("sm")),
            gdr=_whole(node.attributes.get("gdr")), cpu=self._cpu(node),
            speed=_speed(pci.attributes.get("link_speed")), width=_whole(pci.attributes.get("link_width")),
            nvlinks=None if cut else sum(_whole(link.attributes.get("count")) or 0 for link in links),
            xgmi=None if cut else sum(link.attributes.get("count") != "0" for link in self._children(node, "xgmi")),
            c2c=sum((_whole(link.attributes.get("bw")) or 0) * (_whole(link.attributes.get("count")) or 1) for link in c2c) or None,
            nearest=self._nearest(node, nets), ref=self._ref(pci),
        )  # fmt: skip

    def _net(self, node: _Node, gpus: list[_Node]) -> TopoNet:
        pci = self._pci(node) or node
        return TopoNet(
            file=self._name, name=node.attributes.get("name"), dev=_whole(node.attributes.get("dev")),
            bus=pci.attributes.get("busid"), cpu=self._cpu(node), rate=_whole(node.attributes.get("speed")),
            gdr=_whole(node.attributes.get("gdr")), speed=_speed(pci.attributes.get("link_speed")),
            width=_whole(pci.attributes.get("link_width")), nearest=self._nearest(node, gpus), ref=self._ref(node),
        )  # fmt: skip

    def _graph(self, node: _Node) -> TopoGraph:
        given = node.attributes
        return TopoGraph(
            file=self._name, graph=_whole(given.get("id")) or 0, pattern=_whole(given.get("pattern")),
            channels=_whole(given.get("nchannels")) or 0, speed_intra=_number(given.get("speedintra")),
            speed_inter=_number(given.get("speedinter")), type_intra=given.get("typeintra"),
            type_inter=given.get("typeinter"), ref=self._ref(node),
        )  # fmt: skip

    def _ref(self, node: _Node) -> int:
        text = " ".join([f"<{node.name}", *(f'{key}="{value[:80]}"' for key, value in node.attributes.items())]) + ">"
        return self._facts.evidence(self._name, node.line, text)


def _emulated(node: _Node) -> bool:
    """A bridge that a file invents, or a link of a virtual machine that says 2.5 GT/s x1 or nothing."""
    given = node.attributes
    if given.get("vendor") == "0xffff" or given.get("busid", "").lower().startswith("ffff:"):
        return True
    speed, width = _speed(given.get("link_speed")), _whole(given.get("link_width"))
    return "link_width" in given and ((width or 0) == 0 or (width == 1 and (speed or 0) <= 2.5))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text.strip()) else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?", text.strip()) else None


def _speed(text: str | None) -> float | None:
    """`16.0 GT/s PCIe` -> 16.0."""
    match = re.match(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*GT/s", text or "")
    return float(match[1]) if match else None
