"""The program starts itself again from where it runs: a single file, or the package."""

import subprocess
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
        assert own_command() == [sys.executable, "-P", "-m", "nccl_doctor"]


def test_a_package_in_the_current_folder_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "nccl_doctor").mkdir()
    for name in ("__init__", "__main__"):
        (tmp_path / "nccl_doctor" / f"{name}.py").write_text("print('foreign')")
    done = subprocess.run([*own_command(), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nccl-doctor ")
