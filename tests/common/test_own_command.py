"""The program starts itself again from where it runs: a single file, or the package."""

import sys
import zipfile
from pathlib import Path

import pytest

from nccl_doctor.common.own_command import own_command


def test_the_single_file_starts_itself_and_the_package_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "copied", "w") as made:
        made.writestr("__main__.py", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["copied"])
    assert own_command() == [sys.executable, str(tmp_path / "copied")]
    for name in (__file__, "-c", "missing"):
        monkeypatch.setattr(sys, "argv", [name])
        assert own_command() == [sys.executable, "-m", "nccl_doctor"]
