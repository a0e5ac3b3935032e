"""Genuine logs without a fault are called healthy, or nothing is found in them; what is remarked stands below that."""

import json
from pathlib import Path

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze

LEAST = 4  # lines; fewer do not show of what they are


def healthy() -> list[Path]:
    """The folders of cases labelled healthy, without those of which the label says that the log cannot prove it."""
    cases = [(path.parent, json.loads(path.read_text())) for path in sorted(SHARED.glob("cases/*/case.json"))]
    return [folder for folder, case in cases if case["cause"] == "healthy" and case["diagnosable"] != "no"]


@pytest.mark.parametrize("folder", healthy(), ids=lambda folder: folder.name)
def test_a_log_without_fault_is_healthy_or_nothing_is_found(folder: Path) -> None:
    log = folder / "log.txt"
    if len(log.read_text("utf-8", "replace").splitlines()) < LEAST:
        pytest.skip("too short to judge by")
    report = analyze.analyze([str(log)])[0]
    assert report.verdict in ("healthy", "nothing-found"), (report.basis, [one.name for one in report.findings])
