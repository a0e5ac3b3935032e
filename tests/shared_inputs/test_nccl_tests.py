"""Genuine output of nccl-tests: averages are those of the rows, and healthy runs raise no alarm."""

import statistics
from pathlib import Path

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import BenchRow, BenchRun

REAL = SHARED / "real"


def test_genuine_torn_log_is_whole_and_healthy() -> None:
    path = REAL / "Timez-zx__nccl-tests" / "nccl.log"
    report, facts, _ = analyze.analyze([str(path)])
    (run,) = facts.rows(BenchRun)
    busbw = [row.busbw for row in facts.rows(BenchRow)]
    assert (22, 178.078, 240.0, 0) == (run.rows, run.avg_busbw, run.graph_bw, run.wrong)
    assert statistics.mean(busbw) == pytest.approx(run.avg_busbw, abs=0.01)
    assert [] == [f for f in report.findings if f.severity != "note"]
    assert not {f.name for f in report.findings} & {"busbw-below-link", "busbw-dip-by-size", "latency-floor-high"}


@pytest.mark.parametrize(
    "path",
    sorted(REAL.glob("*/tests__data__nccl_*.log")) + sorted(REAL.glob("*nccl-tests/*all_reduce*.txt")),
    ids=lambda p: p.name,
)
def test_genuine_averages_are_those_of_the_rows(path: Path) -> None:
    report, facts, _ = analyze.analyze([str(path)])
    runs = facts.rows(BenchRun)
    for run in runs:
        busbw = [row.busbw for row in facts.rows(BenchRow) if row.run == run.run]
        assert run.avg_busbw == pytest.approx(statistics.mean(busbw), rel=0.02, abs=0.01)
    assert runs
    assert not {f.name for f in report.findings} & {"busbw-below-link", "busbw-dip-by-size", "nccl-tests-wrong-data"}
