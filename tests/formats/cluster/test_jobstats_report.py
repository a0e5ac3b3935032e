"""The report of jobstats, written after its output_formatters.py."""

import io
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.facts.tables.gpu import GpuUse
from nccl_doctor.formats.cluster import jobstats_report

REPORT = (FIXTURES / "batch" / "jobstats.txt").read_text()


def read(text: str) -> Facts:
    facts = Facts()
    jobstats_report.read_format(io.BytesIO(text.encode()), "report.txt", facts)
    return facts


def test_the_job_and_its_gpus() -> None:
    facts = read(REPORT)
    (job,) = facts.rows(AccountedJob)
    assert ("4242", "train", "COMPLETED", 36000.0, 2, 32) == (
        job.job, job.name, job.state, job.elapsed_s, job.nodes, job.cpus,
    )  # fmt: skip
    assert (16384.0, 0.1, 0.0625) == (job.max_rss, job.cpu_efficiency, job.memory_efficiency)
    assert [("node01", 0, 90.0, 20480.0), ("node02", 0, 50.0, 512.0)] == [
        (use.host, use.gpu, use.util_mean, use.memory_max) for use in facts.rows(GpuUse)
    ]


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "FAILED"])
def test_an_end_that_slurm_names(state: str, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(REPORT.replace("COMPLETED", state))
    report, _, _ = analyze.analyze([str(tmp_path / "report.txt")])
    named = {"TIMEOUT": "scheduler-time-limit", "OUT_OF_MEMORY": "host-memory-oom", "FAILED": "rank-exited"}
    assert named[state] in {finding.name for finding in report.findings}
    assert ["jobstats-report"] == [one.kind for one in report.inputs]


def test_of_several_reports_each_has_its_gpus_and_damage_is_survived() -> None:
    facts = read(REPORT + REPORT.replace("4242", "4243").replace("node0", "gpu0"))
    assert ["4242", "4243"] == [job.job for job in facts.rows(AccountedJob)]
    assert ["gpu01", "gpu02", "node01", "node02"] == sorted(str(use.host) for use in facts.rows(GpuUse))
    for cut in range(0, len(REPORT), 61):
        read(REPORT[:cut])
    assert [] == read(REPORT.replace("4242", "")).rows(AccountedJob)
