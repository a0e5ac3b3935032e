"""The headline about a job."""

from nccl_doctor.derive.hang.job_state import JobState, Suspect
from nccl_doctor.watch.state import State

LOADING = Suspect(13, "gpu-b", 4005, 5, "is in DataLoader.next (loader.py:8)")
STOPPED = JobState("81234", "stopped", 100.0, 16, 15, "all_reduce", "dataloader", (LOADING,))


def test_the_headline_names_who_waits_and_who_is_missing() -> None:
    said = "15 of 16 ranks wait in all_reduce; rank 13 (gpu-b GPU 5, pid 4005) is in DataLoader.next (loader.py:8)"
    assert f"JOB STOPPED 42 s: {said}" == STOPPED.sentence(142.9)
    assert f"JOB 81234 STOPPED 10 min: {said}" == STOPPED.sentence(100.0 + 600, named=True)


def test_what_is_unknown_is_left_out() -> None:
    job = JobState("", "waiting", 0.0, 4, 3, None, "outside", (Suspect(None, None, None, None, "computes"),))
    assert "JOB WAITS 0 s: 3 of 4 ranks wait; a process computes" == job.sentence(-1.0)


def test_stopped_jobs_come_first_and_are_named_where_there_are_several() -> None:
    state = State(jobs={"a": JobState("a", "waiting", 0.0, 2, 1, None, "outside"), "81234": STOPPED})
    first, second = state.headlines(100.0)
    assert first.startswith("JOB 81234 STOPPED")
    assert second.startswith("JOB a WAITS")
