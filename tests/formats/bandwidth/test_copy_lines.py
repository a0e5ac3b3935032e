"""Copies of which each line tells one: the largest size counts, and the slow GPU is named."""

import io
from pathlib import Path

import pytest
from helpers.places import ROOT

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CopyRate, CopyTest
from nccl_doctor.formats.bandwidth import copy_lines

RATES = "SELECT t.tool, t.test, t.kind, r.gpu, r.peer, r.value FROM copy_test t JOIN copy_rate r ON r.test = t.number"


def read(text: str) -> list[tuple[object, ...]]:
    facts = Facts()
    copy_lines.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return facts.query(RATES)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        (
            "cpu_to_gpu1_by_dma_under_numa0 26.25",
            [("gpu-copy", "cpu_to_gpu_by_dma_under_numa0", "host", 1, None, 26.25)],
        ),
        ("gpu0_to_gpu1_read_by_sm 261.5", [("gpu-copy", "gpu_to_gpu_read_by_sm", "pair", 1, 0, 261.5)]),
        ("gpu1_to_gpu1_by_sm 682.5", [("gpu-copy", "gpu_to_itself_by_sm", "local", 1, None, 682.5)]),
        ("cpu_to_cpu_by_sm 12.0", []),
        (
            "STREAM_TRIAD_double_gpu_2_buffer_4096_block_128    2378.0 90.07\n"
            "STREAM_TRIAD_double_gpu_2_buffer_4096_block_256    2414.5 90.50\n"
            "STREAM_TRIAD_double_gpu_2_buffer_1024_block_256    9414.5 90.50\n",
            [("gpu-stream", "STREAM_TRIAD_double", "local", 2, None, 2414.5)],
        ),
        (
            "bandwidthTest-D2H-Paged, Bandwidth = 1250.0 MB/s, Time = 0.0 s, Size = 2000 bytes, NumDevsUsed = 1\n"
            "bandwidthTest-D2H-Paged, Bandwidth = 4.5 GB/s, Time = 0.0 s, Size = 1000 bytes, NumDevsUsed = 1\n",
            [("bandwidthTest", "D2H-Paged", "host", 0, None, 1.25)],
        ),
        (
            "   D2H_Bandwidth_pinned       512By       GB/sec      9.0  0.1  0.0  0.1  0.2\n"
            "   D2H_Bandwidth_pinned    524288kB       GB/sec     24.5 24.6  0.1 24.3 24.7\n",
            [("shoc", "D2H_Bandwidth_pinned", "host", 0, None, 24.5)],
        ),
    ],
)
def test_lines(text: str, rates: list[tuple[object, ...]]) -> None:
    assert rates == read(text)


def test_the_range_mode_names_its_device() -> None:
    facts = Facts()
    data = (ROOT / "fixtures" / "bandwidth" / "bandwidth_test.txt").read_bytes()
    copy_lines.read_format(io.BytesIO(data), "out.txt", facts)
    assert ["H2D", "D2H"] == [test.test for test in facts.rows(CopyTest)]
    assert {"NVIDIA A100-SXM4-80GB"} == {test.model for test in facts.rows(CopyTest)}
    assert [24.6, 26.2] == [rate.value for rate in facts.rows(CopyRate)]


def test_the_slow_gpu_is_named() -> None:
    report = analyze.analyze([str(ROOT / "fixtures" / "bandwidth" / "gpu_copy.txt")])[0]
    assert ["gpu-host-copy-slow"] == [finding.name for finding in report.findings]
    assert "GPU 2" in report.findings[0].message


@pytest.mark.parametrize("text", ["gpu0_to_gpu1_by_sm " + "9" * 5000, "Transfer Size (Bytes)\n" * 400, "gpu" * 4000])
def test_hostile_text(text: str, tmp_path: Path) -> None:
    assert [] == read(text)
