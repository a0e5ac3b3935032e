"""IMB, ucx_perftest, fabtests and DeepEP; tables of collectives by PARAM, ds_bench and mscclpp-test; gpu-burn; broken input."""

import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, CommOp, Measure
from nccl_doctor.formats.benchmarks import collective_tables, gpu_burn, osu, point_to_point

IMB = """#---------------------------------------------------
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         1.31         0.00
         1024         1000         1.40       731.43
      4194304           10       180.55     23230.71
      8388608           10       380.00     22075.28

# Benchmarking Allreduce
# #processes = 64
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.10         0.20         0.15
            4         1000         6.01         6.51         6.20
         4096         1000         7.01         7.51         7.20
"""
IMB_MULTI = """# Benchmarking Multi-Allgather
# ( 2 groups of 8 processes each running simultaneous )
# Group  0:     0    1    2    3    4    5    6    7
#
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
          512         1000         7.01         7.51         7.20
"""
IMB_P2P = """# Benchmarking Stencil2D (2 x 2)
# #processes = 4
       #bytes #repetitions      t[usec]   Mbytes/sec      Msg/sec
            0       100000         0.36         0.00      5560419
        65536        12800        10.63     12324.58       188058
      4194304          200      1122.06      7467.75         1780
"""
IMB_NBC = """# Benchmarking Ibcast
# #processes = 2
       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]
            0         1000         0.89         0.54         0.34         0.00
            4         1000         0.93         0.60         0.34         8.90
         1024         1000         1.42         0.90         0.67        17.01
"""
UCX = """+--------------+--------------+------------------------------+---------------------+-----------------------+
| API:          protocol layer                                                                           |
| Test:         tag match bandwidth                                                                      |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
[thread 0]                20000     42.100    42.610    42.600   23461.10   23455.40       23461       23455
Final:                   100000     42.100    42.650    42.640   23446.66   23452.16       23447       23452
"""
FABTESTS = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      1k      =1k      125k        0.00s     27.42       2.33       0.43
1m      1k      =1k      1.9g        0.16s  12245.71      85.63       0.01
"""
DEEPEP = """[tuning] SMs 24, NVL chunk 4, RDMA chunk 16: 40.03 GB/s (RDMA), 131.46 GB/s (NVL)
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 28: 46.20 GB/s (RDMA), 151.20 GB/s (NVL)
[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 20: 1234.00 us, 45.10 GB/s (RDMA), 147.60 GB/s (NVL)
"""


def _read(reader: ModuleType, text: str, table: Any = ActiveTest) -> list[Any]:
    facts = Facts()
    reader.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts.rows(table)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        (IMB, [("PingPong", 23230.71, "MB/s"), ("Allreduce", 6.20, "us")]),
        (IMB_MULTI, [("Multi-Allgather", 7.20, "us")]),
        (IMB_P2P, [("Stencil2D (2 x 2)", 12324.58, "MB/s")]),
        (IMB_NBC, [("Ibcast", 0.93, "us")]),
        (UCX, [("tag match bandwidth", 23452.16, "MB/s")]),
        (UCX.replace("bandwidth  ", "latency    "), [("tag match latency", 42.64, "us")]),
        (FABTESTS, [("fabtests", 12245.71, "MB/s")]),
        (DEEPEP, [("dispatch (FP8)", 46.2, "GB/s"), ("combine", 45.1, "GB/s")]),
    ],
)
def test_messages(text: str, results: list[tuple[str, float, str]]) -> None:
    rows = _read(point_to_point, text)
    assert results == [(row.test, row.value, row.unit) for row in rows]
    assert rows == [
        row._replace(ref=rows[at].ref) for at, row in enumerate(_read(point_to_point, f"hello\n{text}bye\n"))
    ]


@pytest.mark.parametrize("text", [IMB, UCX, FABTESTS, DEEPEP])
def test_a_cut_table_is_read_as_far_as_it_goes(text: str) -> None:
    for end in range(0, len(text), 97):
        assert len(_read(point_to_point, text[:end])) <= 2


def test_what_mpi_warns_of_stands_between_a_title_and_its_rows() -> None:
    """Its help texts come with the first message, of each rank."""
    warnings = "".join(f"  Host:  node{rank:02}\n  cuMemHostRegister return value:  1\n" for rank in range(96))
    (found,) = _read(
        osu,
        f"# OSU MPI-CUDA Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n{warnings}4   61.25\n8   62.5\n",
    )
    assert ("MPI-CUDA Allreduce Latency", 61.25, "us") == (found.test, found.value, found.unit)


def test_hosts_are_told_apart() -> None:
    text = "".join(f"{host}: {line}\n" for host in ("node01", "node02") for line in UCX.splitlines())
    assert ["node01", "node02"] == [row.host for row in _read(point_to_point, text)]


PARAM = """	COMMS-RES	 total-size (B)	 num-elements	 Latency(us):p50	 p75	 p95	 Min	 Max	 AlgBW(GB/s)	 BusBW(GB/s)
	COMMS-RES-all_reduce-float32	 1048576	 262144	 61.2	 62.0	 63.9	 59.8	 70.1	 17.134	 32.126
	COMMS-RES-all_reduce-float32	 2097152	 524288	 71.2	 72.0	 73.9	 69.8	 80.1	 29.454	 55.227
"""
DS_BENCH = """---- Performance of all_to_all on 16 devices ---------------------------------------------------------
Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
----------------------------------------------------------------------------------------------------
1.0 MB               16x65536                  61.2 us              137.1                128.5
1.0 GB               16x67108864               2.512 ms             3419.5               3205.8
"""
MSCCLPP = """# Setting up the connection in MSCCL++
#                                    in-place                       out-of-place
#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456    17018   63.09  110.41      0
"""
NCCOM = """$ nccom-test -r 32 -b 1MB -e 2MB --iters 20 allg
    size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)
    1048576          262144    fp32           91.20          11.50          11.14
    2097152          524288    fp32           152.4          13.76          13.33
Avg bus bandwidth:      12.2350GB/s
"""
KEPT = """$ ./build/all_reduce_perf -b 512M -e 1G -f 2 -g 8
#          size    time   algbw   busbw
#           (B)    (us)  (GB/s)  (GB/s)
    536_870_912  4218.4  127.27  222.72
  1_073_741_824  8203.9  130.88  229.04
"""
UCC = """Collective:             Allreduce
Memory type:            cuda
Reduction:              sum

       Count        Size                Time, us                       Bus Bandwidth, GB/s
                                 avg         min         max         avg         max         min
      262144     1048576      155.20      150.41      160.78       11.82       12.20       11.41
     1048576     4194304      401.33      398.02      407.95       18.29       18.44       17.99
"""
UCC_GATHER = UCC.replace("Allreduce", "Gather").replace(
    "18.29       18.44       17.99", "  N/A         N/A       17.99"
)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (NCCOM, ("all_gather", 2097152, 0.1524, 106.64)),
        (NCCOM.partition("\n")[2], ("", 2097152, 0.1524, 106.64)),
        (
            NCCOM.replace(" allg", " all-gather").replace("time:avg(us)", "time(us)"),
            ("all_gather", 2097152, 0.1524, 106.64),
        ),
        (KEPT, ("all_reduce", 1 << 30, 8.2039, 1832.32)),
        (KEPT.replace("_", ",").replace("all,reduce,perf", "x"), ("", 1 << 30, 8.2039, 1832.32)),
        (UCC, ("all_reduce", 4194304, 0.40133, 146.32)),
        (UCC_GATHER, ("gather", 4194304, 0.40133, 143.92)),
        ("\n".join(line[:60] for line in UCC.splitlines()), ("all_reduce", 4194304, 0.40133, None)),
        (PARAM, ("all_reduce", 2097152, 0.0712, 441.816)),
        (DS_BENCH, ("all_to_all", 1 << 30, 2.512, 3205.8)),
        (DS_BENCH.replace("Gbps", "GBps"), ("all_to_all", 1 << 30, 2.512, 25646.4)),
        (MSCCLPP, ("", 1 << 30, 17.018, 883.28)),
        ("$ mpirun -np 8 ./allreduce_test_perf -b 1G\n" + MSCCLPP, ("all_reduce", 1 << 30, 17.018, 883.28)),
    ],
)
def test_collectives(text: str, last: tuple[str, int, float, float]) -> None:
    """Bandwidth in Gbit/s, as the column says."""
    row = _read(collective_tables, "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()), CommOp)[-1]
    assert (row.op, row.size, pytest.approx(row.milliseconds), row.busbw and pytest.approx(row.busbw)) == last


def test_the_report_shows_the_largest_size(tmp_path: Path) -> None:
    (tmp_path / "bench.log").write_text(DS_BENCH)
    report, facts, _ = analyze.analyze([str(tmp_path / "bench.log")])

    assert ["all_to_all 400.7 GB/s busbw at 1 GiB"] == report.job_lines
    assert ("busbw", 400.725) in [(row.name, row.value) for row in facts.rows(Measure)]


@pytest.mark.parametrize(
    "text",
    [
        "COMMS-RES\n",
        "COMMS-RES-x-y 1 2 3 4\n",
        DS_BENCH[:300],
        "1.0 MB 16x4 1 us 2 3\n",
        NCCOM[:140],
        UCC[:200],
        "Time, us\n 1 2 3 4 5\n",
    ],
)
def test_tables_without_rows_or_titles(text: str) -> None:
    assert [] == _read(collective_tables, text, CommOp)


BURN = """10.8%  proc'd: 324 (41800 Gflop/s) - 320 (41610 Gflop/s)   errors: 0 - 0   temps: 61 C - 64 C
100.0%  proc'd: 3000 (41800 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - -1 (DIED!)  temps: 61 C - --
Tested 2 GPUs:
	GPU 0: OK
	GPU 1: FAULTY
"""


def test_gpu_burn() -> None:
    rows = _read(gpu_burn, BURN)
    assert [("0", "other", 41800.0), ("1", "fail", 0.0), ("0", "pass", None), ("1", "fail", None)] == [
        (row.device, row.outcome, row.value) for row in rows
    ]
    assert [("0", "other"), ("1", "other")] == [(row.device, row.outcome) for row in _read(gpu_burn, BURN[:100])]


def test_gpu_burn_in_a_report(tmp_path: Path) -> None:
    (tmp_path / "burn.log").write_text(BURN.replace("\n1", "\r1"))
    report, _, _ = analyze.analyze([str(tmp_path / "burn.log")])
    (finding, *_) = report.findings
    assert ("gpu-burn-errors", "GPU 1 had -1 errors, --") == (finding.name, finding.message)
