"""mdtest and IO500: rates of operations, the scores, and text that only looks like them."""

import io

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, Measure
from nccl_doctor.formats.benchmarks import metadata

MDTEST = (FIXTURES / "benchmarks" / "mdtest.txt").read_text()
RESULT = """[ior-easy-write]
t_start         = 2026-11-02 10:00:00
score           = 2.000000
t_delta         = 301.2000

[mdtest-hard-stat]
score           = 56.500000

[SCORE]
MD              = 61.250000
BW              = 1.500000
SCORE           = 9.585145
"""
SHOWN = """[RESULT]       ior-easy-write        2.000000 GiB/s : time 301.2 seconds
[RESULT]    mdtest-hard-stat       56.500000 kIOPS : time 40.1 seconds
[SCORE ] Bandwidth 1.500000 GiB/s : IOPS 61.250000 kiops : TOTAL 9.585145
"""


def rows(text: str) -> list[tuple[str, str, float | None, str | None]]:
    facts = Facts()
    metadata.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return [(row.tool, row.test, row.value, row.unit) for row in facts.rows(ActiveTest)]


def test_only_operations_that_took_place_and_no_times() -> None:
    assert [("mdtest", "File creation", 45123.5, "ops/s"), ("mdtest", "File stat", 88000.25, "ops/s")] == rows(MDTEST)


@pytest.mark.parametrize("text", [RESULT, SHOWN])
def test_a_run_of_io500(text: str) -> None:
    assert [
        ("io500", "ior-easy-write", pytest.approx(2147.48, abs=0.01), "MB/s"),
        ("io500", "mdtest-hard-stat", 56500.0, "ops/s"),
        ("io500", "score", 9.585145, ""),
    ] == rows(text)


def test_a_report_begins_with_the_score(tmp_path: object) -> None:
    report, facts, _ = analyze.analyze([str(FIXTURES / "benchmarks" / "mdtest.txt")])
    assert "mdtest File creation: 45,124 ops/s" in " ".join(report.job_lines)
    assert not any("host V-0" in line for line in report.job_lines)
    assert {"storage_operations"} == {row.name for row in facts.rows(Measure)}


@pytest.mark.parametrize(
    "text", ["", "SUMMARY rate: (of 1\n", "File stat 1 2 3\n", "[SCORE]\nSCORE = x\n", RESULT[:40], SHOWN[:30]]
)
def test_broken_tables_have_no_result(text: str) -> None:
    assert [] == rows(text)
