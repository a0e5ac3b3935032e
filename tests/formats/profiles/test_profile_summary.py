"""Summaries of Nsight Systems and nvprof in the forms of their versions."""

import csv
import io

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats import registry
from nccl_doctor.formats.profiles import profile_summary

FOLDER = FIXTURES / "torch"
OLD_NSYS = """"Time(%)","Total Time (ns)","Instances","Average","Minimum","Maximum","Name"
60.0,6000000,30,200000.0,1000,900000,"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
40.0,4000000,300,13333.3,1000,900000,"volta_sgemm_128x64_nn"
"""
COLUMNS = """
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)   Med (ns)   Min (ns)  Max (ns)  StdDev (ns)                      Name
 --------  ---------------  ---------  ---------  ---------  --------  --------  -----------  ----------------------------------------
     75.0        7,500,000         30  250,000.0  240,000.0     1,000   900,000        100.0  ncclDevKernel_AllGather_RING_LL(Args)
     25.0        2,500,000        300    8,333.3    8,000.0     1,000    90,000        100.0  void gemm<float, 4>(int, T2)

 ** CUDA API Summary (cuda_api_sum):

 Time (%)  Total Time (ns)  Num Calls  Avg (ns)   Med (ns)   Min (ns)  Max (ns)  StdDev (ns)          Name
 --------  ---------------  ---------  ---------  ---------  --------  --------  -----------  ---------------------
     99.0        9,000,000         12  750,000.0  740,000.0     1,000   900,000        100.0  cudaStreamSynchronize
"""
NVPROF_CSV = """==12== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,ms,
"GPU activities",75.0,7.5,30,250.0,1.0,0.9,"[CUDA memcpy DtoH]"
"GPU activities",25.0,2.5,300,8.3,1.0,0.09,"volta_sgemm"
"API calls",99.0,9.0,12,750.0,1.0,0.9,"cudaMemcpy"
"""
Shares = dict[tuple[str, str], tuple[int, float]]


def read(text: str) -> tuple[Shares, Facts]:
    facts = Facts()
    profile_summary.read_format(io.BytesIO(text.encode()), "x", facts)
    return {(s.report, s.kind): (s.n, s.total_ms) for s in facts.rows(ProfileShare)}, facts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OLD_NSYS, {("kernels", "communication"): (30, 6.0), ("kernels", "compute"): (300, 4.0)}),
        (
            COLUMNS,
            {("kernels", "communication"): (30, 7.5), ("kernels", "compute"): (300, 2.5), ("api", "other"): (12, 9.0)},
        ),
        (NVPROF_CSV, {("copies", "copy"): (30, 7.5), ("kernels", "compute"): (300, 2.5), ("api", "other"): (12, 9.0)}),
    ],
)
def test_forms(text: str, expected: Shares) -> None:
    found, facts = read(text)
    assert expected.keys() == found.keys()
    for key, (n, total) in expected.items():
        assert (n, pytest.approx(total)) == found[key]
    assert {0.9} <= {round(row.max_ms or 0, 6) for row in facts.rows(ProfileSum)}


def test_sums_agree_with_a_reading_by_csv() -> None:
    text = (FOLDER / "nsys.csv").read_text()
    tables = [block for block in text.split("\n\n") if block.lstrip().startswith("Time (%)")]
    rows = [row for block in tables for row in csv.DictReader(block.strip().splitlines())]
    found, facts = read(text)
    kernels = [row for row in rows if row.get("Name")]
    comm = sum(float(r["Total Time (ns)"]) for r in kernels if "nccl" in r["Name"]) / 1e6
    assert comm == pytest.approx(found["kernels", "communication"][1])
    assert sum(float(r["Total Time (ns)"]) for r in rows) / 1e6 == pytest.approx(sum(t for _, t in found.values()))
    assert len(rows) == len(facts.rows(ProfileSum))


def test_nvprof_by_hand() -> None:
    found, _ = read((FOLDER / "nvprof.txt").read_text())
    expected = {
        ("copies", "copy"): (1200, 6120.0), ("kernels", "compute"): (12000, 2880.0),
        ("kernels", "communication"): (400, 1000.0), ("api", "other"): (13600, 10000.0),
    }  # fmt: skip
    assert expected == {key: (n, round(total, 6)) for key, (n, total) in found.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nsys.csv", {"profile-communication-share"}), ("nvprof.txt", {"profile-copy-share"})],
)
def test_verdicts(name: str, expected: set[str]) -> None:
    report, _, problems = analyze.analyze([str(FOLDER / name)])
    assert ("warning", expected, []) == (report.verdict, {f.name for f in report.findings}, problems)


def test_inside_a_job_log() -> None:
    """The log stays a log, behind a launcher's prefix too."""
    summary = (FOLDER / "nvprof.txt").read_text()
    log = "".join(f"[1,0]<stdout>:{line}\n" for line in summary.splitlines())
    assert registry.recognise(log.encode()) is None
    assert 4 == len(read(log)[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Time (%),Total Time (ns),Instances,Name\n",
        'Time (%),Total Time (ns),Instances,Name\n1,"\n2,x,y,z\n',
        NVPROF_CSV[:100],
        COLUMNS[:300],
    ],
)
def test_cut_or_empty_tables(text: str) -> None:
    found, _ = read(text)
    assert {} == found


def test_many_rows_keep_the_sums_and_the_longest() -> None:
    rows = "".join(f'0.0,{n},1,1,1,1,1,0,"kernel_{n}"\n' for n in range(1, 5001))
    found, facts = read(
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n" + rows
    )
    assert (5000, pytest.approx(sum(range(5001)) / 1e6)) == found["kernels", "compute"]
    assert [f"kernel_{n}" for n in range(5000, 4980, -1)] == [row.name for row in facts.rows(ProfileSum)]


def test_recognised_by_content() -> None:
    for text in (OLD_NSYS, (FOLDER / "nsys.csv").read_text()):
        known = registry.recognise(text.encode())
        assert known is not None
        assert "profile-summary" == known.kind
    assert registry.recognise(b"step 1\n" + COLUMNS.encode()) is None


def test_kernel_statistics_of_rocprof() -> None:
    text = (
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
        '"Cijk_Alik_Bljk_BBS_BH_MT256x256x64",4000,6000000000,1500000.0,60.0,1,2000000,1.0\n'
        '"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",800,3000000000,3750000.0,30.0,1,9000000,1.0\n'
        '"__amd_rocclr_copyBuffer",300,1000000000,3333333.3,10.0,1,5000000,1.0\n'
        '"hipMemcpyAsync",300,500000000,1666666.7,5.0,1,5000000,1.0\n"cut",1\n'
    )
    known = registry.recognise(text.encode())
    assert known is not None
    facts = Facts()
    registry.read_file(known, io.BytesIO(text.encode()), "kernel_stats.csv", facts)

    assert {
        ("kernels", "compute", 6000.0),
        ("kernels", "communication", 3000.0),
        ("copies", "copy", 1000.0),
        ("api", "other", 500.0),
    } == {(share.report, share.kind, share.total_ms) for share in facts.rows(ProfileShare)}


def test_kernels_of_rocprof_compute() -> None:
    text = (
        "Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct\n"
        '"gemm_64x64(float const*, float*)",150,6000000.0,40000.0,39000.0,75.0\n'
        "ncclDevKernel_Generic_1,20,2000000.5,100000.0,99000.0,25.0\ncut,1\n"
    )
    known = registry.recognise(text.encode())
    assert known is not None
    facts = Facts()
    registry.read_file(known, io.BytesIO(text.encode()), "pmc_kernel_top.csv", facts)
    shares = {share.kind: share.total_ms for share in facts.rows(ProfileShare)}
    assert pytest.approx({"compute": 6.0, "communication": 2.0}, rel=1e-3) == shares


@pytest.mark.parametrize(
    ("titles", "row"),
    [
        ("Time (%),Total Time (ns),Instances,Avg (ns),Max (ns),Name", "60.0,900,3,300.0,400,gemm_a"),
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"', '"gemm_a",3,900,300,60.0'),
    ],
    ids=["nsys", "rocprof"],
)
def test_a_last_row_that_was_cut_is_told(titles: str, row: str) -> None:
    for last, told in ((row, None), (row[: len(row) // 2], "the last record, in line 3, is cut")):
        reading = profile_summary.read_format(io.BytesIO(f"{titles}\n{row}\n{last}".encode()), "p.csv", Facts())
        assert told == reading.note
