"""The report that LSF puts behind the output of a job."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.formats.cluster import lsf_report

HEAD = """Sender: LSF System <lsfadmin@b1>
Subject: Job 4711: <train> in cluster <one> {end}

Job <train> was submitted from host <login1> by user <ada> in cluster <one> at Mon May  6 10:11:12 2024
Job was executed on host(s) <1*b1>, in queue <batch>, as user <ada> in cluster <one> at Mon May  6 10:12:13 2024
                            <42*g1>
                            <42*g2>
"""
TAIL = """{why}

Resource usage summary:

    CPU time :                                   81234.00 sec.
    Max Memory :                                 2 GB
    Average Memory :                             1234.00 MB
    Delta Memory :                               -
    Run time :                                   7207 sec.

The output (if any) follows:
"""


def read(text: str) -> list[AccountedJob]:
    facts = Facts()
    lsf_report.read_format(io.BytesIO(text.encode()), "out.4711", facts)
    return facts.rows(AccountedJob)


@pytest.mark.parametrize(
    ("why", "end", "state"),
    [
        ("Successfully completed.", "Done", "COMPLETED"),
        ("Exited with exit code 1.", "Exited", "FAILED"),
        (
            "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit code 140.",
            "Exited",
            "TIMEOUT",
        ),
        (
            "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.",
            "Exited",
            "OUT_OF_MEMORY",
        ),
    ],
)
def test_numbers_and_end(why: str, end: str, state: str) -> None:
    (job,) = read(HEAD.format(end=end) + TAIL.format(why=why))
    assert ("lsf", "4711", "train", state, 7207.0, 3, 2048.0) == (
        job.scheduler, job.job, job.name, job.state, job.elapsed_s, job.nodes, job.max_rss,
    )  # fmt: skip


def test_a_report_without_its_head() -> None:
    (job,) = read(TAIL.format(why="Exited with exit code 1."))
    assert ("", 7207.0) == (job.job, job.elapsed_s)


def test_reports_of_many_jobs() -> None:
    text = HEAD.format(end="Done") + TAIL.format(why="Successfully completed.")
    assert ["4711", "4712"] == [job.job for job in read(text + text.replace("4711", "4712"))]


def test_a_report_without_numbers_is_none() -> None:
    assert not read(HEAD.format(end="Exited"))
