"""Metrics of NCCL's Inspector for Prometheus: numbers against the lines, the late rank, cut and hostile files."""

import io
import re
import statistics

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import InspectorColl
from nccl_doctor.formats.nccl import inspector_metrics
from nccl_doctor.formats.registry import recognise

SAMPLE = FIXTURES / "topology" / "inspector.prom"


def read(text: str) -> list[InspectorColl]:
    facts = Facts()
    inspector_metrics.read_format(io.BytesIO(text.encode()), "m.prom", facts)
    return facts.rows(InspectorColl)


def test_medians_against_the_lines() -> None:
    text = SAMPLE.read_text()
    for row in read(text):
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("nccl_bus_") and f'rank="{row.rank}"' in line
        ]
        assert (24, "AllReduce", 256 << 20, 4, 2) == (row.n, row.op, row.size, row.nranks, row.nodes)
        assert statistics.median(values) == pytest.approx(row.busbw_median)


def test_the_report_names_the_late_rank() -> None:
    report, _, _ = analyze.analyze([str(SAMPLE)])
    assert [("inspector-late-rank", "2")] == [(finding.name, finding.ranks) for finding in report.findings]
    assert "AllReduce 182.4 GB/s busbw at 256 MiB" in " ".join(report.job_lines)


def test_behind_the_help_lines_of_an_exporter() -> None:
    text = "# HELP nccl_bus_bandwidth_gbs x\n# TYPE nccl_bus_bandwidth_gbs untyped\n" + SAMPLE.read_text()
    known = recognise(text.encode())
    assert known is not None
    assert "nccl-inspector-metrics" == known.kind
    assert 4 == len(read(text))


def test_cut_and_hostile_lines() -> None:
    text = SAMPLE.read_text()
    for cut in range(0, 2000, 37):
        read(text[:cut])
    for hostile in (
        re.sub(r'rank="\d"', f'rank="{"9" * 99}"', text),
        text.replace("256.00MB", "9" * 30 + "TB"),
        re.sub(r"\} .*", "} 1e999", text),
    ):
        assert all(row.size < 1 << 62 for row in read(hostile))
