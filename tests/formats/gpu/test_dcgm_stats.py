"""`dcgmi stats -j JOB -v`: means of each GPU over a job, reasons of lower clocks, and broken input."""

import io

from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuThrottle, GpuUse
from nccl_doctor.formats.gpu.collected import dcgm_stats

PLACE = FIXTURES / "gpu" / "dcgmi_stats.txt"


def _read(text: str) -> Facts:
    facts = Facts()
    dcgm_stats.read_format(io.BytesIO(text.encode()), "stats.txt", facts)
    return facts


def test_each_gpu() -> None:
    facts = _read(PLACE.read_text())
    assert [(0, 94.0, 627.0, 1955.0, 4320.1), (1, 94.0, 303.0, 1120.0, 4320.1)] == [
        (use.gpu, use.util_mean, use.power_median, use.clock_median, use.seconds) for use in facts.rows(GpuUse)
    ]
    assert [(0, "power-cap", 0.012), (1, "power-cap", 0.012), (1, "sw-thermal", 0.714)] == [
        (slowed.gpu, slowed.reason, round(slowed.share, 3)) for slowed in facts.rows(GpuThrottle)
    ]


def test_nodes_are_told_apart() -> None:
    text = "".join(f"node{node:02}: {line}\n" for node in (1, 2) for line in PLACE.read_text().splitlines())
    assert [("node01", 0), ("node01", 1), ("node02", 0), ("node02", 1)] == [
        (use.host, use.gpu) for use in _read(text).rows(GpuUse)
    ]


def test_the_hot_gpu_is_named() -> None:
    report, _, _ = analyze.analyze([str(PLACE)])
    assert ("gpu-thermal-throttle", "GPU 1") == (report.findings[0].name, report.findings[0].message[:5])


def test_cut_and_hostile_tables() -> None:
    text = PLACE.read_text()
    for end in range(0, len(text), 211):
        _read(text[:end])
    assert [] == _read("| GPU ID: 3 |\n| SM Clock (MHz) | Avg: x |\n|  - Thermal (%) | 1e99 |\n").rows(GpuUse)
    assert [] == _read(text.replace("71.4", "171.4").replace("1.2 ", "-1.2")).rows(GpuThrottle)
