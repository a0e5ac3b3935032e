"""A loader that starts its workers with each epoch is no job that waits for data: of ten steps one is printed, and the first is always."""

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
