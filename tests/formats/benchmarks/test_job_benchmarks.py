"""OSU micro-benchmarks, Linpack and benchmarks of servers: the numbers of each run, and broken input."""

import io
import json
from pathlib import Path
from types import ModuleType

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, Measure
from nccl_doctor.formats.benchmarks import hpl, osu, serving
from nccl_doctor.formats.registry import recognise

PLACE = FIXTURES / "benchmarks"


def _rows(reader: ModuleType, text: str) -> list[ActiveTest]:
    facts = Facts()
    reader.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts.rows(ActiveTest)


def test_the_highest_bandwidth_counts_and_the_latency_of_the_smallest_message() -> None:
    text = (
        "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1   1.5\n65536   9000.25\n4194304   8800.0\n"
        "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)   Min Latency(us)\n4    6.1    5.9\n8    6.4   6.0\n"
    )
    assert [("MPI Bandwidth", 9000.25, "MB/s"), ("MPI Allreduce Latency", 6.1, "us")] == [
        (row.test, row.value, row.unit) for row in _rows(osu, text)
    ]


def test_message_rates_of_many_pairs() -> None:
    text = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v5.7.1\n# [ pairs: 4 ] [ window size: 64 ]\n"
        "# Size                  MB/s        Messages/s\n1                      58.09       58086503.51\n"
        "4096                 9512.40        2322363.28\n"
    )
    assert [9512.4] == [row.value for row in _rows(osu, text)]


def test_rows_without_a_title_or_columns_are_no_results() -> None:
    assert [] == _rows(osu, "1   1.5\n2   3.0\n")
    assert [] == _rows(osu, "# OSU MPI Bandwidth Test v5.9\n1   1.5\n")


_ROW = "WR11C2R4       40000   192     2     4              35.10             1.2157e+03\n"
_CHECK = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   2.1e-03 ...... {}\n"
_HEAD = "T/V                N    NB     P     Q               Time                 Gflops\n"


@pytest.mark.parametrize(
    ("end", "outcome"), [(_CHECK.format("PASSED"), "pass"), (_CHECK.format("FAILED"), "fail"), ("HPL_pdge", "other")]
)
def test_a_result_and_its_check(end: str, outcome: str) -> None:
    (row,) = _rows(hpl, _HEAD + _ROW + end)
    assert (1215.7, "Gflop/s", outcome, "N 40,000, 8 ranks, 35.10 s") == (row.value, row.unit, row.outcome, row.text)


def test_the_progress_counts_where_the_result_is_missing() -> None:
    progress = " Prog= {}%\tN_left= 20000\tTime= 5.06\tTime_left= 18.88\tiGF=   447.78\tGF=   {}\tiGF_per=   111.95 \tGF_per=   111.95\n"
    text = (
        "HPL-NVIDIA 1.0.0  -- NVIDIA accelerated HPL benchmark -- NVIDIA\n"
        + progress.format(2.13, 447.78)
        + progress.format(4.92, 511.8)
    )
    (row,) = _rows(hpl, text)
    assert (511.8, "other", "stopped at 4.92 %") == (row.value, row.outcome, row.text)
    assert [1215.7] == [one.value for one in _rows(hpl, text + _HEAD + _ROW)]


def test_two_runs_of_a_server_and_what_people_put_in_front() -> None:
    text = (PLACE / "serving.txt").read_text()
    rows = _rows(serving, text + "".join(f"# {line}\n" for line in text.splitlines()))
    assert {"run 1", "run 2"} == {row.device for row in rows}
    assert {("output rate", 412.25, "tokens/s"), ("mean TTFT", 188.2, "ms")} <= {
        (row.test, row.value, row.unit) for row in rows if row.device == "run 2"
    }


def test_the_result_as_json_says_the_same() -> None:
    by_name = [
        {row.test: row.value for row in _rows(serving, (PLACE / name).read_text())}
        for name in ("serving.txt", "serving.json")
    ]
    assert {"output rate": 412.25, "mean TTFT": 188.2, "mean TPOT": 21.4, "request rate": 2.1}.items() <= by_name[
        0
    ].items()
    assert by_name[1].items() <= by_name[0].items()


def test_latency_and_throughput_of_batches() -> None:
    latency = {"avg_latency": 1.25, "latencies": [1.2, 1.3], "percentiles": {"10": 1.2, "50": 1.24, "99": 1.3}}
    assert [("mean latency", 1.25, "s"), ("median latency", 1.24, "s"), ("p99 latency", 1.3, "s")] == [
        (row.test, row.value, row.unit) for row in _rows(serving, json.dumps(latency, indent=4))
    ]
    rates = {"elapsed_time": 60.0, "num_requests": 1000, "requests_per_second": 16.7, "tokens_per_second": 8100.5}
    assert [("request rate", 16.7), ("total rate", 8100.5)] == [
        (row.test, row.value) for row in _rows(serving, json.dumps(rates, indent=4))
    ]
    for result in (latency, rates):
        found = recognise(json.dumps(result, indent=4).encode())
        assert found is not None
        assert found.kind == "serving-benchmark"


def test_json_that_is_cut_says_so() -> None:
    reading = serving.read_format(io.BytesIO(b'{"mean_ttft_ms": 12.5, "comp'), "result.json", Facts())
    assert "no complete JSON" in (reading.note or "")


def test_a_result_of_nvidias_newest_builds() -> None:
    row = "WC0             91136  1024     2     1                42.10       1.199e+04 ( 5.993e+03)\n"
    (found,) = _rows(hpl, "T/V                N    NB     P     Q         Time          Gflops (   per GPU)\n" + row)
    assert (11990.0, "N 91,136, 2 ranks, 42.10 s") == (found.value, found.text)


@pytest.mark.parametrize(("said", "outcome"), [("PASSED", "pass"), ("FAILED", "fail")])
def test_mixed_precision_has_its_check_in_front_of_the_rate(said: str, outcome: str) -> None:
    text = (
        "HPL-MxP-NVIDIA 24.9.0  -- NVIDIA accelerated HPL-MxP benchmark -- NVIDIA\n"
        "GEMM GFLOPS: AVG = 300000.00, MAX = 310000.00 (1->node01), MIN = 290000.00 (0->node01)\n"
        "\x1b[0;31m Prog=  50.10% N_left=    47616 Time=     2.00 Time_left=       2.00 iTF=     90.00 TF=   95.50 iTF_per= 45.00\x1b[0m\n"
        f"  ||Ax-b||_oo / (EPS * (||A||_oo * ||x||_oo + ||b||_oo) * N) =    5.120034E-04 ...... {said}\n\n"
        "    N = 95232, NB = 1024, NPROW = 2, NPCOL = 1, SLOPPY-TYPE = 2\n"
        "\x1b[0;31m       GFLOPS = 9.8765e+04, per GPU =   49382.50\x1b[0m\x1b[0;34m ------ The HPL-MxP performance to report\x1b[0m\n"
        "    LU GFLOPS = 4.1000e+05, per GPU =  205000.00\x1b[0;34m ------ The performance excluding the iterative solver part\n"
    )
    (row,) = _rows(hpl, text)
    assert ("HPL-MxP", 98765.0, outcome, "N 95,232, 2 ranks") == (row.test, row.value, row.outcome, row.text)
    (stopped,) = _rows(hpl, text.partition("  ||Ax")[0])
    assert (95500.0, "stopped at 50.10 %") == (stopped.value, stopped.text)


@pytest.mark.parametrize("name", ["osu_bw.txt", "hpl.txt", "serving.txt"])
def test_the_main_number_is_a_measure_and_a_healthy_run_has_no_finding(name: str) -> None:
    report, facts, _ = analyze.analyze([str(PLACE / name)])
    assert [] == report.findings
    values = {measure.value for measure in facts.rows(Measure)}
    assert {"osu_bw.txt": 24311.05, "hpl.txt": 1215.7, "serving.txt": 412.25}[name] in values


TENSORRT = """===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     43.2089
Total Output Throughput (tokens/sec):             5530.7382
Per User Output Speed [1/TPOT] (tps/user):        21.1
Average time-to-first-token [TTFT] (ms):          88.2510
Total Latency (ms):                               23143.3
"""


def test_trtllm_bench() -> None:
    rows = [(row.test, row.value, row.unit) for row in _rows(serving, "Max Runtime Tokens:  8192\n" + TENSORRT)]
    assert [
        ("request rate", 43.2089, "requests/s"), ("output rate", 5530.7382, "tokens/s"), ("mean TTFT", 88.251, "ms"),
        ("duration", 23143.3, "ms"),
    ] == rows  # fmt: skip


def test_rates_of_a_benchmark_of_a_server_are_shown_once(tmp_path: Path) -> None:
    (tmp_path / "bench.log").write_text("srun: job 42 has been allocated resources\n" + TENSORRT)
    _, facts, _ = analyze.analyze([str(tmp_path / "bench.log")])
    assert [1] == [count for (count,) in facts.query("SELECT count(*) FROM measure WHERE round(value) = 5531")]
