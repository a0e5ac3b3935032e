"""Waits for data that are none: a loader that starts with each epoch, and the time of the GPU in a loop that waits nowhere else."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze

LENGTH = 2_000  # steps of an epoch


def line(rank: int, epoch: int, step: int, waited: float) -> str:
    return (
        f"{rank}: TRAIN [{epoch}][{step}/{LENGTH}]\tTime {0.06 + waited:.3f} (0.060)\tData {waited:.5f} (0.00101)\t"
        f"Tok/s {52_000 + 7 * step} (52787)\tLoss/tok {5 - step / 1e4:.4f} (3.3693)\n"
    )


def log(path: Path, waits: dict[int, float]) -> Path:
    path.write_text(
        "".join(
            line(rank, epoch, step, waits.get(step, 0.001))
            for epoch in range(3)
            for step in range(0, LENGTH, 10)
            for rank in range(2)
        )
    )
    return path


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ({0: 2.9}, {"throughput-stalls": "note"}),
        ({}, {}),
        (dict.fromkeys(range(0, LENGTH, 50), 0.9), {"input-pipeline-stall": "warning", "throughput-stalls": "warning"}),
    ],
)
def test_only_a_wait_inside_an_epoch_is_one(tmp_path: Path, waits: dict[int, float], found: dict[str, str]) -> None:
    report, _, _ = analyze.analyze([str(log(tmp_path / "train.log", waits))])
    told = {finding.name: finding.severity for finding in report.findings}
    assert found.items() <= told.items()
    assert [name for name, severity in told.items() if severity != "note" and name not in found] == []


@pytest.mark.parametrize(("jitter", "severity"), [(0.0003, "note"), (0.03, "warning")])
def test_even_steps_that_are_all_data_may_be_the_time_of_the_gpu(tmp_path: Path, jitter: float, severity: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"Epoch: [0]  [{step:5}/12191]  eta: 1:46:10    loss: 1.2 (1.3)    time: {0.52 + wait:.4f}"
            f"  data: {0.5 + wait:.4f}  max mem: 10412\n"
            for step in range(20, 2_000, 20)
            for wait in [jitter * (step * 7 % 11 - 5)]
        )
    )
    report, _, _ = analyze.analyze([str(path)])
    assert [("input-pipeline-stall", severity)] == [(finding.name, finding.severity) for finding in report.findings]
