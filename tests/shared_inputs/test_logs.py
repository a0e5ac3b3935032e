"""Genuine logs, where the folder with them is present: recognised, understood, counted right, and healthy when they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.places import SHARED

from nccl_doctor.app import analyze

REAL = SHARED / "real"
MANIFEST = REAL / "MANIFEST.jsonl"
ENTRIES = [json.loads(line) for line in MANIFEST.read_text().splitlines()] if MANIFEST.is_file() else []
LOGS = [entry for entry in ENTRIES if entry["kind"] == "nccl-log"]
PARTS = ("log27.log",)  # one host's lines out of a larger log: they do not say how many hosts there were


@pytest.mark.parametrize("entry", LOGS, ids=[Path(entry["path"]).name for entry in LOGS])
def test_a_genuine_log_is_recognised_understood_and_healthy(entry: dict[str, Any]) -> None:
    report, _, problems = analyze.analyze([str(REAL / entry["path"])])
    assert [] == problems
    read = report.inputs[0]
    assert "nccl-log" == read.kind
    assert read.understood >= 0.99 * read.nccl_lines
    if not entry["path"].endswith(PARTS):
        assert (entry["n_hosts"], entry["n_ranks"]) == (report.job["hosts"], report.job["ranks"])
    assert report.verdict in ("healthy", "nothing-found", "note"), [finding.name for finding in report.findings]
    assert 0 == report.unread_count


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e["kind"] == "throughput"], ids=lambda e: Path(e["path"]).name)
def test_training_output_raises_no_alarm(entry: dict[str, Any]) -> None:
    report, _, _ = analyze.analyze([str(REAL / entry["path"])])
    gave_up = ["rank-exited"] if b"exits with return code = 1" in (REAL / entry["path"]).read_bytes() else []
    assert gave_up == [finding.name for finding in report.findings if finding.severity != "note"]
