"""Jobs as `qstat -f` prints them, as text and as JSON."""

import io
import json

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Message, ProcessEnd
from nccl_doctor.formats.cluster import pbs_accounting

HOUR = {"walltime": "01:00:00", "mem": "64gb", "ncpus": "8"}
USED = {"cput": "04:00:00", "mem": "1048576kb", "ncpus": "8", "walltime": "00:30:00"}


def text_of(status: int | None, state: str = "F", used: dict[str, str] = USED, job: str = "42.head") -> str:
    lines = [
        f"Job Id: {job}",
        "    Job_Name = train",
        *(f"    resources_used.{key} = {value}" for key, value in used.items()),
        f"    job_state = {state}",
        "    exec_host = gn01/0*8+gn0",
        "\t2/0*8",
        *(f"    Resource_List.{key} = {value}" for key, value in HOUR.items()),
        "    comment = Job run at Mon May 06 at 10:12",
        *([] if status is None else [f"    Exit_status = {status}"]),
        "    obittime = Mon May  6 10:42:13 2024",
    ]
    return "\n".join(lines) + "\n\n"


def json_of(status: int | None, state: str = "F", used: dict[str, str] = USED, job: str = "42.head") -> str:
    said = {
        "Job_Name": "train",
        "resources_used": used,
        "job_state": state,
        "exec_host": "gn01/0*8+gn02/0*8",
        "Resource_List": HOUR,
        "comment": "Job run at Mon May 06 at 10:12",
        "obittime": "Mon May  6 10:42:13 2024",
    } | ({} if status is None else {"Exit_status": status})
    return json.dumps({"timestamp": 1, "pbs_version": "23.06.06", "Jobs": {job: said}}, indent=4)


def read(text: str) -> Facts:
    facts = Facts()
    pbs_accounting.read_format(io.BytesIO(text.encode()), "qstat.txt", facts)
    return facts


both = pytest.mark.parametrize("made", [text_of, json_of])


@both
def test_numbers_of_a_job(made) -> None:  # type: ignore[no-untyped-def]
    (job,) = read(made(0)).rows(AccountedJob)
    assert ("pbs", "42.head", "train", "COMPLETED", 1800.0, 2, 8, 1024.0) == (
        job.scheduler, job.job, job.name, job.state, job.elapsed_s, job.nodes, job.cpus, job.max_rss,
    )  # fmt: skip
    assert job.cpu_efficiency == pytest.approx(4 / (0.5 * 8))


@both
@pytest.mark.parametrize(("status", "exitcode", "signal"), [(3, 3, None), (271, -15, "SIGTERM"), (137, -9, "SIGKILL")])
def test_a_job_that_failed(made, status, exitcode, signal) -> None:  # type: ignore[no-untyped-def]
    (end,) = read(made(status)).rows(ProcessEnd)
    assert (exitcode, signal, "PBS", "42.head") == (end.exitcode, end.signal, end.reporter, end.job)


@both
@pytest.mark.parametrize(
    ("status", "used", "resource"),
    [
        (-29, {}, "walltime"),
        (-28, {}, "cput"),
        (-27, {}, "mem"),
        (-26, {}, "vmem"),
        (-25, {}, "ncpus"),
        (271, {"walltime": "00:59:58"}, "walltime"),  # TORQUE tells the signal only
        (271, {"mem": "67108864kb"}, "mem"),
    ],
)
def test_a_job_that_reached_a_limit(made, status, used, resource) -> None:  # type: ignore[no-untyped-def]
    facts = read(made(status, used=USED | used))
    (message,) = facts.rows(Message)
    assert ("pbs-killed", resource) == (message.kind, json.loads(message.fields)["resource"])
    assert not facts.rows(ProcessEnd)
    (job,) = facts.rows(AccountedJob)
    assert ("TIMEOUT" if resource in ("walltime", "cput") else "FAILED") == job.state


@both
def test_a_job_that_was_not_run(made) -> None:  # type: ignore[no-untyped-def]
    (message,) = read(made(-2)).rows(Message)
    assert "pbs-not-run" == message.kind
    assert "Exit_status = -2 comment = Job run at Mon May 06 at 10:12" in message.text


@both
@pytest.mark.parametrize(("state", "told"), [("R", "RUNNING"), ("Q", "PENDING"), ("S", "SUSPENDED"), ("F", "ENDED")])
def test_a_job_without_a_status(made, state, told) -> None:  # type: ignore[no-untyped-def]
    facts = read(made(None, state))
    assert [told] == [row.state for row in facts.rows(AccountedJob)]
    assert not facts.rows(ProcessEnd)
    assert not facts.rows(Message)


def test_jobs_of_one_text_are_kept_apart() -> None:
    facts = read(text_of(0) + text_of(1, job="43[2].head"))
    assert [("42.head", "COMPLETED"), ("43[2].head", "FAILED")] == [
        (row.job, row.state) for row in facts.rows(AccountedJob)
    ]


def test_evidence_is_the_line_of_the_status() -> None:
    for text in (text_of(1), json_of(1)):
        facts = read(text)
        wanted = 1 + next(number for number, line in enumerate(text.splitlines()) if "Exit_status" in line)
        assert [(wanted,)] == facts.query("SELECT e.line FROM process_end p JOIN evidence e ON e.id = p.ref")


@pytest.mark.parametrize("size", [40, 200, 400])
def test_text_that_breaks_off(size: int) -> None:
    assert ["42.head"] == [row.job for row in read(text_of(1)[:size]).rows(AccountedJob)]
    facts = Facts()
    reading = pbs_accounting.read_format(io.BytesIO(json_of(1)[:size].encode()), "qstat.json", facts)
    assert reading.note is not None
    assert reading.note.startswith("is no complete JSON: ")


def test_odd_values_say_nothing() -> None:
    odd = {"job_state": [1], "Exit_status": "1e9", "exec_host": {}, "resources_used": 7}
    facts = read(json.dumps({"pbs_version": 1, "Jobs": {"1.a": 3, "x": {}, "2.b": odd}}))
    assert [("2.b", "ENDED", None)] == [(row.job, row.state, row.elapsed_s) for row in facts.rows(AccountedJob)]
