"""Timelines that Horovod wrote: read as far as they go, and the late rank is named where there is one."""

from pathlib import Path

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.horovod import timeline

LATE = {"slow_rank2": "2", "stall": "1"}  # part of the file's name -> the rank that was held back


@pytest.mark.parametrize("path", sorted((SHARED / "artifacts" / "horovod").glob("*.json")), ids=lambda path: path.stem)
def test_recorded_timelines(path: Path) -> None:
    with path.open("rb") as stream:
        reading = timeline.read_format(stream, path.name, Facts())
    assert reading.understood > 0
    assert ("diskfull" in path.name) == (reading.note is not None)
    late = [rank for part, rank in LATE.items() if part in path.name and "mpi_stall_sh" not in path.name]
    report, _, _ = analyze.analyze([str(path)])
    assert late == [finding.ranks for finding in report.findings if finding.name == "horovod-straggler"]
