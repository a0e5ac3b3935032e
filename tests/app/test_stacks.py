"""Stacks of py-spy: read as text and as JSON, judged from the innermost frame, compared between ranks, dumped for real."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.app.hang import pyspy as spy
from nccl_doctor.cli.main import main
from nccl_doctor.derive.hang.stacks import what_ranks_do
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import Stack
from nccl_doctor.formats.profiles import pyspy
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.node.host import job_processes

FIXTURES = FIXTURES / "stacks"
PROGRAM = """
import os, time

def barrier():
    print("there", flush=True); time.sleep(1000)

def load_everything():
    print("there", flush=True); time.sleep(1000)

load_everything() if os.environ["RANK"] == "2" else barrier()
"""


def main_of(file: str) -> pyspy.Thread:
    content = (FIXTURES / file).read_text("utf-8")
    dumps = pyspy.parse_json(content) if file.endswith("json") else list(pyspy.parse_text(batches(content)))
    thread = pyspy.main_thread(next(dump for dump in dumps if dump.parent is None))
    assert thread is not None
    return thread


def batches(text: str, size: int = 1 << 20) -> Iterator[tuple[int, Label, list[str]]]:
    lines = text.splitlines()
    return ((at + 1, NOTHING, lines[at : at + size]) for at in range(0, len(lines), size))


@pytest.mark.parametrize(
    ("file", "doing", "leaf"),
    [
        ("stuck_rank0.txt", "backward", "_engine_run_backward"),
        ("stuck_rank0_native.txt", "collective", "_engine_run_backward"),
        ("stuck_rank1.txt", "other", "main"),
        ("loader_w0_rank1.txt", "dataloader", "slow_decode"),
        ("loader_w2_rank0.json", "backward", "_engine_run_backward"),
        ("loader_w2_rank1_subprocesses.json", "dataloader", "_PollLikeSelector.select"),
        ("loader_w2_rank1_subprocesses.txt", "dataloader", "_PollLikeSelector.select"),
    ],
)
def test_a_genuine_stack_says_what_the_rank_does(file: str, doing: str, leaf: str) -> None:
    thread = main_of(file)
    inner = pyspy.leaf(thread)
    assert inner is not None
    assert (doing, leaf) == (pyspy.doing(thread)[0], inner.function)


def test_text_and_json_of_one_process_agree() -> None:
    text = list(pyspy.parse_text(batches((FIXTURES / "loader_w2_rank1_subprocesses.txt").read_text())))
    from_json = pyspy.parse_json((FIXTURES / "loader_w2_rank1_subprocesses.json").read_text())
    shape = [sorted([*map(str, t.frames)] for t in dumps[0].threads) for dumps in (text, from_json)]
    assert shape[0] == shape[1]
    assert [(4903, None), (4929, 4903), (4934, 4903)] == [(dump.pid, dump.parent) for dump in text]


def test_the_rank_in_its_loader_is_named() -> None:
    paths = [str(FIXTURES / name) for name in ("loader_w2_rank0.json", "loader_w2_rank1_subprocesses.txt")]
    report, facts, problems = analyze.analyze(paths)
    assert [] == problems
    assert "rank-stuck-in-dataloader" == report.findings[0].name
    assert "1" == report.findings[0].ranks
    assert "slow_decode" in report.findings[0].message
    assert {"loader-worker"} == {s.doing for s in facts.rows(Stack) if s.parent is not None and s.main}


def test_the_rank_that_went_another_way_is_named() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "stuck_rank0.txt"), str(FIXTURES / "stuck_rank1.txt")])
    assert ("rank-outside-collective", "1") == (report.findings[0].name, report.findings[0].ranks)


def test_stacks_behind_prefixes_inside_a_log(tmp_path: Path) -> None:
    one = (FIXTURES / "stuck_rank0.txt").read_text().splitlines()
    two = (FIXTURES / "stuck_rank1.txt").read_text().splitlines()
    lines = [f"[1,{rank}]<stdout>:{line}" for rank, dump in ((0, one), (1, two)) for line in dump]
    log = tmp_path / "job.log"
    log.write_text("\n".join(["training starts", *lines, "training ends"]) + "\n")
    report, facts, _ = analyze.analyze([str(log)])
    assert {0: "backward", 1: "other"} == {row.rank: row.doing for row in facts.rows(RankDoing)}
    assert "rank-outside-collective" == report.findings[0].name


def test_a_process_dumped_again_has_one_evidence_and_its_number_on_another_host_another(tmp_path: Path) -> None:
    lines = (FIXTURES / "loader_w0_rank1.txt").read_text().splitlines()
    log = tmp_path / "stacks.txt"
    log.write_text("".join(f"{host}: {line}\n" for host in ("node01", "node01", "node02") for line in [*lines, ""]))
    facts = analyze.analyze([str(log)])[1]
    mains = [stack for stack in facts.rows(Stack) if stack.main]
    assert ["node01", "node01", "node02"] == [stack.host for stack in mains]
    first, again, other = (stack.ref for stack in mains)
    assert first == again != other


_LINES = st.sampled_from(
    (
        "Process 1: python", "Parent Process 9: bash", "Python v3.11", "", 'Thread 1 (idle): "MainThread"', "Thread 2 (active+gil)",
        "    wait (a.py:1)", "    wait (a.py:2)", "    step (b.py:3)", "  ", "  no frame", "step (b.py:3)", "text",
    )
)  # fmt: skip


@given(st.lists(_LINES, max_size=60), st.integers(1, 5))
def test_frames_that_came_before_are_those_of_reading_each_line_alone(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    alone = list(pyspy.parse_text(batches(text, 1)))
    assert alone == list(pyspy.parse_text(batches(text, size))) == list(pyspy.parse_text(batches(text)))


@given(st.text(max_size=400))
def test_nothing_makes_reading_fail(text: str) -> None:
    assert [] == pyspy.parse_json(text)
    dumps = list(pyspy.parse_text(batches('Process 1: python\nThread 1 (idle): "MainThread"\n' + text)))
    assert 1 == dumps[0].pid


@pytest.mark.parametrize(
    "content", ["[]", "[1]", '[{"pid": 1, "frames": [1, {"name": null}]}]', '[{"pid": "x", "frames": []}]']
)
def test_foreign_json_is_nothing(content: str) -> None:
    facts = Facts()
    pyspy.rows(facts, "x", pyspy.parse_json(content), None, {})
    assert len(facts.rows(Stack)) <= 1


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("Error: Failed to get process executable name. Check that the process is running.", "has ended"),
        ("Error: Failed to find python version from target process", "not a Python process"),
        ("Error: something new\nStack backtrace", "Error: something new"),
    ],
)
def test_complaints_are_explained(said: str, means: str) -> None:
    assert means in spy.explain_failure(said, os.getpid())


def test_another_user_is_told_to_be_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: Path("/proc/self").stat().st_uid + 1)
    assert "belongs to another user" in spy.explain_failure("Permission Denied: Try running again", os.getpid())


def fake(proc: Path, pid: int, parent: int, command: str, **environ: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environ.items()))
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (folder / "stat").write_text(f"{pid} (python3 (x) y) S {parent} 0 9")


def test_launchers_and_loader_workers_are_no_ranks(tmp_path: Path) -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_JOB_ID": "77"}
    fake(tmp_path, 10, 1, "bash run.sh", **slurm)
    fake(tmp_path, 11, 10, "/usr/bin/python3 /usr/bin/torchrun train.py", **slurm)
    for local in (0, 1):
        ranked = {"RANK": str(2 + local), "LOCAL_RANK": str(local), "WORLD_SIZE": "4", **slurm}
        fake(tmp_path, 20 + local, 11, "/usr/bin/python3 -u train.py", **ranked)
        fake(tmp_path, 30 + local, 20 + local, "/usr/bin/python3 -u train.py", **ranked)
    fake(tmp_path, 40, 1, "python3 jupyter.py")
    (tmp_path / "50").mkdir()
    found = job_processes.find(tmp_path)
    assert [(20, 2, 0, 4, "77"), (21, 3, 1, 4, "77")] == [
        (r.pid, r.rank, r.local_rank, r.world, r.job) for r in found.ranks
    ]
    assert [] == job_processes.find(tmp_path, job="78").ranks


def test_plain_srun_ranks_are_found(tmp_path: Path) -> None:
    fake(tmp_path, 10, 1, "bash run.sh", SLURM_PROCID="3")
    fake(tmp_path, 11, 10, "/usr/bin/python3 train.py", SLURM_PROCID="3", SLURM_NTASKS="8")
    fake(tmp_path, 12, 11, "/usr/bin/python3 train.py", SLURM_PROCID="3", SLURM_NTASKS="8")
    assert [(11, 3, 8)] == [(one.pid, one.rank, one.world) for one in job_processes.find(tmp_path).ranks]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three ranks that wait at one place and one that stands elsewhere."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    running = []
    for rank in range(4):
        environ = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "PBS_JOBID": f"test-{os.getpid()}"}
        running.append(subprocess.Popen([sys.executable, str(script)], env=environ, stdout=subprocess.PIPE))
    for one in running:
        assert one.stdout is not None
        assert b"there\n" == one.stdout.readline()
    yield running
    for one in running:
        one.send_signal(signal.SIGKILL)
        one.wait()


spies = pytest.mark.skipif(
    shutil.which("py-spy") is None and not Path(sys.executable).with_name("py-spy").exists(),
    reason="py-spy is not installed",
)


@spies
def test_a_running_job_is_dumped(job: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["stacks", "--job", f"test-{os.getpid()}", "--format", "json"])
    out, err = capfd.readouterr()
    if "ptrace" in err or "cannot be traced" in err:
        pytest.skip(f"processes cannot be traced here: {err.strip()}")
    found = json.loads(out)
    assert 0 == status
    assert [[2], [0, 1, 3]] == [group["ranks"] for group in found["stacks"]]
    assert "load_everything" in found["stacks"][0]["frames"][0]


@spies
def test_nodes_are_asked_and_a_dead_one_is_named(
    job: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    via = "sh -c 'test %host != gone && exec \"$@\"; echo no route to %host; exit 9' sh"
    status = main(["stacks", "--job", f"test-{os.getpid()}", "--nodes", "here,gone", "--via", via])
    out, err = capfd.readouterr()
    if "cannot be traced" in out + err or "ptrace" in out + err:
        pytest.skip("processes cannot be traced here")
    assert 2 == status  # what is known of a part of the ranks is no success
    assert "rank 2 on " in out
    assert "gone: exit status 9: no route to gone" in err


def test_without_a_job_there_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["stacks", "--job", "no-such-job"])
    out, err = capfd.readouterr()
    assert "" == out
    assert 1 == err.count("\n")


@pytest.mark.parametrize(
    ("command", "is_rank"),
    [
        ("python train.py", True),
        ("/opt/env/bin/python3.11 -u -m trainer --log nccl-doctor", True),
        ("/opt/env/bin/python -m nccl_doctor sample --interval=1", False),
        ("/opt/env/bin/python3 /opt/env/bin/nccl-doctor stacks --format facts", False),
        ("python -u -m nccl_doctor sample", False),
    ],
)
def test_a_collector_beside_the_ranks_is_none(tmp_path: Path, command: str, is_rank: bool) -> None:
    process = tmp_path / "71"
    process.mkdir()
    (process / "environ").write_bytes(b"SLURM_PROCID=0\0SLURM_JOB_ID=9\0")
    (process / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
    (process / "stat").write_text("71 (python) S 1 71 71 0")
    assert ([71] if is_rank else []) == [one.pid for one in job_processes.find(tmp_path, job="9").ranks]


def test_ranks_of_hydra_are_one_job(tmp_path: Path) -> None:
    fake(tmp_path, 10, 1, "hydra_pmi_proxy --rmk user")
    for rank in range(2):
        fake(tmp_path, 20 + rank, 10, "python train.py", PMI_RANK=str(rank), PMI_SIZE="2", MPI_LOCALRANKID=str(rank))
        stat = tmp_path / str(20 + rank) / "stat"
        stat.write_text(f"{20 + rank} (python) S 10 {20 + rank} {20 + rank} 0")  # a session for each rank
    (tmp_path / "10/stat").write_text("10 (hydra_pmi_proxy) S 1 10 9 0")
    found = job_processes.find(tmp_path).ranks
    assert [("session 9", 0, 0, 2), ("session 9", 1, 1, 2)] == [
        (one.name, one.rank, one.local_rank, one.world) for one in found
    ]


def test_a_child_that_is_another_program_does_not_hide_the_stack_of_its_rank(tmp_path: Path) -> None:
    """py-spy prints the rank, then fails at the child (a shell, a logger in Go) with exit status 1."""
    program = tmp_path / "py-spy"
    stack = 'Process 7: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\nThread 7 (idle): "MainThread"\n    run (train.py:9)\n'
    (tmp_path / "stack").write_text(stack)
    program.write_text(
        f"#!/bin/sh\ncat {tmp_path}/stack\necho 'Error: Failed to find python version from target process' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    assert (stack, None) == spy.dump(str(program), 7, native=False, seconds=10.0)
    text, problem = spy.dump(str(program), 8, native=False, seconds=10.0)
    assert ("", spy.NOT_PYTHON) == (text, problem)


def test_ranks_at_the_start_of_the_process_group_wait_for_the_one_that_does_not_come() -> None:
    facts = Facts()
    for rank, doing in enumerate(("rendezvous", "rendezvous", "other", "rendezvous")):
        facts.add([Stack("n", rank, 100 + rank, None, None, 1, 0, 0, doing, None, None, 1, None, 1)])
    assert [3] == [one.waiting for one in what_ranks_do(facts) if one.doing == "other"]
