"""The table of torch.profiler: kernels of communication count once, though their operators tell the same time."""

from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Captured, ProfileShare

TABLE = FIXTURES / "torch" / "key_averages.txt"


def shares(path: Path) -> dict[str, float]:
    _, facts, _ = analyze.analyze([str(path)])
    return {row.kind: row.total_ms for row in facts.rows(ProfileShare)}


def test_share_of_communication() -> None:
    report, _, _ = analyze.analyze([str(TABLE)])
    assert {"communication": pytest.approx(452.1), "compute": pytest.approx(547.9)} == shares(TABLE)
    (finding,) = report.findings
    assert ("profile-communication-share", 45.0) == (finding.name, finding.values["percent"])


def test_inside_a_log_and_without_its_end(tmp_path: Path) -> None:
    text = TABLE.read_text()
    (tmp_path / "job.log").write_text("[rank0]: step 1 loss 2.0\n" + text + "[rank0]: done\n")
    assert shares(TABLE) == shares(tmp_path / "job.log")
    (tmp_path / "cut.log").write_text(text[: text.find("Self CUDA time total")])
    assert {} == shares(tmp_path / "cut.log")


def test_operators_count_where_no_kernel_is_shown(tmp_path: Path) -> None:
    lines = [line for line in TABLE.read_text().splitlines() if "ncclDevKernel" not in line]
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n")
    assert pytest.approx(452.1) == shares(tmp_path / "job.log")["communication"]


def test_the_report_tells_the_time_and_the_longest_kernel() -> None:
    _, facts, _ = analyze.analyze([str(TABLE)])
    (shows,) = [row.shows for row in facts.rows(Captured) if row.kind == "profile"]
    assert shows.startswith("torch.profiler summary of kernels: 1 s, 54.8 % compute, 45.2 % communication, longest ")


def test_of_several_tables_the_longest_counts(tmp_path: Path) -> None:
    text = TABLE.read_text()
    path = tmp_path / "profile.txt"
    path.write_text(text + "step 20\n" + text)
    assert shares(TABLE) == shares(path)
    _, facts, _ = analyze.analyze([str(path)])
    (shows,) = [row.shows for row in facts.rows(Captured) if row.kind == "profile"]
    assert shows.startswith("torch.profiler (longest of 2 tables) summary of kernels: 1 s, 54.8 % compute")
