"""Files read a second time by plain libraries, and compared with what the program reads."""

import gzip
import io
import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceCall, TraceOp
from nccl_doctor.facts.tables.topology import TopoGpu, TopoNet
from nccl_doctor.formats import registry
from nccl_doctor.formats.nccl import topology
from nccl_doctor.formats.torch import kineto


def assert_topology_agrees(path: Path) -> None:
    """An XML file of NCCL, read by ElementTree."""
    data = path.read_bytes()
    assert "nccl-topology" == getattr(registry.recognise(data[: 1 << 16]), "kind", None)
    root = ElementTree.fromstring(data)
    facts = Facts()
    reading = topology.read_format(io.BytesIO(data), "topo.xml", facts)
    assert reading.note is None
    assert len(root.findall(".//graph")) == facts.counts()["topo_graph"]
    gpus = root.findall(".//gpu[@dev]") if root.tag == "system" else []
    if gpus:
        rows = {row.gpu: row for row in facts.rows(TopoGpu)}
        for gpu in gpus:
            row = rows[int(gpu.attrib["dev"])]
            assert sum(int(link.attrib["count"]) for link in gpu.findall("nvlink")) == row.nvlinks
            assert int(gpu.attrib["rank"]) == row.rank
    nets = root.findall(".//net[@name]")
    assert Counter(net.attrib["speed"] for net in nets) == Counter(
        str(row.rate) for row in facts.rows(TopoNet) if row.name
    )
    widths = Counter(
        pci.attrib["link_width"] for pci in root.findall(".//pci[@link_width]") if pci.find("gpu") is not None
    )
    assert widths == Counter(str(row.width) for row in facts.rows(TopoGpu) if row.gpu is not None)


def covered(events: list[dict[str, Any]]) -> float:
    """Seconds in which at least one of these events runs, by a sweep over their ends."""
    edges = sorted([(e["ts"], 1) for e in events] + [(e["ts"] + e["dur"], -1) for e in events])
    total, open_, before = 0.0, 0, 0.0
    for at, step in edges:
        total += (at - before) * (open_ > 0)
        open_, before = open_ + step, at
    return total / 1e6


def assert_trace_agrees(path: Path) -> None:
    """A compressed trace of torch.profiler, read by json."""
    data = gzip.decompress(path.read_bytes())
    whole = json.loads(data)
    events = [e for e in whole["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    comm = [e for e in kernels if e["name"].startswith("nccl")]
    compute = [e for e in kernels if not e["name"].startswith("nccl")]
    copies = [e for e in events if e.get("cat") in ("gpu_memcpy", "gpu_memset")]
    facts = Facts()
    reading = kineto.read_format(io.BytesIO(data), str(path), facts)
    assert (len(whole["traceEvents"]), None) == (reading.lines, reading.note)
    trace = facts.rows(Trace)[0]
    info = whole["distributedInfo"]
    assert (info["rank"], info["world_size"], info["backend"]) == (trace.rank, trace.world, trace.backend)
    if kernels:
        gpu = kernels + copies
        span = (max(e["ts"] + e["dur"] for e in gpu) - min(e["ts"] for e in gpu)) / 1e6
        expected = (
            span,
            covered(compute),
            covered(comm),
            covered(kernels) - covered(compute),
            covered(copies),
            span - covered(gpu),
        )
        found = (trace.span_s, trace.compute_s, trace.comm_s, trace.exposed_s, trace.copy_s, trace.idle_s)
        assert expected == pytest.approx(found, abs=1e-6)
    else:
        comm = [e for e in events if e["name"].startswith("gloo:") and e["args"].get("finished") is not False]
        assert covered(comm) == pytest.approx(trace.comm_s)
        loader = [e for e in events if e["name"].startswith("enumerate(DataLoader)")]
        assert covered(loader) == pytest.approx(trace.input_s)
    steps = [e["dur"] for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"]
    assert (len(steps) or None) == trace.steps
    assert sum(e["dur"] for e in comm) / 1000 == pytest.approx(sum(o.total_ms for o in facts.rows(TraceOp)))
    assert len(comm) == len(facts.rows(TraceCall))
