"""Genuine folders: runs of a site are reported apart, files of one launch stay together."""

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze


def test_the_runs_of_a_site_are_reported_apart() -> None:
    folder = SHARED / "real" / "bigscience-workshop__bigscience"
    several = analyze.analyze([str(folder)], apart="auto")[0]
    assert 14 == len(several.jobs) == len(several.inputs)
    assert {1} == {len(job.inputs) for job in several.jobs}
    assert {"poor-scaling", "scaling-measured"} <= {finding.name for finding in several.findings}


def test_the_failure_before_a_restart_comes_first() -> None:
    report = analyze.analyze([str(SHARED / "artifacts" / "torch" / "elastic_restarts.err")])[0]
    assert ["restarted once · rank 1 ended with status 1"] == report.job_lines[1:]
    assert ("cuda-error", "1", 10) == (
        report.findings[0].name,
        report.findings[0].ranks,
        report.findings[0].evidence[0].line,
    )
    assert [] == next(one for one in report.findings if one.name == "rendezvous-failed").explained_by


@pytest.mark.parametrize(
    "launch",
    ["torch/torchrun_tee_logs", "torch/flight_recorder", "openmpi/outdir", "openmpi/outdir_tag", "kineto_4r_slow2"],
)
def test_the_files_of_a_launch_stay_together(launch: str) -> None:
    assert [] == analyze.analyze([str(SHARED / "artifacts" / launch)], apart="auto")[0].jobs
