"""Members of tar and zip archives: whole, cut, damaged, hostile."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.examples import examples
from helpers.input_files import LINE, LOG, PACKERS, drain, look, names, text
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import streams
from nccl_doctor.inputs.archives import member_name
from nccl_doctor.inputs.sources import InputProblem, Source, expand, open_stream


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


TARS = {"tar": "w", "tar.gz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}


@pytest.mark.parametrize("name", TARS)
def test_tar(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"job.{name}"
    big = LOG * 20
    files = {"run/rank0.log": big, "run/none": b"", "run/train.py": LOG, "run/core": b"\x7fELF" + bytes(99999)}
    write_tar(
        path, files | {"run/rank1.log.gz": gzip.compress(LOG, mtime=0), "run/rank2.log": LINE, "e": b""}, TARS[name]
    )

    sources, problems = look(path)

    assert ["is a program, not a log"] == problems
    assert [f"job.{name}!run/{file}" for file in ("rank0.log", "rank1.log.gz", "rank2.log")] == names(tmp_path, sources)
    assert [big, LOG, LINE] == [text(source) for source in sources]
    assert [LINE, LOG, big] == [text(source) for source in reversed(sources)]
    assert {None} == {source.path for source in sources}


def test_tar_in_zstd(tmp_path: Path) -> None:
    write_tar(tmp_path / "x", {"rank0.log": LOG})
    path = tmp_path / "job.tar.zst"
    path.write_bytes(PACKERS["zstd"]((tmp_path / "x").read_bytes()))

    assert [LOG] == [text(source) for source in look(path)[0]]


def test_members_of_two_archives_by_turns(tmp_path: Path) -> None:
    for name in ("a.tar.gz", "b.tar.gz"):
        write_tar(tmp_path / name, {"1.log": LOG * 5, "2.log": LINE}, "w:gz")
    sources, _ = look(tmp_path)
    opened = [open_stream(source) for source in sources]
    got = [b""] * 4

    while any(parts := [stream.read(10_000) for stream in opened]):
        got = [before + part for before, part in zip(got, parts, strict=True)]

    assert [LOG * 5, LINE, LOG * 5, LINE] == got


def test_tar_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "job.tar.gz"
    noise = b"".join(LINE.strip() + os.urandom(20).hex().encode() + b"\n" for _ in range(20000))
    write_tar(path, {"1.log": LOG, "2.log": noise, "3.log": LOG}, "w:gz")
    path.write_bytes(path.read_bytes()[:-400_000])

    sources, problems = look(path)

    assert ["job.tar.gz!1.log", "job.tar.gz!2.log"] == names(tmp_path, sources)
    assert text(sources[0]) == LOG
    assert "ends in the middle of its compressed data" in problems[0]
    with open_stream(sources[1]) as stream:
        assert noise.startswith(stream.read(len(noise)))
        with pytest.raises(InputProblem, match="ends in the middle"):
            stream.read(1)


def test_plain_tar_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "job.tar"
    write_tar(path, {"1.log": LOG, "2.log": LOG})
    path.write_bytes(path.read_bytes()[: len(LOG) + 5000])

    sources, problems = look(path)

    assert ["job.tar!1.log", "job.tar!2.log"] == names(tmp_path, sources)
    assert 1 == len(problems)
    with open_stream(sources[1]) as stream:
        assert LOG.startswith(stream.read(len(LOG)))
        with pytest.raises(InputProblem, match="ends too early"):
            stream.read(1)


@pytest.mark.parametrize("cut", [0, 100, "header"], ids=["before a header", "in a header", "a damaged header"])
def test_a_tar_of_which_members_are_lost_is_told(tmp_path: Path, cut: int | str) -> None:
    path = tmp_path / "job.tar"
    write_tar(path, {"1.log": LOG, "2.log": LOG})
    data = path.read_bytes()
    second = data.index(b"2.log")
    path.write_bytes(data[: second + cut] if isinstance(cut, int) else data.replace(b"2.log", b"3.log"))

    sources, problems = look(path)

    assert [LOG] == [text(source) for source in sources]
    reason = "its end is missing" if cut == 0 else "a header is damaged"
    assert [f"is a damaged archive ({reason}); the member before that was looked at"] == problems


@pytest.mark.parametrize("name", ["logs.tar", "logs.tar.gz"])
def test_the_hole_behind_an_archive_is_not_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write_tar(path, {"job.log": LOG}, "w:gz" if name.endswith("gz") else "w")
    os.truncate(path, 1 << 40)

    [source], problems = look(path)

    assert LOG == text(source)
    assert [] == problems


def test_tar_members_that_are_no_files(tmp_path: Path) -> None:
    path = tmp_path / "job.tar"
    with tarfile.open(path, "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("x.log")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)

    assert ([], ["holds no log; looked at 0 members"]) == look(path)


def test_sparse_member(tmp_path: Path) -> None:
    path = tmp_path / "job.tar"
    hole = tmp_path / "rank0.log"
    with hole.open("wb") as file:
        file.write(LINE)
        file.seek(1 << 20)
        file.write(LINE)
    if os.system(f"tar -C '{tmp_path}' --sparse -cf '{path}' rank0.log 2>/dev/null"):
        pytest.skip("needs GNU tar")

    [source], _ = look(path)

    assert hole.read_bytes() == text(source)


def test_archive_in_archive(tmp_path: Path) -> None:
    write_tar(tmp_path / "x", {"rank0.log": LOG})
    write_tar(tmp_path / "job.tar", {"inner.tar": (tmp_path / "x").read_bytes()})

    assert ([], ["is an archive inside an archive or a compressed file; unpack it first"]) == look(tmp_path / "job.tar")


def test_names_in_archives_are_harmless() -> None:
    assert "a.tar!etc/passwd" == member_name("a.tar", "/../../etc/./passwd")
    assert "a.tar!x??[31m" == member_name("a.tar", "x\n\x1b[31m")
    assert "a.tar!c:/x" == member_name("a.tar", "c:\\..\\x")
    assert "a.tar!?" == member_name("a.tar", "..")


def test_zip(tmp_path: Path) -> None:
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/rank0.log", LOG)
        archive.writestr("run/train.py", LOG)
        archive.writestr("run/", b"")
        archive.writestr("../rank1.log.gz", gzip.compress(LINE, mtime=0))

    sources, problems = look(path)

    assert [] == problems
    assert ["job.zip!run/rank0.log", "job.zip!rank1.log.gz"] == names(tmp_path, sources)
    assert [LOG, LINE] == [text(source) for source in sources]


def test_zip_with_a_damaged_member(tmp_path: Path) -> None:
    path = tmp_path / "job.zip"
    noise = b"".join(LINE.strip() + os.urandom(20).hex().encode() + b"\n" for _ in range(20000))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.log", noise)
        archive.writestr("2.log", LOG)
    data = bytearray(path.read_bytes())
    data[300_000:300_010] = bytes(10)
    path.write_bytes(data)

    sources, problems = look(path)

    assert [] == problems
    with open_stream(sources[0]) as stream:
        assert "is damaged" in drain(stream)[1]
    assert text(sources[1]) == LOG


def test_zip_bomb_and_encrypted_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RATIO_FROM", 1 << 20)
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.log", b"a" * (10 << 20))
        archive.writestr("locked.log", LOG)
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: at + 8] + b"\x01" + data[at + 9 :])

    sources, problems = look(path)

    assert [] == sources
    assert "grows to more than 500 times its size; raise the limit with --limit ratio=5000" == problems[0]
    assert "encrypted" in problems[1] or "flag" in problems[1] or "differ" in problems[1] or "read" in problems[1]


def test_broken_archives(tmp_path: Path) -> None:
    (tmp_path / "job.zip").write_bytes(b"PK\x03\x04" + os.urandom(1000))
    write_tar(tmp_path / "job.tar", {"1.log": LOG})
    data = bytearray((tmp_path / "job.tar").read_bytes())
    data[0:100] = os.urandom(100)
    (tmp_path / "job.tar").write_bytes(data)

    assert "is a damaged archive (File is not a zip file)" == look(tmp_path / "job.zip")[1][0]
    assert "is a damaged archive" in look(tmp_path / "job.tar")[1][0]


def test_header_that_claims_gigabytes(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "job.tar"
    path.write_bytes(info.tobuf() + bytes(10240))

    assert "a header is too large" in look(path)[1][0]


@given(st.binary(max_size=3000), st.integers(0, 20000))
@examples(150)
def test_no_archive_makes_it_fail(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("archives") / "job"
    for kind in ("tar", "zip"):
        buffer = io.BytesIO()
        if kind == "tar":
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                for number in range(3):
                    info = tarfile.TarInfo(f"{number}.log")
                    info.size = 3000
                    tar.addfile(info, io.BytesIO(LOG[:3000]))
        else:
            with zipfile.ZipFile(buffer, "w") as archive:
                for number in range(3):
                    archive.writestr(f"{number}.log", LOG[:3000])
        data = bytearray(buffer.getvalue())
        data[at % len(data) : at % len(data) + len(noise)] = noise
        path.write_bytes(data)
        for source in expand([str(path)]):
            if isinstance(source, Source):
                with open_stream(source) as stream:
                    assert "\n" not in drain(stream)[1]
