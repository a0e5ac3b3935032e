"""Folders as inputs: what is read of them, and what is not."""

import errno
import os
from pathlib import Path

import pytest
from helpers.input_files import LOG, look, names

from nccl_doctor.common import budgets
from nccl_doctor.inputs.sources import InputProblem, open_stream


def test_links_in_folders_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.log").write_bytes(LOG)
    (root / "out.log").symlink_to(tmp_path / "outside.log")
    (root / "self").symlink_to(root)

    assert ([], ["holds no log; looked at 0 files; 2 symbolic links not followed"]) == look(root)


def test_folder_without_logs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(LOG)

    assert ([], ["holds no log; looked at 1 file"]) == look(tmp_path)


def test_unreadable_folder_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "job.log").write_bytes(LOG)
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)

    sources, problems = look(tmp_path)

    assert (["job.log"], ["you may not read it"]) == (names(tmp_path, sources), problems)


def test_a_file_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    os.link(tmp_path / "a.log", tmp_path / "b.log")

    assert ["a.log"] == names(tmp_path, look(tmp_path / "a.log", tmp_path, tmp_path / "b.log")[0])


@pytest.mark.parametrize("place", ["behind", "in front", "between"])
def test_the_holes_of_a_sparse_file_are_not_read(tmp_path: Path, place: str) -> None:
    """In front: a log that was truncated while its writer went on at its old place."""
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        file.write(LOG if place != "in front" else b"")
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(LOG if place != "behind" else b"")

    [source], problems = look(path)
    with open_stream(source) as stream:
        read = stream.read(1 << 30)

    assert [] == problems
    assert not source.plain
    blocks = [block.strip(b"\0") for block in read.split(b"\0" * 2) if block.strip(b"\0")]
    assert LOG * (1 + (place == "between")) == b"".join(blocks).replace(b"\0", b"")


def test_zeros_of_a_file_system_without_holes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)
    os.truncate(path, 1 << 40)
    seek = os.lseek

    def lseek(handle: int, place: int, whence: int) -> int:
        if whence in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(errno.EINVAL, "Invalid argument")
        return seek(handle, place, whence)

    monkeypatch.setattr(os, "lseek", lseek)
    [source], _ = look(path)
    budgets.set_limit("bytes", 1 << 20)
    with open_stream(source) as stream:
        assert 1 << 20 == len(stream.read(1 << 21))
        with pytest.raises(InputProblem, match="is larger than 1,048,576 bytes"):
            stream.read(1)
