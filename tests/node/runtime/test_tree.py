"""A packed tree is unpacked into its folder and nowhere else."""

import io
import tarfile
from pathlib import Path

import pytest

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.node.runtime import tree
from nccl_doctor.node.runtime.root import EXTRA, Root


def packed(file: Path, *members: tuple[str, str, bytes]) -> Path:
    """An archive with (name, target of a link or empty, content) in this order."""
    with tarfile.open(file, "w") as tar:
        for name, target, content in ((f"{EXTRA}/stat.json", "", b"{}"), *members):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.type = tarfile.SYMTYPE if target else tarfile.REGTYPE
            member.linkname = target
            tar.addfile(member, io.BytesIO(content))
    return file


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    file = packed(tmp_path / "a.tar", ("sys", str(outside), b""), ("sys/planted", "", b"x"), ("proc/x", "", b"1"))
    with tree.opened(file) as folder:
        assert "1" == Root(folder).value("/proc/x")
        assert "x" == Root(folder).value("/sys/planted")
    assert [] == list(outside.iterdir())


def test_links_are_kept_and_do_not_lead_out(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.tar", ("proc/one", "two", b""), ("proc/two", "", b"2"), ("etc", "/etc", b""))
    with tree.opened(file) as folder:
        assert "2" == Root(folder).value("/proc/one")
        assert Root(folder).text("/etc/passwd") is None


@pytest.mark.parametrize("name", ["../planted", "proc/../../planted", "/planted"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(UsageProblem, match="cannot be unpacked"),
        tree.opened(packed(tmp_path / "a.tar", (name, "", b"x"))),
    ):
        pass
    assert not (tmp_path / "planted").exists()


def test_what_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_BYTES", 10)
    with (
        pytest.raises(UsageProblem, match="larger"),
        tree.opened(packed(tmp_path / "a.tar", ("proc/x", "", b"x" * 11))),
    ):
        pass
