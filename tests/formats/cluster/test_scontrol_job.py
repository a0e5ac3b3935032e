"""`scontrol show job`: how jobs of a real Slurm ended, in a file and inside a log."""

import io
from pathlib import Path

import pytest
from helpers.places import ROOT
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, ProcessEnd
from nccl_doctor.formats import registry
from nccl_doctor.formats.cluster import scontrol_job
from nccl_doctor.formats.declaration import Reading

FIXTURE = ROOT / "fixtures" / "captures" / "scontrol_jobs.txt"


def read(data: bytes) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, scontrol_job.read_format(io.BytesIO(data), "jobs.txt", facts)


def job(state: str, exit_code: str = "0:0") -> str:
    return (
        f"JobId=7 JobName=train\n   JobState={state} Reason=None Dependency=(null)\n"
        f"   Requeue=1 ExitCode={exit_code}\n   StartTime=2026-05-07T10:00:00 EndTime=2026-05-07T11:00:00 Deadline=N/A\n"
        "   BatchHost=node01\n"
    )


def test_each_end_of_a_real_slurm() -> None:
    facts, reading = read(FIXTURE.read_bytes())
    messages, ends = facts.rows(Message), facts.rows(ProcessEnd)
    assert [("slurm-time-limit", "node01"), ("slurm-cancelled", None)] == [(row.kind, row.host) for row in messages]
    assert [(3, None, "node02"), (-9, "SIGKILL", "node02")] == [(row.exitcode, row.signal, row.host) for row in ends]
    assert reading.note is None
    assert reading.understood == len([line for line in FIXTURE.read_text().splitlines() if "=" in line])


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        ("TIMEOUT", "scheduler-time-limit"),
        ("CANCELLED", "scheduler-cancelled"),
        ("PREEMPTED", "scheduler-preempted"),
        ("NODE_FAIL", "node-failed"),
        ("OUT_OF_MEMORY", "host-memory-oom"),
    ],
)
def test_the_state_of_a_job_leads_to_the_finding_of_its_line(tmp_path: Path, state: str, rule: str) -> None:
    path = tmp_path / "job.txt"
    path.write_text(job(state))
    report, _, _ = analyze.analyze([str(path)])
    assert ["slurm-job"] == [read.kind for read in report.inputs]
    assert [rule] == [finding.name for finding in report.findings]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETED", "COMPLETING", "REQUEUED"])
def test_a_job_that_did_not_fail_is_no_fact(state: str) -> None:
    facts, _ = read(job(state).encode())
    assert [] == [*facts.rows(Message), *facts.rows(ProcessEnd)]


def test_a_job_inside_a_log_is_read_behind_its_prefix() -> None:
    lines = "".join(f"[1,0]<stdout>:{line}\n" for line in job("FAILED", "1:0").splitlines())
    facts = analyze.read_text(f"step 1 loss 2.3\n{lines}[1,0]<stdout>:done\n")
    assert [(1, None, "scontrol")] == [(row.exitcode, row.signal, row.reporter) for row in facts.rows(ProcessEnd)]


def test_one_line_a_job_is_read_too() -> None:
    facts, _ = read(" ".join(job("FAILED", "0:15").split()).encode())
    assert ["SIGTERM"] == [row.signal for row in facts.rows(ProcessEnd)]


def test_jobs_beyond_the_most_are_counted_out_and_change_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scontrol_job, "_MAX_JOBS", 1)
    lines = [" ".join(job("FAILED", code).split()) for code in ("3:0", "4:0")]
    facts, reading = read("\n".join(lines).encode())
    assert ([3], "holds more than 1 jobs; the others were left out") == (
        [row.exitcode for row in facts.rows(ProcessEnd)],
        reading.note,
    )


def test_a_job_is_recognised_by_its_first_line() -> None:
    known = registry.recognise(job("RUNNING").encode())
    assert known is not None
    assert "slurm-job" == known.kind
    assert registry.recognise(b"JobId 7\nJobName=train\n") is None


@given(st.binary(max_size=300), st.integers(0, 200))
def test_damage_is_read_as_far_as_it_goes(noise: bytes, at: int) -> None:
    data = job("FAILED", "9999999999:99").encode()
    _, reading = read(data[:at] + noise + data[at:])
    assert 0 <= reading.understood <= reading.lines


@pytest.mark.parametrize(("nodes", "host"), [("gpu01", "gpu01"), ("gpu[01-04]", None)])
def test_a_lost_node_is_named_only_where_there_is_one(nodes: str, host: str | None) -> None:
    """That the batch script ran on a node does not say that it was lost."""
    facts = Facts()
    line = f"JobId=9931 JobName=pretrain JobState=NODE_FAIL Reason=NodeDown ExitCode=0:9 NodeList={nodes} BatchHost=gpu01\n"

    scontrol_job.read_format(io.BytesIO(line.encode()), "job.txt", facts)

    assert [host] == [row.host for row in facts.rows(Message)]
