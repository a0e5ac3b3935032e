"""Logs that hold zeros in the place of lines: after a crash of a node, or truncated while their writer went on."""

import gzip
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.inputs import prefilter
from nccl_doctor.simulate import Spec, write_log

LINES = [line.encode() + b"\n" for line in write_log(Spec(nodes=1, gpus=2, steps=20))]
FRONT, BACK = b"".join(LINES[: len(LINES) // 2]), b"".join(LINES[len(LINES) // 2 :])
ZEROS = bytes(5_000)
HOLE = 1 << 40


def write(path: Path, parts: list[bytes | int]) -> None:
    """Bytes, and holes of so many bytes."""
    with path.open("wb") as file:
        for part in parts:
            if isinstance(part, int):
                file.truncate(file.tell() + part)
                file.seek(0, 2)
            else:
                file.write(part)


@pytest.mark.parametrize(
    "parts",
    [[FRONT, ZEROS, BACK], [FRONT, BACK, ZEROS], [FRONT, HOLE, BACK], [FRONT, BACK, HOLE]],
    ids=["zeros between", "zeros behind", "a hole between", "a hole behind"],
)
def test_a_log_that_lost_lines_is_read_and_not_healthy(parts: list[bytes | int], tmp_path: Path) -> None:
    write(tmp_path / "job.log", parts)
    report, _, problems = analyze.analyze([str(tmp_path / "job.log")])

    assert ("nothing-found", 1) == (report.verdict, len(problems))
    assert "runs of zero bytes" in problems[0]
    assert len(LINES) <= report.inputs[0].lines <= len(LINES) + 1


def test_the_same_in_a_compressed_log(tmp_path: Path) -> None:
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(FRONT + ZEROS + BACK))
    assert "nothing-found" == analyze.analyze([str(tmp_path / "job.log.gz")])[0].verdict


def test_a_log_whose_front_was_truncated_away_is_what_is_left(tmp_path: Path) -> None:
    """What logrotate leaves with `copytruncate` of a writer that does not append: a hole of the old size."""
    write(tmp_path / "job.log", [HOLE, FRONT, BACK])
    report, _, problems = analyze.analyze([str(tmp_path / "job.log")])

    assert ("healthy", []) == (report.verdict, problems)


def test_a_literal_of_zeros_is_found_as_any_other() -> None:
    for data in (FRONT + ZEROS, FRONT + bytes(3)):
        one = prefilter.Prefilter([b"NCCL"], [bytes(16)])
        assert (bytes(16) in data) == bool(one.scan(data)[1])
