"""Files that are full, gone or slow: nothing is raised, memory is bounded, and what was dropped is said where it lacks."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.recorder import spool
from nccl_doctor.app.recorder.spool import Spool


def gap(dropped: int, why: str) -> bytes:
    return f"[{dropped} {why}]".encode()


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "RETRY", 0.0)


def test_bytes_arrive_in_order(tmp_path: Path) -> None:
    one = Spool(tmp_path / "out", gap)
    for piece in (b"a", b"b", b"", b"c"):
        one.add(piece)
        assert one.flush()
    assert (b"abc", 0) == ((tmp_path / "out").read_bytes(), one.dropped)


def test_a_folder_that_is_missing_and_comes_back(tmp_path: Path) -> None:
    one = Spool(tmp_path / "later" / "out", gap, memory=10)
    one.add(b"first")
    assert not one.flush()
    assert "No such file or directory" == one.why
    one.add(b"123456")
    one.add(b"7")
    assert (7, 5) == (one.dropped, one.waiting)
    (tmp_path / "later").mkdir()
    assert one.flush()
    one.add(b"last")
    assert one.flush()
    assert b"first[7 No such file or directory]last" == (tmp_path / "later" / "out").read_bytes()


def test_a_full_disk_tears_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [3]
    real = os.write

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = real(file, data[: room[0]])
        room[0] -= done
        return done

    one = Spool(tmp_path / "out", gap)
    monkeypatch.setattr(os, "write", write)
    one.add(b"a record\n")
    assert not one.flush()
    room[0] = 1000
    one.add(b"another\n")
    assert one.flush()
    assert b"a record\nanother\n" == (tmp_path / "out").read_bytes()


def test_a_link_at_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out").symlink_to(tmp_path / "victim")
    one = Spool(tmp_path / "out", gap)
    one.add(b"x")
    assert not one.flush()
    assert "mine" == (tmp_path / "victim").read_text()


@given(st.lists(st.binary(max_size=40).map(lambda piece: piece.replace(b"\r", b"")), max_size=40))
def test_rotation_loses_nothing(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("rotated")
    one = Spool(folder / "out", gap, rotate=64)
    for piece in pieces:
        one.add(piece)
        assert one.flush()
    assert one.flush()
    packed = sorted(folder.glob("out.*.gz"), key=lambda path: int(path.suffixes[-2][1:]))
    found = b"".join(gzip.decompress(path.read_bytes()) for path in packed)
    if (folder / "out").exists():
        found += (folder / "out").read_bytes()
    assert b"".join(pieces) == found
    assert [] == list(folder.glob("*.part"))
