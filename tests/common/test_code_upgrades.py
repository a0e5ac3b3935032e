"""What a process makes of code that was replaced while it ran is not kept for the next one."""

import time
from pathlib import Path

import pytest

from nccl_doctor.common import parse_cache


def test_a_module_that_is_newer_than_the_process_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "compiled"
    folder.mkdir()
    module, data = tmp_path / "rules.py", tmp_path / "rules.toml"
    module.write_text("new = 1\n", "utf-8")
    data.write_text("a = 1\n", "utf-8")
    assert parse_cache.remembered("steps", [module, data], lambda: ["of the old code"], folder) == ["of the old code"]
    assert list(folder.iterdir()) == []

    monkeypatch.setattr(parse_cache, "_STARTED", time.time_ns() + 10**9)  # a process of the new code
    assert parse_cache.remembered("steps", [module, data], lambda: ["of the new code"], folder) == ["of the new code"]
    assert parse_cache.remembered("steps", [module, data], lambda: ["not asked"], folder) == ["of the new code"]


def test_data_that_is_newer_than_the_process_is_kept(tmp_path: Path) -> None:
    """It is read when it is asked for, not when the process starts."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    data = tmp_path / "rules.toml"
    data.write_text("a = 1\n", "utf-8")
    assert parse_cache.remembered("data", [data], lambda: 1, folder) == 1
    assert parse_cache.remembered("data", [data], lambda: 2, folder) == 1
