"""The event log of HTCondor: how long jobs waited and ran, and how they ended."""

import io
from pathlib import Path

from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, ProcessEnd
from nccl_doctor.formats.cluster import htcondor_log

LOG = FIXTURES / "batch" / "htcondor.log"


def read(text: str) -> Facts:
    facts = Facts()
    htcondor_log.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts


def test_jobs_with_their_states() -> None:
    rows = {row.job: row for row in read(LOG.read_text()).rows(AccountedJob)}
    assert {"417.0": "COMPLETED", "417.1": "FAILED", "417.2": "CANCELLED"} == {
        key: row.state for key, row in rows.items()
    }
    assert (190.0, 7202.0, 20512.0) == (rows["417.0"].waited_s, rows["417.0"].elapsed_s, rows["417.0"].max_rss)
    assert 2400.0 == rows["417.1"].elapsed_s  # since its last start
    assert (None, None) == (rows["417.2"].waited_s, rows["417.2"].elapsed_s)


def test_a_job_that_a_signal_ended_names_its_host() -> None:
    ((end,)) = read(LOG.read_text()).rows(ProcessEnd)
    assert ("gpu-c.site", -9, "SIGKILL", "417.1") == (end.host, end.exitcode, end.signal, end.job)


def test_dates_without_a_year_and_a_new_year() -> None:
    text = (
        "000 (0007.000.000) 12/31 23:50:00 Job submitted from host: <10.0.0.5:9618>\n...\n"
        "001 (0007.000.000) 12/31 23:55:00 Job executing on host: <10.0.0.21:9618>\n...\n"
        "005 (0007.000.000) 01/01 00:05:00 Job terminated.\n\t(1) Normal termination (return value 3)\n...\n"
    )
    facts = read(text)
    assert [("7.0", "FAILED", 300.0, 600.0)] == [
        (row.job, row.state, row.waited_s, row.elapsed_s) for row in facts.rows(AccountedJob)
    ]
    assert [("10.0.0.21", 3)] == [(row.host, row.exitcode) for row in facts.rows(ProcessEnd)]


def test_a_job_that_is_held_and_one_that_waits() -> None:
    text = (
        LOG.read_text().split("004 (417")[0]
        + "012 (417.001.000) 2026-11-02 11:00:00 Job was held.\n\tout of disk\n...\n"
    )
    states = {row.job: row.state for row in read(text).rows(AccountedJob)}
    assert {"417.0": "RUNNING", "417.1": "HELD", "417.2": "PENDING"} == states


def test_a_report_on_jobs_that_are_held_says_why(tmp_path: Path) -> None:
    text = "".join(
        f"000 (9.00{at}.000) 2026-11-02 10:00:00 Job submitted from host: <10.0.0.5:9618>\n...\n"
        f"001 (9.00{at}.000) 2026-11-02 10:00:30 Job executing on host: <10.0.0.21:9618>\n...\n"
        f"012 (9.00{at}.000) 2026-11-02 10:01:00 Job was held.\n\tError from gpu-a: no space left\n\tCode 12 Subcode 28\n...\n"
        for at in range(2)
    )
    (tmp_path / "job.log").write_text(text)
    report, _, _ = analyze.analyze([str(tmp_path / "job.log")])
    assert ["job-held"] == [finding.name for finding in report.findings]
    assert "2 jobs are held, such as 9.0: Error from gpu-a: no space left" == report.findings[0].message


def test_a_report_says_how_many_ended_how() -> None:
    report, _, _ = analyze.analyze([str(LOG)])
    assert "3 jobs: 1 cancelled, 1 completed, 1 failed" in " ".join(report.job_lines)
    assert "rank-sigkill" in {finding.name for finding in report.findings}


def test_torn_text_gives_nothing() -> None:
    assert [] == read("000 (417.000.000) 2026-11-02\n005 (x) y\n\n").rows(AccountedJob)
