"""Job facts, measures and coverage: what every report shows whatever it finds."""

from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.derive.summary.coverage import ASPECTS
from nccl_doctor.facts.store import Facts
from nccl_doctor.simulate import Spec, write_log


def facts_of(*paths: Path) -> Facts:
    return analyze.read_facts([str(path) for path in paths])[0]


def measure(facts: Facts, name: str) -> list[tuple[float, str, str]]:
    return facts.query("SELECT value, unit, of FROM measure WHERE name = ? ORDER BY of", (name,))


def test_nccl_tests_show_plateau_latency_and_end() -> None:
    facts = facts_of(FIXTURES / "nccl_tests" / "a100_8.out")
    sizes = facts.query(
        "SELECT busbw FROM bench_row WHERE size >= 33554432 AND place = 'out' ORDER BY size DESC LIMIT 3"
    )
    [(plateau, unit, operation)] = measure(facts, "busbw")
    assert ("GB/s", "all_reduce") == (unit, operation)
    assert plateau == pytest.approx(sorted(value for (value,) in sizes)[1], rel=0.02)
    assert [("ended in order",)] == facts.query("SELECT value FROM job_fact WHERE name = 'end'")
    assert [("NVIDIA A100-SXM4-80GB",)] == facts.query("SELECT value FROM job_fact WHERE name = 'gpu'")


def test_every_measure_and_job_fact_has_its_evidence() -> None:
    facts = facts_of(FIXTURES / "job" / "xid-hang")
    assert [] == facts.query("SELECT name FROM measure WHERE ref IS NULL")
    assert [] == facts.query("SELECT name FROM job_fact WHERE ref IS NULL")


def test_a_job_says_what_it_ran_on_and_over_what() -> None:
    log = "\n".join(write_log(Spec(nodes=2, gpus=4, steps=10, network="socket"))) + "\n"
    known = dict(analyze.read_text(log).query("SELECT name, value FROM job_fact"))
    assert ("8", "Socket") == (known["gpus"], known["between"])
    assert "gpudirect" not in known


def test_coverage_has_one_row_an_aspect_and_a_way_to_capture_each() -> None:
    facts = analyze.read_text("hello\n")
    rows = facts.query("SELECT aspect, seen, capture FROM coverage")
    assert list(ASPECTS) == [aspect for aspect, _, _ in rows]
    assert {"not"} == {seen for _, seen, _ in rows}
    assert all(capture for _, _, capture in rows)


def test_a_killed_rank_is_how_the_job_ended() -> None:
    log = "mpirun noticed that process rank 3 with PID 4711 on node node01 exited on signal 9 (Killed).\n"
    known = dict(analyze.read_text(log).query("SELECT name, value FROM job_fact"))
    assert known["end"].startswith("rank 3 ended with ")
    assert "mpirun" == known["launcher"]


@pytest.mark.parametrize(
    ("summary", "end"),
    [
        ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 226.1\n", "ended in order"),
        (
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 226.1\n",
            "nccl-tests finished, and did not pass its own check",
        ),
        ("", "nccl-tests did not finish"),
    ],
)
def test_how_nccl_tests_ended(tmp_path: Path, summary: str, end: str) -> None:
    lines = (FIXTURES / "nccl_tests" / "a100_8.out").read_text().splitlines(keepends=True)
    (tmp_path / "run.out").write_text(
        "".join(line for line in lines if "Out of bounds" not in line and "Avg bus" not in line) + summary
    )
    known = dict(facts_of(tmp_path / "run.out").query("SELECT name, value FROM job_fact"))
    assert end == known["end"]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("1732200903.123456 finish status=0", "ended in order"),
        ('900.162s: job.finish {"status":256}', "the job ended with status 1"),
        ("1732200903.123456 finish status=9", "the job ended with SIGKILL"),
    ],
)
def test_how_a_job_of_flux_ended(tmp_path: Path, line: str, end: str) -> None:
    log = tmp_path / "eventlog.txt"
    log.write_text(f"1732200003.123456 start\n{line}\n1732200903.423456 clean\n")
    assert [(end,)] == facts_of(log).query("SELECT value FROM job_fact WHERE name = 'end'")


def test_a_setting_whose_line_lost_its_value_is_not_judged() -> None:
    torn = "node01:10:20 [0] NCCL INFO NCCL_IB_DISABLE set by environment to ."
    whole = "node01:11:21 [1] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22."
    facts = analyze.read_text(f"{torn}\n{whole}\n")
    assert [] == facts.query(
        "SELECT name FROM env_lint WHERE name = 'NCCL_IB_DISABLE' UNION ALL SELECT name FROM env_difference"
    )


def test_an_infinite_time_of_a_kernel_has_no_share(tmp_path: Path) -> None:
    profile = tmp_path / "nvprof.txt"
    profile.write_text(
        "==4242== Profiling result:\n"
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        " GPU activities:   61.20%  6.12000s      1200  5.1000ms  1.2000us  20.000ms  [CUDA memcpy HtoD]\n"
        f"                   38.80%  {'9' * 400}s       400  2.5000ms  900.00us  9.0000ms  ncclAllReduceRingLLKernel_sum_f32\n"
    )
    assert analyze.analyze([str(profile)])[0].inputs


def test_the_pod_of_a_launcher_is_none_of_the_hosts_that_nccl_tests_measured() -> None:
    pod = "[pod/bench-launcher-x7k2p/mpi] # "
    rows = "".join(
        f"{pod} Rank  {rank} Group  0 Pid   102{rank} on gpu-worker-{rank} device  0 [0x18] NVIDIA H100 80GB HBM3\n"
        for rank in (0, 1)
    )
    facts = analyze.read_text(
        f"{pod}nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20\n"
        f"{rows}{pod}Out of bounds values : 0 OK\n{pod}Avg bus bandwidth    : 44.7\n"
    )
    assert [("gpu-worker-0", 1), ("gpu-worker-1", 1)] == facts.query("SELECT name, ranks FROM host ORDER BY name")


@pytest.mark.parametrize(("labels", "ranks"), [(1, None), (8, 8)])
def test_ranks_that_write_are_all_ranks_only_where_there_are_no_more_gpus(labels: int, ranks: int | None) -> None:
    lines = [
        f"[rank{rank}]: 2024-05-01 10:00:0{n} step {n}/100 loss: 2.1 iter_time: 1.2 s tokens/s: 400"
        for n in range(1, 9)
        for rank in range(labels)
    ]
    report = analyze.report_of(analyze.read_text("\n".join(["torchrun --nnodes 1 --nproc_per_node 8 t.py", *lines])))
    assert (8, ranks) == (report.job["gpus"], report.job["ranks"])


def test_the_mean_of_a_bar_counts_the_steps_between_its_lines(tmp_path: Path) -> None:
    bars = [f"{100 * n}it [00:{n:02}, 100.00it/s]" for n in range(1, 21)]
    bars += [f"{2000 + n}it [00:{20 + n:02},  1.00s/it]" for n in range(1, 11)]
    (tmp_path / "train.log").write_text("\n".join(bars) + "\n")
    ((mean, unit, _),) = measure(facts_of(tmp_path / "train.log"), "step_mean")
    assert ("s", pytest.approx((1900 * 0.01 + 10) / 1910)) == (unit, mean)
