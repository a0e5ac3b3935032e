"""A packed tree is unpacked into its folder and nowhere else."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.node.runtime import tree
from nccl_doctor.node.runtime.root import EXTRA, Root
from nccl_doctor.simulate import node


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


def repacked(folder: Path, file: Path, *options: str) -> Path:
    """The tree as tar(1) packs it, the marker last."""
    names = sorted((one.name for one in folder.iterdir()), key=lambda name: name == EXTRA)
    tar = shutil.which("tar")
    if tar is None:
        pytest.skip("tar is not installed")
    subprocess.run([tar, "-caf", file, *options, *names], cwd=folder, check=True)
    return file


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".txz", ".tar.bz2"])
def test_a_tree_that_was_packed_again_is_recognised(tmp_path: Path, suffix: str) -> None:
    node.build("dgx-h100", host="node01").write(tmp_path / "node01")
    if suffix == ".tar.bz2" and shutil.which("bzip2") is None:
        pytest.skip("bzip2 is not installed")
    file = repacked(tmp_path / "node01", tmp_path / f"a{suffix}")
    assert tree.is_tree(file)
    with tree.opened(file) as folder:
        assert "node01" == Root(folder).value("/proc/sys/kernel/hostname")


@pytest.mark.parametrize("prefix", ["node01", "./node01"])
def test_a_tree_may_be_packed_with_its_folder(tmp_path: Path, prefix: str) -> None:
    node.build("dgx-h100", host="node01").write(tmp_path / "node01")
    file = repacked(tmp_path / "node01", tmp_path / "a.tar.gz", f"--transform=s,^,{prefix}/,S")
    assert tree.is_tree(file)
    with tree.opened(file) as folder:
        assert "node01" == Root(folder).value("/proc/sys/kernel/hostname")
        assert Root(folder).extra("commands")


def test_an_archive_with_several_trees_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("node01", "node02"):
            node.build("dgx-h100", host=name).write(tmp_path / name)
            tar.add(tmp_path / name, name)
    assert tree.is_tree(tmp_path / "a.tar")
    with pytest.raises(UsageProblem, match=r"2 trees \(node01, node02\)"), tree.opened(tmp_path / "a.tar"):
        pass


def test_a_marker_that_is_a_link_is_none(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / EXTRA).mkdir(parents=True)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("node01")
        member.type, member.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(member)
    with pytest.raises(UsageProblem, match="no tree"), tree.opened(tmp_path / "a.tar"):
        pass


def test_only_the_beginning_of_an_archive_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as tar:
        for name in ("logs/rank0.log", "logs/rank1.log", f"{EXTRA}/stat.json"):
            member = tarfile.TarInfo(name)
            member.size = 10
            tar.addfile(member, io.BytesIO(b"0123456789"))
    assert tree.is_tree(file)
    monkeypatch.setattr(tree, "LOOK_BYTES", 19)
    assert not tree.is_tree(file)
    monkeypatch.setattr(tree, "LOOK_BYTES", 1000)
    monkeypatch.setattr(tree, "LOOK_FILES", 2)
    assert not tree.is_tree(file)


@pytest.mark.parametrize("name", ["deep/er/.nccl-doctor/stat.json", ".nccl-doctor.json", "x.nccl-doctor/stat.json"])
def test_other_names_do_not_make_a_tree(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    assert not tree.is_tree(tmp_path / "a.tar")


@given(st.binary(max_size=40), st.integers(0, 400))
def test_a_damaged_archive_is_not_a_tree_or_is_refused(noise: bytes, where: int) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        for name in ("proc/stat", f"{EXTRA}/stat.json"):
            tar.addfile(tarfile.TarInfo(name))
    data = content.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.tgz"
        file.write_bytes(data[:where] + noise + data[where + len(noise) :])
        if tree.is_tree(file):
            with suppress(UsageProblem), tree.opened(file) as root:
                assert (root / EXTRA).is_dir()


def test_the_hole_of_a_file_that_is_no_archive_is_not_read(tmp_path: Path) -> None:
    """The decompressor of xz takes zeros for one empty stream behind the other."""
    file = tmp_path / "a.tar.xz"
    with file.open("wb") as hole:
        hole.truncate(1 << 40)

    assert not tree.is_tree(file)
    with pytest.raises(UsageProblem, match="holds no tree"), tree.opened(file):
        pass


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_header_of_an_archive_that_claims_gigabytes_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(tree, "MAX_BYTES", 1 << 20)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 4 << 30
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
    with opener(tmp_path / f"a.tar{suffix}", "wb") as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT) + bytes(4 << 20))

    with pytest.raises(UsageProblem, match="larger than the tree"), tree.opened(tmp_path / f"a.tar{suffix}"):
        pass
