"""Fixtures of the tests that run commands."""

from pathlib import Path

import pytest

from nccl_doctor.cli.main import main


@pytest.fixture
def plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No rules of a user, and no variables that change what is printed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NCCL_DOCTOR_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    path = tmp_path / "healthy.log"
    assert 0 == main(["simulate", "--gpus", "2", "-o", str(path)])
    return path
