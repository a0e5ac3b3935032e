"""Copies of nccl-tests built without MPI print into one file: they are counted in any order of their lines, and nothing is unfinished."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis import job_summary
from nccl_doctor.formats.nccl.nccl_tests_copies import Copies

SIZES = (8, 1024, 131072, 16777216)


def table(copy: int, gpus: int = 1, rate: float = 0.0) -> list[str]:
    """The output of one copy on GPUs of its own."""
    return [
        f"# nThread 1 nGpus {gpus} minBytes 8 maxBytes 16777216 step: 128(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1",
        "# Using devices",
        *(
            f"#  Rank {gpu:2} Group  0 Pid {4000 + copy} on  node01 device {gpus * copy + gpu:2} [0000:{copy:x}{gpu}:00] NVIDIA H100"
            for gpu in range(gpus)
        ),
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        *(
            f"{size:12} {size // 4:12}     float     sum      -1    {8 + size / 9e5:.2f}   {size / (8e3 + size / 900):.2f}"
            f"    {rate:.2f}      0     0.31  {size / 310:.2f}    {rate:.2f}      0"
            for size in SIZES
        ),
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {rate:g}",
    ]


def in_turn(parts: Sequence[list[str]], lines: int) -> list[str]:
    """So many lines of each in turn."""
    return [
        line
        for start in range(0, max(map(len, parts)), lines)
        for part in parts
        for line in part[start : start + lines]
    ]


@pytest.mark.parametrize("lines", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("copies", [2, 4])
def test_copies_of_one_gpu_are_counted_in_any_order(tmp_path: Path, lines: int, copies: int) -> None:
    path = tmp_path / "bench.log"
    path.write_text("\n".join(in_turn([table(copy) for copy in range(copies)], lines)) + "\n")
    report, _, problems = analyze.analyze([str(path)])
    assert ["nccl-tests-without-mpi"] == [finding.name for finding in report.findings]
    assert f"{copies} processes print as if each were the only one" in report.findings[0].message
    assert f"{copies} copies of nccl-tests on one GPU each, ended in order" == report.job["end"]
    assert [] == [measure for measure in report.measures if measure.name.startswith(("busbw", "latency"))]
    assert [] == problems


def test_a_copy_that_did_not_end(tmp_path: Path) -> None:
    path = tmp_path / "bench.log"
    path.write_text("\n".join(in_turn([table(0), table(1)[:-3]], 4)) + "\n")
    report, _, _ = analyze.analyze([str(path)])
    assert "2 copies of nccl-tests on one GPU each, 1 of them did not finish" == report.job["end"]


def test_one_gpu_has_no_bus_bandwidth(tmp_path: Path) -> None:
    path = tmp_path / "bench.log"
    path.write_text("\n".join(table(0)) + "\n")
    report, _, _ = analyze.analyze([str(path)])
    assert "healthy" == report.verdict
    assert [] == [measure for measure in report.measures if measure.name == "busbw"]
    assert [629.74] == [measure.value for measure in report.measures if measure.name == "algbw_alone"]
    assert "629.7 GB/s in one GPU, none between GPUs" in " · ".join(job_summary.lines(report.job, report.measures))


def test_runs_one_after_the_other_are_no_copies(tmp_path: Path) -> None:
    path = tmp_path / "bench.log"
    path.write_text("\n".join(table(0, 2, 200.0) + table(1, 2, 200.0)) + "\n")
    report, _, _ = analyze.analyze([str(path)])
    assert [] == report.findings


@pytest.mark.parametrize("prefix", ["{}: ", "[1,{}]<stdout>:", "[{}]<stdout>: "])
def test_tables_of_several_tasks_of_a_launch_are_those_of_copies(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "bench.log"
    path.write_text("".join(f"{prefix.format(copy)}{line}\n" for copy in (0, 1) for line in table(copy, 8, 200.0)))
    report, _, _ = analyze.analyze([str(path)])
    assert ["nccl-tests-without-mpi"] == [finding.name for finding in report.findings]
    assert "2 processes print as if each were the only one: each measures alone" in report.findings[0].message


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        ("+ mpirun -np 2 --map-by ppr:1:node ./build/all_reduce_perf -b 8 -e 16M -g 8", True),
        ("srun --ntasks=2 --ntasks-per-node=1 ./build/all_reduce_perf -b 8 -e 16M -g 8", True),
        ("+ mpirun -np 16 ./build/all_reduce_perf -b 8 -e 16M -g 1", False),  # two runs of it
        ("+ ./build/all_reduce_perf -b 8 -e 16M -g 8", False),
    ],
)
def test_tables_of_as_many_processes_as_a_command_asks_for(tmp_path: Path, command: str, is_found: bool) -> None:
    path = tmp_path / "bench.log"
    path.write_text("\n".join([command, *table(0, 8, 200.0), *table(1, 8, 200.0)]) + "\n")
    report, _, _ = analyze.analyze([str(path)])
    assert is_found == any(finding.name == "nccl-tests-without-mpi" for finding in report.findings)


def test_copies_on_all_gpus_of_a_node_each_with_a_file_of_mpirun(tmp_path: Path) -> None:
    for copy in range(2):
        text = "\n".join(table(copy, 8, 210.0)).replace("node01", f"node{copy}")
        (tmp_path / f"out.{copy}").write_text(f"{text}\n")
    report, _, _ = analyze.analyze([str(tmp_path)])
    found = [one for part in [report, *report.jobs] for one in part.findings]
    assert [("nccl-tests-without-mpi", "likely")] == [(one.name, one.confidence) for one in found]


@given(st.lists(st.sampled_from("sre"), max_size=30), st.integers(0, 3))
def test_any_order_of_lines_counts_at_most_its_processes(lines: list[str], ranks: int) -> None:
    copies = Copies()
    for number, line in enumerate(lines):
        if line == "s":
            copies.starts("node01", str(number))
        elif line == "r":
            copies.row()
        else:
            copies.ends()
    assert copies.count(ranks) in {1, lines.count("s")}


@pytest.mark.parametrize(
    ("names", "gpus", "confidence"),
    [
        (["1/rank.0/stdout", "1/rank.1/stdout", "1/rank.2/stdout"], 8, "likely"),
        (["1/rank.0/stdout", "1/rank.1/stdout"], 1, "likely"),
        (["out.0", "out.1", "out.2", "out.3"], 1, "possible"),
        (["out.0", "out.1"], 8, None),  # one run after the other on the same node
        (["job.123456.0.out", "job.123456.1.out"], 1, "possible"),
        (["node01.log", "node02.log"], 8, None),  # each node tested by itself
        (["job.123456.0.out", "job.123456.1.out"], 8, None),
        (["out.0"], 1, None),
    ],
)
def test_copies_that_write_a_file_each(tmp_path: Path, names: list[str], gpus: int, confidence: str | None) -> None:
    for copy, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(table(copy, gpus, 210.0 if gpus > 1 else 0.0)) + "\n")
    report, _, _ = analyze.analyze([str(tmp_path)])
    found = [one for part in [report, *report.jobs] for one in part.findings if one.name == "nccl-tests-without-mpi"]
    assert ([confidence] if confidence else []) == [one.confidence for one in found]
    if confidence:
        assert f"{len(names)} processes print" in found[0].message
