"""The line that says why is the reason; the launcher's box below it, or in a file of its own, is its echo."""

import random
from functools import cache
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.simulate import FAULTS, Spec, fit, write_log
from tests.helpers.launcher_boxes import BOXES

EACH = 5  # faults for a box


def report_of(folder: Path, **files: str) -> Report:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return analyze.analyze([str(folder)])[0]


@cache
def log(fault: str | None, seed: int = 0) -> str:
    return "".join(f"{line}\n" for line in write_log(fit(Spec(nodes=2, gpus=2, fault=fault, steps=4, seed=seed))))


def faults(box: str) -> list[str]:
    return random.Random(box).sample(sorted(FAULTS), EACH)


@pytest.mark.parametrize("box", BOXES)
def test_the_box_of_a_launcher_is_never_the_reason(tmp_path: Path, box: str) -> None:
    for fault in faults(box):
        folders = [tmp_path / f"{fault}-{way}" for way in ("alone", "below", "beside")]
        for folder in folders:
            folder.mkdir()
        alone = report_of(folders[0], job_log=log(fault))
        below = report_of(folders[1], job_log=f"{log(fault)}{BOXES[box]}\n")
        beside = report_of(folders[2], job_log=log(fault), launcher_err=f"{BOXES[box]}\n")
        first = alone.findings[0]
        if first.severity == "note" or first.role == "symptom":
            continue  # then the end of a process says more
        for report in (below, beside):
            assert first.name == report.findings[0].name, (fault, box)


@pytest.mark.parametrize("then", [None, "dev-shm-full", "python-exception"])
@pytest.mark.parametrize(
    "fault", ["cuda-oom", "python-exception", "ib-link-flapping", "memlock-limit", "connection-refused"]
)
def test_what_came_before_a_restart_comes_first(tmp_path: Path, fault: str, then: str | None) -> None:
    """A requeued job begins again on other nodes; its second failure is not the reason of the first."""
    report = report_of(tmp_path, job_log=f"{log(fault)}{BOXES['torchrun']}\n{log(then, seed=1)}")
    first = report.findings[0]
    assert fault == first.name
    assert [] == first.explained_by
    second = next((one for one in report.findings if one.name == then), None)
    assert (then is None) == (second is None)
    assert second is None or first.role == "cause" or first.rule not in second.explained_by


def test_the_plug_in_that_started_no_container_comes_before_the_end_of_the_rank(tmp_path: Path) -> None:
    report = report_of(
        tmp_path,
        job_log="slurmstepd: error: pyxis: couldn't start container\nsrun: error: n1: task 0: Exited with exit code 1\n",
    )

    assert ["launch-failed", "rank-exited"] == [finding.name for finding in report.findings]
