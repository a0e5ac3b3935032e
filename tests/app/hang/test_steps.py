"""The newest step of a log that grows: what is read, and when it came."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.hang import steps
from nccl_doctor.app.hang.steps import JobSteps, Step, StepTail, newest_step
from nccl_doctor.node.host.job_processes import RankProcess

NANOGPT = b"iter %d: loss 2.1, time 412.00ms, mfu 31.2%%\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NANOGPT % 120, (120, 0.412)),
        (b" iteration       20/     100 | consumed samples: 640 | elapsed time per iteration (ms): 812.4 | loss: 1\n", (20, 0.8124)),
        (b"Train:  45%|####5     | 45/100 [00:18<00:22,  2.00it/s]\r", (45, 0.5)),
        (b"global step = 7 of many\n", (7, None)),
        (b"Step: [12/900] loss 3\n", (12, None)),
        (b"step 1\nstep 2\nsaving checkpoint\n", (2, None)),
        (b"two steps forward, 1 step back\n", None),
        (b"", None),
    ],
)  # fmt: skip
def test_the_newest_step_and_its_time(text: bytes, expected: tuple[int, float | None] | None) -> None:
    assert expected == newest_step(text)


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.log")
    assert StepTail(tmp_path / "job.log").read(0.0) is None


@given(st.binary(max_size=2000))
def test_any_bytes_are_read(text: bytes) -> None:
    found = newest_step(text)
    assert found is None or found[0] >= 0


def test_a_log_that_grows_is_truncated_and_replaced(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    tail = StepTail(log)
    assert tail.read(100.0) is None
    log.write_bytes(b"step 10\nstep 2")  # the last line is not complete
    os.utime(log, (90, 90))
    assert Step(10, None, 90.0) == tail.read(100.0)  # written before we came
    with log.open("ab") as file:
        file.write(b"0\n")
    assert Step(20, 1.0, 100.0) == tail.read(100.0)
    assert Step(20, 1.0, 100.0) == tail.read(105.0)
    log.write_bytes(b"step 1\n")
    assert Step(1, None, 106.0) == tail.read(106.0)
    log.rename(tmp_path / "job.log.1")
    log.write_bytes(b"step 5\n")
    assert Step(5, 1.0, 110.0) == tail.read(110.0)


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PIECE", 1000)
    log = tmp_path / "job.log"
    log.write_bytes(b"step 3\n" + b"nothing\n" * 500 + b"step 9\n" + b"nothing\n" * 20)
    tail = StepTail(log)
    found = tail.read(1.0)
    assert found is not None
    assert 9 == found.step


def rank(number: int, pid: int, recording: Path | None = None) -> RankProcess:
    return RankProcess(pid, number, number, 2, 0, None, "python train.py", "job", str(recording) if recording else None)


def test_the_output_of_the_lowest_rank_or_its_recording(tmp_path: Path) -> None:
    for pid, text in ((10, b"step 5\n"), (11, b"step 6\n")):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/1").write_bytes(text)
    jobs = JobSteps(tmp_path)
    assert [5] == [one["step"] for one in jobs.read([rank(1, 11), rank(0, 10)], 1.0)]
    assert [6] == [one["step"] for one in jobs.read([rank(1, 11)], 2.0)]
    assert [] == jobs.read([], 3.0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/output.log").write_bytes(NANOGPT % 7)
    found = jobs.read([rank(0, 12, tmp_path / "run")], 4.0)
    assert [("job", 7, 0.412)] == [(one["name"], one["step"], one["seconds"]) for one in found]
