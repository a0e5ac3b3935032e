"""IOR, BabelStream, HPCG and DLIO: the results of each, and broken input."""

import io

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.benchmarks import rates

IOR = (FIXTURES / "benchmarks" / "ior.txt").read_text()
STREAM = """Function    MBytes/sec  Min (sec)   Max         Average
Copy        2998123.456 0.00018     0.00019     0.00018
Triad       3052345.678 0.00026     0.00028     0.00027
"""
CPU_STREAM = """Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          342008.3     0.018755     0.018713     0.018895
Triad:         363208.7     0.026599     0.026431     0.026855
"""
GPU_STREAM = """Function      Rate (MB/s)   Avg time     Min time     Max time
Copy:      3012345.6789       0.0053       0.0053       0.0053
Triad:     3101456.7891       0.0077       0.0077       0.0077
"""
HPCG = "Final Summary::HPCG result is VALID with a GFLOP/s rating of=5123.45\n"
DLIO = """[INFO] 2026-03-01T10:03:01.40 Epoch 1 - Block 1 [Training] Throughput (samples/second): 77.7610 [/opt/dlio/statscounter.py:228]
[METRIC] ==========================================================
[METRIC] Number of Simulated Accelerators: 8
[METRIC] Training Accelerator Utilization [AU] (%): 81.2208 (0.0401)
[METRIC] Training Throughput (samples/second): 77.7200 (0.0301)
[METRIC] Training I/O Throughput (MB/second): 10865.1010 (4.2010)
[METRIC] train_au_meet_expectation: fail
"""


def _rows(text: str) -> list[ActiveTest]:
    facts = Facts()
    rates.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts.rows(ActiveTest)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        (IOR, [("write", 43237.0, "MB/s"), ("read", 64208.5, "MB/s")]),
        (STREAM, [("Copy", 2998.1, "GB/s"), ("Triad", 3052.3, "GB/s")]),
        (STREAM.replace("MBytes", "MiBytes"), [("Copy", 3143.8, "GB/s"), ("Triad", 3200.6, "GB/s")]),
        (CPU_STREAM, [("Copy", 342.0, "GB/s"), ("Triad", 363.2, "GB/s")]),
        (GPU_STREAM, [("Copy", 3012.3, "GB/s"), ("Triad", 3101.5, "GB/s")]),
        (GPU_STREAM.replace("Rate (MB/s) ", "Rate (MiB/s)"), [("Copy", 3158.7, "GB/s"), ("Triad", 3252.1, "GB/s")]),
        (HPCG, [("HPCG", 5123.4, "Gflop/s")]),
    ],
)
def test_results(text: str, results: list[tuple[str, float, str]]) -> None:
    assert results == [(row.test, pytest.approx(row.value, abs=0.06), row.unit) for row in _rows(f"hello\n{text}bye\n")]


def test_an_invalid_result_fails() -> None:
    assert ["fail"] == [row.outcome for row in _rows("Final Summary::HPCG result is INVALID.\n")]


def test_the_report_shows_the_numbers() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "benchmarks" / "ior.txt")])
    assert "ior read: 64,209 MB/s" in " ".join(report.job_lines)


@pytest.mark.parametrize(
    "text", ["", "Triad 5 6\n", "write 12 x\n", IOR[:260], STREAM[:60], "Final Summary::HPCG result is\n"]
)
def test_broken_tables_have_no_result(text: str) -> None:
    assert [] == _rows(text)


def test_dlio_tells_how_busy_its_accelerators_were() -> None:
    assert [
        ("training accelerator utilization", 81.2208, "%", "other"),
        ("training throughput", 77.72, "samples/s", "other"),
        ("training I/O throughput", 10865.101, "MB/s", "other"),
        ("training accelerators", None, None, "fail"),
    ] == [(row.test, row.value, row.unit, row.outcome) for row in _rows(DLIO)]
    assert "pass" == _rows(DLIO.replace("fail", "success"))[-1].outcome
