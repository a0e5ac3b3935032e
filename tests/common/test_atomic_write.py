"""Files that are replaced in one step."""

import os
from pathlib import Path

import pytest

from nccl_doctor.common.atomic_write import replace_file


def test_processes_of_two_hosts_that_have_one_number_write_one_name_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of another host that has our number writes the whole file between our first byte and our last."""
    target = tmp_path / "report.json"
    replace = os.replace

    def other_first(*arguments: object, **options: object) -> None:
        monkeypatch.setattr(os, "replace", replace)
        replace_file(target, b"of the other host")
        assert b"of the other host" == target.read_bytes()
        replace(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", other_first)
    replace_file(target, b"ours")

    assert b"ours" == target.read_bytes()
    assert [target] == list(tmp_path.iterdir())
