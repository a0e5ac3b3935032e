"""Genuine topology and graph files of NCCL agree with another reader and raise no alarm."""

from pathlib import Path

import pytest
from helpers.places import SHARED
from helpers.second_readers import assert_topology_agrees

from nccl_doctor.app import analyze

GENUINE = sorted((SHARED / "real").glob("*/*.xml"))


@pytest.mark.parametrize("path", GENUINE, ids=lambda path: path.name)
def test_numbers_agree_with_another_reader(path: Path) -> None:
    assert_topology_agrees(path)


@pytest.mark.parametrize("path", GENUINE, ids=lambda path: path.name)
def test_genuine_files_raise_no_alarm(path: Path) -> None:
    report, _, _ = analyze.analyze([str(path)])
    assert set() == {finding.name for finding in report.findings if finding.severity != "note"}
