"""Several files of one job: the cause stands in one, its symptoms in others."""

import shutil
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.simulate import FAULTS, Spec, fit, write_log

JOBS = FIXTURES / "job"


def report_of(*paths: Path) -> Report:
    return analyze.analyze([str(path) for path in paths])[0]


def facts_of(*paths: Path) -> Facts:
    return analyze.read_facts([str(path) for path in paths])[0]


def outline(report: Report) -> str:
    """A line a finding, indented by how deep it stands under others; equal neighbours once."""
    above: dict[str, int] = {}
    lines: list[str] = []
    for finding in report.findings:
        deep = 1 + max((above[rule] for rule in finding.explained_by if rule in above), default=-1)
        above.setdefault(finding.rule, deep)
        line = f"{'  ' * deep}{finding.severity} {finding.name}"
        if line not in lines:
            lines.append(line)
    return "\n".join([f"verdict {report.verdict}", *lines]) + "\n"


def named(report: Report, name: str) -> Finding | None:
    return next((finding for finding in report.findings if finding.name == name), None)


@pytest.mark.parametrize("folder", sorted(path for path in JOBS.iterdir() if path.is_dir()), ids=lambda path: path.name)
def test_a_folder_is_diagnosed_as_its_expected_file_says(folder: Path) -> None:
    assert folder.with_suffix(".expected").read_text() == outline(report_of(folder))


def test_an_xid_in_the_kernel_log_explains_the_time_out_of_the_other_ranks() -> None:
    report = report_of(JOBS / "xid-hang")
    first = report.findings[0]
    assert ("xid-79-off-bus", "1", "worker-1") == (first.name, first.ranks, first.hosts)
    assert [] == [f.name for f in report.findings if f.severity != "note" and f is not first and not f.explained_by]
    missing = named(report, "missing-rank-in-collective")
    assert missing is not None
    assert first.rule in missing.explained_by
    assert first.ranks == missing.ranks


def test_errors_from_before_the_job_are_no_cause() -> None:
    report = report_of(JOBS / "xid-hang")
    assert named(report, "xid-31-mmu-fault") is None
    assert named(report, "host-memory-oom") is None
    assert {"old-xid", "old-kernel-errors"} <= {f.name for f in report.findings if f.severity == "note"}


def test_the_log_alone_says_who_is_missing_and_not_why() -> None:
    report = report_of(JOBS / "xid-hang" / "job.log")
    assert ["missing-rank-in-collective"] == [f.name for f in report.findings if f.role == "cause"]


def test_the_kernel_log_alone_says_nothing_of_ranks() -> None:
    report = report_of(JOBS / "xid-hang" / "dmesg-worker-1.txt")
    lost = named(report, "xid-79-off-bus")
    assert lost is not None
    assert "" == lost.ranks
    assert named(report, "missing-rank-in-collective") is None


def test_full_and_short_names_are_one_host() -> None:
    report = report_of(JOBS / "xid-hang")
    assert (2, "worker-[1-2]") == (report.job["hosts"], report.job["host_names"])


def test_idle_gpus_and_pauses_stand_under_the_loader_that_is_slow() -> None:
    report = report_of(JOBS / "input-starved")
    loader = report.findings[0]
    assert "input-pipeline-stall" == loader.name
    for name in ("gpu-underused", "gpu-frequent-dips", "timeline-gaps", "periodic-dips"):
        symptom = named(report, name)
        assert symptom is not None
        assert loader.rule in symptom.explained_by, name


def test_samples_alone_do_not_name_the_loader() -> None:
    folder = JOBS / "input-starved"
    report = report_of(*folder.glob("gpu_*.csv"))
    assert named(report, "input-pipeline-stall") is None
    assert named(report, "gpu-underused") is not None


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def job_log(path: Path, gpus: int = 4, **more: object) -> str:
    """Write the log of an invented job on one node; returns the name of the node."""
    lines = list(write_log(Spec(nodes=1, gpus=gpus, framework="horovod", **more)))  # type: ignore[arg-type]
    write(path, *lines)
    return next(line for line in lines if "NCCL INFO" in line).split(":")[0]


@pytest.mark.parametrize(("hot", "explained"), [(2, True), (1, False)])
def test_a_hot_gpu_makes_its_own_rank_late_and_no_other(tmp_path: Path, hot: int, explained: bool) -> None:
    host = job_log(tmp_path / "job.log")
    text = (FIXTURES / "gpu" / "hot_gpu2.csv").read_text()
    if hot != 2:
        swap = {", 2, NVIDIA": f", {hot}, NVIDIA", f", {hot}, NVIDIA": ", 2, NVIDIA"}
        text = "\n".join(
            next((line.replace(old, new) for old, new in swap.items() if old in line), line)
            for line in text.split("\n")
        )
    (tmp_path / f"gpu_{host}.csv").write_text(text)
    shutil.copy(FIXTURES / "timeline" / "slow_rank2_4r_nocache.json", tmp_path / "timeline.json")
    report = report_of(tmp_path)
    heat, late = named(report, "gpu-thermal-throttle"), named(report, "horovod-straggler")
    assert heat is not None
    assert late is not None
    assert str(hot) == heat.ranks
    assert explained == (heat.rule in late.explained_by)


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4321, name=python, GPU has fallen off the bus."
WATCHDOG = (
    "[rank{rank}]:[E506 {time}.399015003 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=304640, NumelOut=304640, Timeout(ms)=600000) ran for 600035 milliseconds "
    "before timing out."
)


def hung(folder: Path, dmesg: str, time: str = "10:12:20") -> Report:
    folder.mkdir(exist_ok=True)
    write(folder / "job.log", *(WATCHDOG.format(rank=rank, time=time) for rank in (0, 1, 3)))
    write(folder / "dmesg.txt", dmesg)
    return report_of(folder)


def test_what_the_kernel_said_after_the_time_out_is_not_its_cause(tmp_path: Path) -> None:
    before = hung(tmp_path / "a", f"[Mon May  6 10:02:11 2024] {XID}")
    after = hung(tmp_path / "b", f"[Mon May  6 10:42:11 2024] {XID}")
    for report, explained in ((before, True), (after, False)):
        timeout = named(report, "unknown-collective-timeout") or named(report, "missing-rank-in-collective")
        assert timeout is not None
        assert explained == ("HW001" in timeout.explained_by)


def test_seconds_since_boot_are_not_compared_with_times_of_day(tmp_path: Path) -> None:
    report = hung(tmp_path, f"[12345.678901] {XID}")
    assert "xid-79-off-bus" == report.findings[0].name
    assert named(report, "old-xid") is None


def test_among_causes_of_one_class_the_earlier_comes_first(tmp_path: Path) -> None:
    lines = [
        "[Mon May  6 10:02:11 2024] NVRM: Xid (PCI:0000:1b:00): 119, pid=4321, name=python, Timeout waiting for RPC from GSP!",
        "[Mon May  6 10:01:11 2024] NVRM: Xid (PCI:0000:5b:00): 95, pid=4322, name=python, Uncontained ECC error",
    ]
    assert ["xid-95-uncontained-ecc", "xid-119-gsp-timeout"] == [
        f.name
        for f in report_of(write(tmp_path / "dmesg.txt", *lines)).findings
        if f.role == "cause" and not f.explained_by
    ]


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    dated = "2024-05-06 09:00:11,000 node01:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.1.0.4<0>"
    lines = [WATCHDOG.format(rank=rank, time=f"10:12:{20 + rank}") for rank in (3, 1, 2, 0)]
    timeout = named(report_of(write(tmp_path / "job.log", dated, *lines)), "unknown-collective-timeout")
    assert timeout is not None
    assert timeout.message.endswith("First rank 0 at 10:12:20.")


ENDED = "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2027-05-07T21:42:11 DUE TO TIME LIMIT ***"
SIGTERM = (
    "W0507 12:00:00.399000 1234 torch/distributed/elastic/agent/server/api.py:741] Received Signals.SIGTERM death signal, "
    "shutting down workers"
)


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"scheduler-time-limit", "hang-after-init"}))
def test_the_end_by_the_scheduler_is_never_the_cause_where_something_else_is(tmp_path: Path, fault: str) -> None:
    text = list(write_log(fit(Spec(nodes=2, gpus=2, fault=fault))))
    report = report_of(write(tmp_path / "job.log", *text, SIGTERM, ENDED))
    alone = report_of(write(tmp_path / "plain.log", *text))
    if any(f.severity != "note" for f in alone.findings):
        assert report.findings[0].name not in (
            "scheduler-time-limit",
            "scheduler-cancelled",
            "process-killed-by-launcher",
        )


def test_the_end_by_the_scheduler_alone_is_told(tmp_path: Path) -> None:
    assert "scheduler-time-limit" == report_of(write(tmp_path / "job.log", ENDED)).findings[0].name


@pytest.mark.parametrize(
    ("path", "verdicts"),
    [
        ("throughput/megatron_8.log", {"nothing-found"}),
        ("throughput/imagenet_steady.log", {"nothing-found", "note"}),
        ("timeline/gpu_healthy.json", {"nothing-found", "note"}),
        ("gpu/busy85.csv", {"nothing-found", "note"}),
        ("torch/fr_healthy", {"nothing-found", "note"}),
        ("captures/ibstat_up.txt", {"nothing-found", "note"}),
    ],
)
def test_what_was_understood_is_not_inconclusive(path: str, verdicts: set[str]) -> None:
    assert report_of(FIXTURES / path).verdict in verdicts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n", "is a script, not a log"),
        ('{\n  "lr": 0.1,\n  "epochs": 90\n}\n', "is JSON of no kind that is known"),
        ('{"lr": 0.1}', "is JSON of no kind that is known"),
    ],
)
def test_what_cannot_be_a_log_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Named itself it is refused; in a folder it is only text without a fact."""
    notes, log = tmp_path / "notes.txt", tmp_path / "job.log"
    notes.write_text(text)
    with pytest.raises(UsageProblem, match=rf"notes\.txt: {reason}$"):
        report_of(notes)
    assert "inconclusive" == report_of(tmp_path).verdict
    log.write_text("node01:100:150 [0] NCCL INFO Using network Socket\n")
    _, _, problems = analyze.analyze([str(notes), str(log)])
    assert [f"{notes}: {reason}"] == problems


@pytest.mark.parametrize(
    "text",
    [
        "hello world\n",
        "Dear all,\nthe seminar is on Monday.\n",
        "a,b\n1,2\n",
        '{"msg": "hello"}\n{"msg": "world"}\n',
        '{"log": "hello\\n", "stream": "stdout"}\n',
    ],
)
def test_a_log_without_a_fact_is_inconclusive(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.log").write_text(text)
    assert "inconclusive" == report_of(tmp_path / "job.log").verdict


def test_a_script_with_its_output_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "#!/bin/bash\nmpirun ./all_reduce_perf\nnode01:100:150 [0] NCCL INFO Using network IB\n"
    )
    assert 1 == report_of(tmp_path / "job.log").inputs[0].nccl_lines
