"""`nccl-doctor` without arguments says what to type next."""

import os
import re
from pathlib import Path

import pytest

from nccl_doctor.cli import start
from nccl_doctor.cli.main import COMMANDS, main


def written(path: Path, at: int) -> None:
    path.write_text("x\n")
    os.utime(path, (at, at))


def test_it_names_commands_that_there_are_and_fits_on_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert 2 == main([])
    said = capsys.readouterr().err
    assert {"analyze", "explain", "preflight", "watch", "record", "simulate"} == set(
        re.findall(r"nccl-doctor ([a-z]+)", said)
    ) - {"reads"}
    assert set(re.findall(r"nccl-doctor ([a-z]+)", said)) - {"reads"} <= set(COMMANDS)
    assert len(said.splitlines()) < 20
    assert "newest log" not in said


def test_it_proposes_the_newest_log_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, at in (("train.log", 1_000), ("slurm-4711.out", 9_000), ("notes.txt", 99_000), ("a\x1b[2J.log", 99_000)):
        written(tmp_path / name, at)
    (tmp_path / "later.log").mkdir()
    (tmp_path / "link.log").symlink_to("notes.txt")
    monkeypatch.chdir(tmp_path)
    assert 2 == main([])
    said = capsys.readouterr().err
    assert "nccl-doctor analyze slurm-4711.out" in said
    assert "The newest log in this folder is slurm-4711.out." in said
    assert "\x1b" not in said


def test_a_name_is_quoted_as_a_shell_takes_it(tmp_path: Path) -> None:
    written(tmp_path / "my job.log", 1)
    assert f"'{tmp_path}/my job.log'" == start.newest_log(str(tmp_path))
    assert start.newest_log(str(tmp_path / "no such folder")) is None
