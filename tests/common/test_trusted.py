"""What root trusts: files that nobody else can change, commands of system folders."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_doctor.common import trusted

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root distrusts files")
NOBODY = 65534


def test_system_files_are_trusted() -> None:
    assert [None, None] == [trusted.distrust(path) for path in ("/etc/passwd", "/usr/bin/env")]
    assert "/usr/bin/env" == os.path.realpath(trusted.command("env") or "")
    assert trusted.command("no-such-command") is None


@root_only
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "x"
    file.write_text("")
    assert trusted.distrust(file) is None
    file.chmod(mode)
    assert "is writable by" in (trusted.distrust(file) or "")


@root_only
@pytest.mark.parametrize("spoil", ["file", "folder", "writable", "sticky", "link", "target"])
def test_every_folder_and_link_on_the_way_counts(tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    file = folder / "x"
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to("a/b/../b/x")
    assert trusted.distrust(link) is None
    if spoil == "file":
        os.chown(file, NOBODY, NOBODY)
    elif spoil == "folder":
        os.chown(tmp_path / "a", NOBODY, NOBODY)
    elif spoil == "writable":
        folder.chmod(0o777)
    elif spoil == "sticky":
        folder.chmod(0o1777)
        assert trusted.distrust(link) is None  # nobody can rename root's file
        os.chown(file, NOBODY, NOBODY)
    elif spoil == "link":
        os.lchown(link, NOBODY, NOBODY)
    else:
        file.unlink()
        other = tmp_path / "other"
        other.mkdir()
        (other / "x").touch()
        file.symlink_to("../../other/x")
        assert trusted.distrust(link) is None
        other.chmod(0o777)
    assert trusted.distrust(link) is not None
    assert trusted.distrust_tree(tmp_path) is not None


@root_only
def test_a_missing_file_is_judged_by_its_folders(tmp_path: Path) -> None:
    assert trusted.distrust(tmp_path / "x" / "y") is None
    tmp_path.chmod(0o1777)
    assert trusted.distrust(tmp_path / "x") is not None


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x")
    assert (os.geteuid() != 0) == (trusted.distrust(tmp_path / "x") is None)


@root_only
def test_root_runs_no_command_of_the_path_or_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "ls"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path), ".", ""):
        monkeypatch.setenv("PATH", path)
        assert str(mine) != trusted.command("ls")
    mine.rename(tmp_path / "zzz")
    assert str(tmp_path / "zzz") == trusted.command("zzz", [str(tmp_path)])
    (tmp_path / "zzz").chmod(0o777)
    assert trusted.command("zzz", [str(tmp_path)]) is None
    assert "LD_PRELOAD" not in trusted.clean_environment()


@pytest.mark.parametrize("read", [trusted.read, trusted.read_settings])
def test_a_file_of_the_kernel_that_has_nothing_to_say_is_an_error_of_the_file(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kernel(io.BytesIO):
        def read(self, _: int | None = -1) -> None:  # type: ignore[override]
            return None

    monkeypatch.setattr("builtins.open", lambda *_, **__: Kernel())
    with pytest.raises(OSError, match="has nothing to say yet"):
        read(tmp_path / "kmsg")
