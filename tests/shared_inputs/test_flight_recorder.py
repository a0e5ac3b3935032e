"""Dumps of several runs in one folder are series of their own."""

from pathlib import Path

from helpers.places import SHARED

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import RecorderMismatch

RECORDED = SHARED / "artifacts" / "torch" / "flight_recorder"


def test_series_in_one_folder_are_kept_apart() -> None:
    facts, problems = analyze.read_facts([str(RECORDED)])
    assert [] == problems
    found = {
        Path(facts.evidence_rows([m.ref])[0].file).name.rsplit("_", 1)[0]: (m.seq, m.rank)
        for m in facts.rows(RecorderMismatch)
    }
    assert {"hang_allreduce": (9, 1), "loader_w0": (4, 1), "loader_w2": (4, 1)} == found
