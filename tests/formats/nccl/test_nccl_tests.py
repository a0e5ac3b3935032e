"""nccl-tests: tables of all versions, torn and pasted ones, JSON; limits of links; wrong data is an error."""

import io
import json
import re
import statistics
from pathlib import Path

import pandas
import pytest
from helpers.examples import examples
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchLimit, BenchRow, BenchRun, IbPort
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl import nccl_tests
from nccl_doctor.knowledge import bandwidth

FIXTURES = FIXTURES / "nccl_tests"
ROW = re.compile(
    r"^ *(\d+) +(\d+) +float +sum +-1 +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", re.M
)


def read(data: bytes | str, name: str = "bench.log") -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, nccl_tests.read_format(io.BytesIO(data if isinstance(data, bytes) else data.encode()), name, facts)


def numbers(facts: Facts) -> list[tuple[object, ...]]:
    return [row[1:-1] for row in facts.rows(BenchRow)]


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("a100_8.out", set()),
        ("a100_8_torn.log", set()),
        ("a100_8_markdown.txt", set()),
        ("a100_8_wrong.out", {("nccl-tests-wrong-data", "error")}),
        ("a100_8_dip.out", {("busbw-dip-by-size", "note")}),
        ("h100_8_slow.out", {("busbw-below-link", "warning")}),
        ("h100_8_cut.out", {("nccl-tests-unfinished", "note")}),
        ("high_latency.out", {("latency-floor-high", "note")}),
        ("two.json", set()),
    ],
)
def test_fixture_gives_these_findings(name: str, findings: set[tuple[str, str]]) -> None:
    report, _, problems = analyze.analyze([str(FIXTURES / name)])
    assert findings == {(finding.name, finding.severity) for finding in report.findings}
    cut = ["the last nccl-tests run ends without its summary"] if name == "h100_8_cut.out" else []
    assert cut == [problem.partition(": ")[2] for problem in problems]


def test_rows_are_those_of_the_table() -> None:
    text = (FIXTURES / "a100_8.out").read_text()
    frame = pandas.DataFrame(ROW.findall(text)).apply(pandas.to_numeric)
    facts, reading = read(text)
    (run,) = facts.rows(BenchRun)
    out = [row for row in facts.rows(BenchRow) if row.place == "out"]
    within = [row for row in facts.rows(BenchRow) if row.place == "in"]
    assert ("all_reduce", 8, 1, "NVIDIA A100-SXM4-80GB", 56, 1, 0) == (
        run.operation, run.ranks, run.hosts, run.gpu, run.rows, run.finished, run.wrong,
    )  # fmt: skip
    for column, name in ((0, "size"), (1, "elements"), (2, "time_us"), (3, "algbw"), (4, "busbw"), (5, "wrong")):
        assert list(frame[column]) == [getattr(row, name) for row in out]
    for column, name in ((6, "time_us"), (7, "algbw"), (8, "busbw"), (9, "wrong")):
        assert list(frame[column]) == [getattr(row, name) for row in within]
    assert run.avg_busbw == pytest.approx((frame[4].mean() + frame[8].mean()) / 2, abs=0.01)
    assert reading.note is None


@pytest.mark.parametrize("name", ["a100_8_torn.log", "a100_8_markdown.txt"])
def test_torn_and_pasted_tables_read_alike(name: str) -> None:
    whole, _ = read((FIXTURES / "a100_8.out").read_bytes())
    other, _ = read((FIXTURES / name).read_bytes())
    assert numbers(whole) == numbers(other)
    assert [run[2:11] for run in whole.rows(BenchRun)] == [run[2:11] for run in other.rows(BenchRun)]


def test_rows_with_launcher_prefixes() -> None:
    text = (FIXTURES / "a100_8.out").read_text()
    whole, _ = read(text)
    tagged, _ = read("".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()))
    assert numbers(whole) == numbers(tagged)


def test_rows_that_a_launcher_tags_piece_by_piece() -> None:
    # mpirun --tag-output of Open MPI 4: the three parts of a row are written one after another
    text = (FIXTURES / "a100_8.out").read_text()
    whole, _ = read(text)
    cut = re.compile(r"^(\s{1,12}\d+.{20,60}?-1)(\s+\S+\s+\S+\s+\S+\s+\S+)(\s+\S+\s+\S+\s+\S+\s+\S+)$", re.MULTILINE)
    pieces, count = cut.subn(r"\1[1,0]<stdout>:\2[1,0]<stdout>:\3", text)
    assert count > 10
    tagged, _ = read("".join(f"[1,0]<stdout>:{line}\n" for line in pieces.splitlines()))
    assert numbers(whole) == numbers(tagged)


OLD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# Using devices
#   Rank  0 Pid   4001 on node01 device  0 [0x07] Tesla V100-SXM2-32GB
#   Rank  1 Pid   4002 on node02 device  0 [0x07] Tesla V100-SXM2-32GB
"""


@pytest.mark.parametrize(
    ("head", "row", "wanted"),
    [
        (  # no root, a deviation instead of a count, whole numbers as time
            "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error",
            " 8  2  float  sum  14789  9.08  15.88  2e-07  14788  9.09  15.89  N/A",
            [("sum", None, "out", 14789.0, 15.88, None, 2e-07), ("sum", None, "in", 14788.0, 15.89, None, None)],
        ),
        (  # alltoall before 2.8 has no operation
            "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error",
            " 32  1  float  89.00  0.10  0.20  N/A  85.13  0.30  0.40  N/A",
            [(None, None, "out", 89.0, 0.2, None, None), (None, None, "in", 85.13, 0.4, None, None)],
        ),
        (  # a root that is no time
            "#  size  count  type  root  time  algbw  busbw  error  time  algbw  busbw  error",
            " 32  1  float  0  34.61  0.10  0.20  N/A  34.33  0.30  0.40  N/A",
            [(None, 0, "out", 34.61, 0.2, None, None), (None, 0, "in", 34.33, 0.4, None, None)],
        ),
        (  # only out of place
            "#  size  count  type  redop  time  algbw  busbw  error",
            " 64  16  float  sum  60.33  0.10  0.20  N/A",
            [("sum", None, "out", 60.33, 0.2, None, None)],
        ),
        (  # one GPU, in place: rates that fill their column are printed without decimals
            "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong",
            " 134217728  33554432  float  sum  -1  104.20  1288.1  0.00  0  0.21  639132  0.00  0",
            [("sum", -1, "out", 104.2, 0.0, 0, None), ("sum", -1, "in", 0.21, 0.0, 0, None)],
        ),
        (  # times of each iteration
            "#  size  count  type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
            "  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%",
            " 64  16  float  sum  -1  60.33  0.10  0.20  0  59.1  70.2  69.0  3.1  61.00  0.30  0.40  1  59.1  70.2  69.0  3.1",
            [("sum", -1, "out", 60.33, 0.2, 0, None), ("sum", -1, "in", 61.0, 0.4, 1, None)],
        ),
    ],
)  # fmt: skip
def test_columns_of_all_versions(head: str, row: str, wanted: list[tuple[object, ...]]) -> None:
    facts, _ = read(f"{OLD}{head}\n{row}\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.2\n")
    (run,) = facts.rows(BenchRun)
    assert (2, 2, "Tesla V100-SXM2-32GB") == (run.ranks, run.hosts, run.gpu)
    rows = facts.rows(BenchRow)
    assert wanted == [(r.redop, r.root, r.place, r.time_us, r.busbw, r.wrong, r.error) for r in rows]


def test_versions_and_verdicts() -> None:
    text = (FIXTURES / "a100_8.out").read_text()
    facts, _ = read("# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n" + text)
    (run,) = facts.rows(BenchRun)
    assert ("2.17.6", "2.28.7", "OK") == (run.version, run.nccl, run.verdict)
    facts, _ = read(re.sub(r"(Avg bus bandwidth +: [\d.]+)", r"\1 FAILED", text))
    assert "SLOW" == facts.rows(BenchRun)[0].verdict


def test_two_tests_in_one_log_are_two_runs() -> None:
    text = (FIXTURES / "a100_8.out").read_text()
    facts, _ = read(text + text.replace("all_reduce", "all_gather"))
    assert ["all_reduce", "all_gather"] == [run.operation for run in facts.rows(BenchRun)]


def test_json_is_read_and_a_broken_one_as_far_as_it_goes() -> None:
    whole = json.loads((FIXTURES / "two.json").read_text())
    facts, reading = read((FIXTURES / "two.json").read_bytes())
    (run,) = facts.rows(BenchRun)
    assert ("all_reduce", 2, 1, "2.28.7", 190.52, 1) == (
        run.operation, run.ranks, run.hosts, run.nccl, run.avg_busbw, run.finished,
    )  # fmt: skip
    assert [r["out_of_place"]["bus_bw"] for r in whole["results"]] == [
        row.busbw for row in facts.rows(BenchRow) if row.place == "out"
    ]
    assert (4, None) == (reading.understood, reading.note)
    facts, reading = read((FIXTURES / "two_cut.json").read_bytes())
    assert 0 < len(facts.rows(BenchRow)) < 8
    assert 0 == facts.rows(BenchRun)[0].finished
    assert "ends in the middle of line" in (reading.note or "")
    known = registry.recognise((FIXTURES / "two.json").read_bytes())
    assert known is not None
    assert "nccl-tests" == known.kind


def test_json_without_a_last_line_end_is_whole_and_its_wrong_values_count() -> None:
    """The writer ends with a brace, and prints `nwrong` with `%lf`."""
    text = (FIXTURES / "two.json").read_text().rstrip().replace('"nwrong": 0', '"nwrong": 3.000000', 1)
    facts, reading = read(text.encode())
    assert reading.note is None
    assert [3, 0] == [row.wrong for row in facts.rows(BenchRow)][:2]


@examples(60)
@given(st.data())
def test_damaged_output_never_raises(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["a100_8_torn.log", "two.json", "a100_8_wrong.out"]))
    content = bytearray((FIXTURES / name).read_bytes()[:6000])
    for _ in range(data.draw(st.integers(0, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    facts, reading = read(bytes(content[: data.draw(st.integers(1, len(content)))]))
    derive_all(facts)
    assert 0 <= reading.understood <= reading.lines
    assert {row.run for row in facts.rows(BenchRow)} <= {run.run for run in facts.rows(BenchRun)}


# --- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "nvlink", "optional", "pcie"),
    [
        ("NVIDIA H100 80GB HBM3", 370.8, False, 48.0),
        ("NVIDIA H200", 370.8, False, 48.0),
        ("NVIDIA H100 PCIe", 247.2, True, 48.0),
        ("NVIDIA A100-SXM4-40GB", 240.0, False, 24.0),
        ("NVIDIA A100 80GB PCIe", 240.0, True, 24.0),
        ("NVIDIA A800-SXM4-80GB", 160.0, False, 24.0),
        ("Tesla V100-SXM2-32GB", 120.0, False, 12.0),
        ("NVIDIA B200", 721.8, False, 48.0),
        ("NVIDIA L40S", None, False, 24.0),
        ("NVIDIA GeForce RTX 4090", None, False, 24.0),
        ("NVIDIA GeForce RTX 3090", 48.0, True, 24.0),
        ("Tesla T4", None, True, 12.0),
    ],
)
def test_links_of_gpu_models(model: str, nvlink: float | None, optional: bool, pcie: float) -> None:
    gpu = bandwidth.gpu(model)
    assert gpu is not None
    assert (nvlink and pytest.approx(nvlink), optional, pcie) == (gpu.nvlink, gpu.optional, gpu.pcie)


def test_table_of_links() -> None:
    assert bandwidth.gpu("AMD Instinct MI300X") is None
    assert 6.0 == bandwidth.pcie(3, 8)
    assert 25.0 == bandwidth.port(200)
    assert "InfiniBand" not in (bandwidth.port_name(25) or "InfiniBand")
    assert any("topo.h" in source for source in bandwidth.sources())
    with pytest.raises(ValueError):
        bandwidth.pcie(9)


def test_plateau_floor_and_limit() -> None:
    facts, _ = read((FIXTURES / "a100_8.out").read_bytes())
    derive_all(facts)
    frame = pandas.DataFrame(numbers(facts), columns=[name for name in BenchRow._fields if name not in ("run", "ref")])
    (limit,) = facts.rows(BenchLimit)
    large = sorted(frame["size"].unique())[-3:]
    assert statistics.median(frame[frame["size"].isin(large)]["busbw"]) == limit.plateau
    assert statistics.median(frame[frame["size"] <= 4096]["time_us"]) == limit.floor_us
    assert (240.0, "nvlink", 1) == (limit.limit_, limit.basis, limit.known)


GRAPH = "node01:4001:4009 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 20.000000/8.000000, type NVL/PIX, sameChannels 1\n"


def test_ports_of_the_weakest_node_bound_a_run_over_several() -> None:
    facts = Facts()
    facts.add([BenchRun(*({"run": 1, "hosts": 2, "ranks": 16}.get(name, 0) for name in BenchRun._fields))])
    facts.mark_covered("bench_run")
    ports = [("node01", 4, 400.0), ("node02", 3, 400.0), ("node02", 1, 25.0)]
    rows = [(host, f"mlx5_{n}_{rate:g}", rate) for host, number, rate in ports for n in range(number)]
    facts.add(
        IbPort(host, "ibstat.txt", hca, 1, "Active", "LinkUp", rate, "InfiniBand", *[None] * 6, 0)
        for host, hca, rate in rows
    )
    derive_all(facts)
    (limit,) = facts.rows(BenchLimit)
    assert (3 * 400 / 8, "network", 0) == (limit.limit_, limit.basis, limit.known)
    assert "3 network ports of a node (1200 Gb/s together" in (limit.why or "")


def test_ring_that_nccl_computed_is_the_limit() -> None:
    text = (FIXTURES / "a100_8.out").read_text()
    facts, _ = read(text.replace("#       size", GRAPH + "#       size"))
    derive_all(facts)
    (limit,) = facts.rows(BenchLimit)
    assert (96.0, "graph", 1) == (limit.limit_, limit.basis, limit.known)


def test_single_iterations_are_kept(tmp_path: Path) -> None:
    """nccl-tests with `-I` prints the shortest and the longest iteration of each size."""
    head = "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    row = "     1048576        262144     float     sum      -1  42.03  24.95  43.66  0    37.83    273.2    273.2   121.40"
    again = "     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    numbers = "  42.03  24.95  43.66  0    37.83    273.2    273.2   121.40"
    (tmp_path / "b.log").write_text(
        f"# nThread 1 nGpus 8\n{head}{again}\n{row}{numbers}\n# Avg bus bandwidth    : 43.66\n"
    )
    facts, _ = analyze.read_facts([str(tmp_path / "b.log")])
    assert [(1048576, 42.03, 37.83, 273.2)] == facts.query("SELECT size, time_us, least_us, most_us FROM bench_spread")
