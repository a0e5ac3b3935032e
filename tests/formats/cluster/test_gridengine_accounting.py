"""qacct of a real Grid Engine 8.1.9 that ran three jobs, of which one failed; ends by a signal are made from it."""

import io
import json
import re
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Message, ProcessEnd
from nccl_doctor.formats.cluster import gridengine_accounting
from nccl_doctor.formats.registry import recognise

QACCT = FIXTURES / "gridengine" / "qacct.txt"


def read(text: str) -> Facts:
    facts = Facts()
    gridengine_accounting.read_format(io.BytesIO(text.encode()), "qacct.txt", facts)
    return facts


def test_jobs_and_their_ends_agree_with_the_text() -> None:
    text = QACCT.read_text()
    facts = read(text)
    statuses = [int(status) for status in re.findall(r"(?m)^exit_status +(\d+)", text)]
    assert [0, 0, 2] == statuses
    assert ["COMPLETED" if status == 0 else "FAILED" for status in statuses] == [
        row.state for row in facts.rows(AccountedJob)
    ]
    assert {(2, None)} == {(row.exitcode, row.signal) for row in facts.rows(ProcessEnd)}
    assert {"ge1"} == {row.host for row in facts.rows(ProcessEnd)}
    assert {"gridengine"} == {row.scheduler for row in facts.rows(AccountedJob)}


def test_a_job_that_was_printed_twice_is_one() -> None:
    text = QACCT.read_text()
    assert len(read(text).rows(AccountedJob)) == len(read(text + text).rows(AccountedJob))
    other = text.replace("hostname     ge1", "hostname     ge2")
    assert 2 * len(read(text).rows(AccountedJob)) == len(read(text + other).rows(AccountedJob))


def test_jobs_beyond_the_most_are_counted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gridengine_accounting, "_MOST_JOBS", 2)
    facts = Facts()
    reading = gridengine_accounting.read_format(io.BytesIO(QACCT.read_bytes() * 2), "qacct.txt", facts)
    assert "holds more than 2 jobs; the others were left out" == reading.note
    assert "1" == facts.rows(AccountedJob)[0].job


def test_a_job_that_was_killed() -> None:
    killed = (
        QACCT.read_text()
        .replace("exit_status  2 ", "exit_status  137 ")
        .replace("failed       0    \nexit_status  137", "failed       100\nexit_status  137")
    )
    assert [(-9, "SIGKILL")] == [(row.exitcode, row.signal) for row in read(killed).rows(ProcessEnd)]


def test_the_report_names_the_end() -> None:
    report, _, _ = analyze.analyze([str(QACCT)])
    assert {"rank-exited"} == {finding.name for finding in report.findings}
    assert {"gridengine-accounting"} == {read.kind for read in report.inputs}


@pytest.mark.parametrize("cut", [0, 63, 200, 900, 2000])
def test_a_cut_answer(cut: int) -> None:
    assert len(read(QACCT.read_text()[:cut]).rows(AccountedJob)) <= 2


def test_numbers_with_units_and_an_array_task() -> None:
    pairs = {
        "qname": "all.q",
        "jobnumber": "7",
        "taskid": "3",
        "failed": "0",
        "exit_status": "0",
        "ru_wallclock": "12.5s",
        "maxvmem": "1.5GB",
        "slots": "8",
    }
    text = "=" * 62 + "\n" + "".join(f"{key:<13}{value}\n" for key, value in pairs.items())
    assert "gridengine-accounting" == getattr(recognise(text.encode()), "kind", None)
    (row,) = read(text).rows(AccountedJob)
    assert ("7.3", 12.5, 1536.0, 8) == (row.job, row.elapsed_s, row.max_rss, row.cpus)


@pytest.mark.parametrize(
    ("wall", "memory", "finding"),
    [
        ("3601s", "9.000G", "scheduler-time-limit"),
        ("120s", "255.900G", "host-memory-oom"),
        ("120s", "9.000G", "rank-sigkill"),
    ],
)
def test_the_limit_that_a_killed_job_reached(wall: str, memory: str, finding: str, tmp_path: Path) -> None:
    (tmp_path / "qacct.txt").write_text(
        f"""{"=" * 62}
qname        gpu.q
hostname     gn21.cluster
jobnumber    77123
taskid       undefined
category     -l h_rt=1:0:0,h_vmem=16G -pe mpi 16
end_time     Sat Mar  1 13:01:00 2025
slots        16
failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit
exit_status  137
ru_wallclock {wall}
maxvmem      {memory}
"""
    )
    report, _, _ = analyze.analyze([str(tmp_path / "qacct.txt")])
    assert [finding] == [one.name for one in report.findings]
    assert "gn21.cluster" in str(report.findings[0].hosts)
    assert "jobnumber 77123" in report.findings[0].evidence[0].text


def test_a_limit_that_the_scheduler_names() -> None:
    killed = QACCT.read_text().replace("exit_status  2 ", "exit_status  137 ")
    killed = killed.replace(
        "failed       0    \nexit_status  137", "failed       44  : execd enforced h_rt limit\nexit_status  137"
    )
    facts = read(killed)
    assert [] == facts.rows(ProcessEnd)
    assert ["h_rt"] == [json.loads(row.fields or "{}")["resource"] for row in facts.rows(Message)]
