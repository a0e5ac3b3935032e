"""A disk that takes only small files, as a full one does: one line that names the place, and no part of an output is left."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import DEMO, FIXTURES

NCCL_DOCTOR = [sys.executable, "-m", "nccl_doctor"]
SIMULATED = ["simulate", "--nodes", "8"]
OUTPUTS = {
    "a kept tree": ["simulate", "--node", "dgx-h100", "-o", "new/folder"],
    "a split log": [*SIMULATED, "--split", "-o", "new/folder"],
    "pairs": [*SIMULATED, "--pairs", "8", "-o", "new/folder"],
    "a monitored job": [*SIMULATED, "--monitored", "-o", "new/folder"],
    "a log": [*SIMULATED, "-o", "new.log"],
    "tables": ["facts", str(DEMO), "--export", "new/folder"],
    "a base": ["analyze", str(DEMO), "--save", "new.db"],
    "a report": ["analyze", str(DEMO), "-o", "new.html"],
}
KEPT = {
    "the copies of a bundle": ["bundle", str(DEMO), "--yes", "-o", "new.tar.gz"],
    "a database": ["analyze", str(FIXTURES / "torch" / "nsys.sqlite")],
}


def full(arguments: list[str], folder: Path, most: int = 300) -> "subprocess.CompletedProcess[str]":
    """Run a command that can write no file of more than `most` bytes."""
    (folder / "tmp").mkdir()
    done = subprocess.run(
        [*NCCL_DOCTOR, *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert [] == list((folder / "tmp").iterdir())
    (folder / "tmp").rmdir()
    return done


@pytest.mark.parametrize("name", OUTPUTS)
def test_nothing_is_left_of_an_output_that_the_disk_does_not_take(name: str, tmp_path: Path) -> None:
    done = full(OUTPUTS[name], tmp_path)

    assert (2, True) == (done.returncode, "nccl-doctor: cannot write new" in done.stderr), done.stderr
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("most", [0, 300])  # with 0, no folder for temporary files is found at all
def test_a_temporary_file_that_the_disk_does_not_take_is_one_line(name: str, most: int, tmp_path: Path) -> None:
    done = full(KEPT[name], tmp_path, most)

    assert (2, 1, "") == (done.returncode, done.stderr.count("\n"), done.stdout), done.stderr
    assert "cannot be kept" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_database_that_cannot_be_kept_beside_a_healthy_log(tmp_path: Path) -> None:
    done = full(["analyze", str(DEMO), str(FIXTURES / "torch" / "nsys.sqlite"), "--format", "short"], tmp_path)

    assert "was not read" in done.stderr + done.stdout
    assert "healthy" not in done.stdout
