"""The job lines of genuine files agree with their manifest and with an independent reading of the files."""

import gzip
import json
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Report

REAL = SHARED / "real"
ARTIFACTS = SHARED / "artifacts"
BIGSCIENCE = "bigscience-workshop__bigscience"
RERUN = "NCCL_DEBUG=INFO"


@cache
def report(path: Path) -> Report:
    try:
        return analyze.analyze([str(path)])[0]
    except UsageProblem as problem:
        if "which is not read here" in str(problem):
            pytest.skip(str(problem))
        raise


def measure(path: Path, name: str) -> float:
    """The one value of this measure; the median where there are several."""
    return statistics.median(row.value for row in report(path).measures if row.name == name)


def manifest() -> list[Any]:
    listing = REAL / "MANIFEST.jsonl"
    entries = [json.loads(line) for line in listing.read_text().splitlines()] if listing.is_file() else []
    return [pytest.param(entry, id=entry["path"]) for entry in entries]


@pytest.mark.parametrize("entry", manifest())
def test_versions_hosts_ranks_and_transports_are_those_of_the_manifest(entry: dict[str, Any]) -> None:
    job = report(REAL / entry["path"]).job
    if entry["nccl_version"]:
        version, cuda = entry["nccl_version"].split("+cuda")
        assert ([version], cuda) == (job["nccl_versions"], job["cuda"])
    for key, counted in (("hosts", entry["n_hosts"]), ("ranks", entry["n_ranks"])):
        if counted and not (key == "hosts" and job.get("hosts") is None and job.get("host_names")):
            assert counted == job.get(key)
    for transport in entry["transports_seen"] or ():
        network = re.match(r"NET/([^/]+)", transport)
        if network:
            assert network[1] in job["between"]
            assert ("yes" if "GDRDMA" in transport else "no") == job["gpudirect"]
        else:
            assert transport.removesuffix("/read") in job["inside"]


def rows(path: Path) -> list[tuple[int, float]]:
    """(size, bus bandwidth) of the table of nccl-tests: out of place, and in place where it was measured."""
    found = []
    for line in path.read_text("utf-8", "replace").splitlines():
        cells = re.sub(r"^\[\S+:", "", line).split()  # of mpirun, or of a script
        if len(cells) >= 7 and cells[0].isdigit() and cells[1].isdigit() and cells[2].isalpha():
            values = cells[4:] if cells[3].isalpha() else cells[3:]
            values = values[1:] if len(values) % 4 == 1 else values  # the root
            found += [(int(cells[0]), float(values[at])) for at in range(2, len(values), 4)]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "Panlichen__nccl-tests/full_nccl_mpi_scripts__mpi_res_4hosts__nccl_all_reduce0.txt",
        "Panlichen__nccl-tests/test_scripts__4090_8card_para__nccl_all_reduce0.txt",
        "Panlichen__nccl-tests/test_scripts__v100_8card_para__nccl_all_reduce0.txt",
        "abhivijay96__nccl-tests/exps__cw__all_reduce_2.txt",
        "abhivijay96__nccl-tests/exps__cw__all_reduce_8.txt",
        "aws-samples__aws-efa-eks/README__block124.log",
        "microsoft__superbenchmark/tests__data__nccl_allreduce.log",
        "microsoft__superbenchmark/tests__data__nccl_alltoall.log",
        "microsoft__superbenchmark/tests__data__nccl_broadcast.log",
    ],
)
def test_nccl_tests_show_the_bus_bandwidth_of_their_table(name: str) -> None:
    table = rows(REAL / name)
    largest = max(size for size, _ in table)
    reached = statistics.median(speed for size, speed in table if size == largest)
    assert reached == pytest.approx(measure(REAL / name, "busbw"), rel=0.01)
    assert largest == measure(REAL / name, "busbw_size")
    assert "GB/s busbw" in report(REAL / name).job_lines[-1]
    assert "ended in order" == report(REAL / name).job["end"]


@pytest.mark.parametrize("name", ["a100-n4", "n16_32gb", "n1_16gb", "n1_32gb"])
def test_all_reduce_bench_shows_its_bus_bandwidth(name: str) -> None:
    [path] = [path for path in (REAL / BIGSCIENCE).glob("*all_reduce_bench*") if name in path.name]
    printed = [float(value) for value in re.findall(r"busbw: ([\d.]+) +Gbps", path.read_text("utf-8", "replace"))]
    assert statistics.median(printed) / 8 == pytest.approx(measure(path, "busbw"))
    hosts, used = {"a100-n4": (4, "2 of 4"), "n16_32gb": (16, "2 of 4"), "n1_16gb": (1, "4"), "n1_32gb": (1, "4")}[name]
    assert (hosts, used) == (report(path).job["hosts"], report(path).job["nics"])


MEGATRON = r"iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \((ms|s)\): +([\d.]+)"


@pytest.mark.parametrize(
    ("name", "ranks", "steps", "end"),
    [
        (f"{BIGSCIENCE}/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out", 16, 200, "cancelled through Slurm"),
        (f"{BIGSCIENCE}/meg_gpt2_base_n8_dp1_tp4_pp8-1809562.out", 32, 200, "cancelled through Slurm"),
        (f"{BIGSCIENCE}/meg_gpt2_base_n16_dp1_tp4_pp16-1809577.out", 64, 90, "cancelled through Slurm"),
        (f"{BIGSCIENCE}/meg_gpt2_base_n32_dp1_tp4_pp32-1809620.out", 128, 120, "cancelled through Slurm"),
        (f"{BIGSCIENCE}/meg_gpt2_base_n64_dp1_tp4_pp64-1809655.out", 256, 60, "ended by Slurm at the time limit"),
        (f"{BIGSCIENCE}/experiments__gpt2-meg-ds-3d-old__meg_ds_3d_gpt2_perf_n16.out", 64, 2, None),
        (
            f"{BIGSCIENCE}/experiments__gpt2-meg-ds-zero__meg_ds_zero_gpt2_perf_n16-1999616.out",
            64, 4, "ended by Slurm at the time limit",
        ),
        ("spyysalo__lumi-llm-scaling/lumi175B_16-node.out", 128, 4, None),
        ("spyysalo__lumi-llm-scaling/lumi175B_128-node.out", 1024, 28, None),
        ("microsoft__superbenchmark/tests__data__megatron_deepspeed.log", 16, 5, "a process on vm-07-14 ended with status 1"),
    ],
)  # fmt: skip
def test_megatron_logs_show_their_step_time(name: str, ranks: int, steps: int, end: str | None) -> None:
    path = REAL / name
    found = re.findall(MEGATRON, path.read_text("utf-8", "replace"))
    seconds = [float(time) / (1000 if unit == "ms" else 1) for _, unit, time in found]
    assert statistics.median(seconds) == pytest.approx(measure(path, "step_time"), rel=0.02)
    assert steps == int(found[-1][0]) == measure(path, "steps")
    assert (ranks, end) == (report(path).job["ranks"], report(path).job.get("end"))


@pytest.mark.parametrize(("nodes", "ranks", "seconds"), [(4, 16, 57.4), (8, 32, 111.6), (16, 64, 219.7)])
def test_hf_trainer_logs_show_their_step_time(nodes: int, ranks: int, seconds: float) -> None:
    [path] = (REAL / BIGSCIENCE).glob(f"hf_ds_gpt2_base_n{nodes}-*.out")
    assert seconds == pytest.approx(measure(path, "step_time"), rel=0.03)  # of the bars: s/it
    assert (ranks, "ended in order") == (report(path).job["ranks"], report(path).job["end"])


@pytest.mark.parametrize(("name", "gpus"), [("1n1g", 1), ("1n8g", 8), ("2n8g", 16), ("4n8g", 32)])
def test_tensorflow_logs_show_samples_a_second(name: str, gpus: int) -> None:
    path = REAL / "Oneflow-Inc__DLPerf" / f"rn50_{name}_b128_1.log"
    rates = [
        float(rate) for rate in re.findall(r"seconds, ([\d.]+) examples/second", path.read_text("utf-8", "replace"))
    ]
    assert statistics.median(rates[1:]) == pytest.approx(measure(path, "throughput"), rel=0.01)
    assert (gpus, 600) == (report(path).job["gpus"], measure(path, "steps"))
    assert "healthy" == report(path).verdict


@pytest.mark.parametrize(("name", "world"), [("nccl_data", 2), ("sampled_rank-0", 128), ("sampled_rank-1", 128)])
def test_traces_show_their_steps(name: str, world: int) -> None:
    path = REAL / "facebookresearch__HolisticTraceAnalysis" / f"{name}.json.gz"
    with gzip.open(path) as stream:
        events = json.load(stream)["traceEvents"]
    steps = [
        e["dur"] / 1e6
        for e in events
        if str(e.get("name", "")).startswith("ProfilerStep#") and e.get("cat") != "gpu_user_annotation"
    ]
    assert statistics.median(steps) == pytest.approx(measure(path, "step_time"), rel=0.05)
    assert world == report(path).job["ranks"]
    assert "exposed communication" in report(path).job_lines[-1]


@pytest.mark.parametrize("path", sorted((ARTIFACTS / "horovod").glob("*.json")), ids=lambda path: path.name)
def test_timelines_show_their_ranks_and_shares(path: Path) -> None:
    lines = report(path).job_lines
    ranks = re.search(r"_(\d)r", path.name)
    if ranks and any(row.value for row in report(path).measures) and report(path).job.get("ranks"):
        assert int(ranks[1]) == report(path).job["ranks"]
    assert any("Horovod timeline" in line for line in lines)


def not_logs() -> list[Path]:
    """Captures and kernel logs: nobody reruns a job to get them right."""
    places = (
        "real/*/*topo*.xml", "real/*/graph.xml", "real/leptonai__gpud/*", "real/*/*block*.txt", "real/*/*gpu_info*",
        "real/*/*monitor*", "real/microsoft__superbenchmark/*ib*", "real/facebookresearch__HolisticTraceAnalysis/*",
        "real/Panlichen__nccl-tests/full*4hosts*", "artifacts/horovod/*.json", "artifacts/kineto*/*.json",
        "artifacts/torch/flight_recorder/*", "artifacts/pyspy/*_rank?.txt", "artifacts/slurm/scontrol*",
    )  # fmt: skip
    return sorted(path for place in places for path in SHARED.glob(place) if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("path", not_logs(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_rerun_with_nccl_debug_is_asked_of_what_is_no_output_of_a_job(path: Path) -> None:
    assert not any(RERUN in sentence for sentence in report(path).missing)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("horovod/killed_rank0_2r.out", "rank 0 ended with status 137 (SIGKILL)"),
        ("horovod/killed_rank1_2r.out", "rank 1 ended with status 137 (SIGKILL)"),
        ("horovod/mpi_stall_shutdown_2r.out", "rank 0 ended with status 1"),
        ("mpich/fail_kill.stdout", "a process on vm ended with SIGKILL"),
        ("openmpi/fail_segv.stderr", "rank 1 ended with SIGSEGV"),
        ("openmpi/fail_oomlike.stderr", "rank 1 ended with SIGKILL"),
        ("openmpi/fail_rc.stderr", "rank 1 ended with status 3"),
        ("openmpi5/fail_rc.stderr", "rank 1 ended with status 3"),
        ("slurm/srun_fail.txt", "rank 1 ended with status 3"),
        ("slurm/srun_segv.txt", "rank 1 ended with SIGSEGV"),
        ("slurm/srun_sigkill.txt", "rank 1 ended with SIGKILL"),
        ("torch/elastic_exc_rank1.err", "rank 1 ended with status 1"),
        ("torch/elastic_kill_rank1.err", "rank 1 ended with SIGKILL"),
        ("torch/elastic_segv_rank1.err", "rank 1 ended with SIGSEGV"),
        ("torch/elastic_exit3_rank0.err", "rank 0 ended with status 3"),
        ("torch/gloo_timeout.err", "rank 0 ended with status 1"),
    ],
)
def test_the_end_is_the_one_that_the_launcher_reports(name: str, end: str) -> None:
    assert end == report(ARTIFACTS / name).job["end"]
