"""Two real jobs on this node: the one that stands still is answered by name, the healthy one is left alone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app.hang import pyspy
from nccl_doctor.cli.main import main
from nccl_doctor.derive.hang.job_stop import judge
from nccl_doctor.formats.recording.hang_records import Looks

TORCH = """
import time

def all_reduce(tensor):
    print("there", flush=True)
    time.sleep(1000)
"""
STUCK = """
import os, time
from torch.distributed.distributed_c10d import all_reduce

def read_sample():
    print("there", flush=True)
    time.sleep(1000)

def train():
    for step in range(3, 4):
        read_sample() if os.environ["RANK"] == "1" else all_reduce(None)

train()
"""
HEALTHY = """
import time

def train():
    print("there", flush=True)
    while True:
        time.sleep(0.01)

train()
"""


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The names of the stuck job and of the healthy one, each with three ranks that are there."""
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "distributed_c10d.py").write_text(TORCH)
    names = {name: f"10.0.0.1:{1 + 2 * (os.getpid() % 30_000) + n}" for n, name in enumerate(("stuck", "healthy"))}
    with ExitStack() as stack:
        running = []
        for name, text in (("stuck", STUCK), ("healthy", HEALTHY)):
            (tmp_path / f"{name}.py").write_text(text)
            address, _, port = names[name].partition(":")
            for rank in range(3):
                environ = {
                    **os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": address, "MASTER_PORT": port,
                    "PYTHONPATH": str(tmp_path / "site-packages"),
                }  # fmt: skip
                command = [sys.executable, str(tmp_path / f"{name}.py")]
                running.append(stack.enter_context(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)))
                stack.callback(running[-1].kill)
        for one in running:
            assert one.stdout is not None
            assert b"there\n" == one.stdout.readline()
        path = pyspy.program()
        problem = pyspy.dump(path, running[0].pid, native=False, seconds=20)[1] if path else "py-spy is not installed"
        if problem:
            pytest.skip(problem)
        yield names


def stacks(job: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = main(["stacks", "--job", job, "--pause", "0.3", "--format", "json"])
    return status, json.loads(capfd.readouterr().out)


def test_stacks_accuse_the_rank_of_the_stuck_job_only(ports: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    status, found = stacks(ports["stuck"], capfd)
    assert 1 == status
    accused = [(one["name"], one["ranks"]) for one in found["findings"] if one["role"] == "cause"]
    assert [("rank-outside-collective", "1")] == accused
    assert "does not move" in found["findings"][0]["message"]
    (said,) = [one["message"] for one in found["findings"] if one["name"] == "job-stopped"]
    assert "2 of 3 ranks wait in all_reduce; rank 1" in said
    assert "is in read_sample (stuck.py:7)" in said
    status, found = stacks(ports["healthy"], capfd)
    assert (0, []) == (status, found["findings"])


def test_the_sampler_looks_twice_without_being_asked(ports: dict[str, str]) -> None:
    command = [sys.executable, "-m", "nccl_doctor", "sample", "--eager", "--interval=0.2", "--only=process"]
    looks = Looks()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sampler:
        assert sampler.stdout is not None
        for line in sampler.stdout:
            record = json.loads(line)
            if record["kind"] == "hang" and looks.add(record) == ports["stuck"] and record.get("look") == 2:
                break
        sampler.terminate()
    found = judge(looks.ranks(ports["stuck"]))
    assert found is not None
    assert ("stopped", 2, "all_reduce", [1]) == (
        found.state,
        found.waiting,
        found.operation,
        [one.rank for one in found.suspects],
    )
    assert judge(looks.ranks(ports["healthy"])) is None
