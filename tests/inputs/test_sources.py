"""What users name: files, folders, archives, pipes, and everything that is broken, hostile or no log at all."""

import bz2
import gzip
import io
import lzma
import os
import random
import socket
import sqlite3
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common import budgets
from nccl_doctor.inputs import detect, streams
from nccl_doctor.inputs.archives import member_name
from nccl_doctor.inputs.sources import InputProblem, Source, expand, open_stream, sniff

LINE = b"node01:101:140 [0] NCCL INFO Using network IB\n"
LOG = b"".join(b"node01:101:140 [0] NCCL INFO Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM\n" % n for n in range(3000))

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
# zstd written as a stream does not state its size
PACKERS["zstd-stream"] = lambda data: (lambda packer: packer.compress(data) + packer.flush())(
    zstandard.ZstdCompressor().compressobj()
)


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that opens a pipe must not wait for ever."""
    timer = threading.Timer(60, os._exit, (97,))
    timer.start()
    yield
    timer.cancel()


def look(*paths: Path | str) -> tuple[list[Source], list[str]]:
    found = list(expand([str(path) for path in paths]))
    sources = [one for one in found if isinstance(one, Source)]
    return sources, [one.reason for one in found if isinstance(one, InputProblem)]


def text(source: Source) -> bytes:
    with open_stream(source) as stream:
        return stream.read()


def drain(stream: BinaryIO) -> tuple[bytes, str]:
    """What a stream gives before it breaks, and the words of the break."""
    got = b""
    try:
        while data := stream.read(1 << 16):
            got += data
    except InputProblem as problem:
        return got, str(problem)
    return got, ""


def names(root: Path, sources: list[Source]) -> list[str]:
    return [source.name.removeprefix(f"{root}/") for source in sources]


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)

    [source], problems = look(path)

    assert [] == problems
    assert (str(path), path, len(LOG), True) == source[:4]
    assert text(source) == LOG


@pytest.mark.parametrize("method", PACKERS)
def test_compressed_whatever_the_name(tmp_path: Path, method: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(PACKERS[method](LOG))

    [source], problems = look(path)

    assert [] == problems
    assert not source.plain
    assert text(source) == LOG


@pytest.mark.parametrize("method", PACKERS)
def test_compressed_in_several_members(tmp_path: Path, method: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(PACKERS[method](LOG) + PACKERS[method](LINE) + b"\0" * 512)

    assert LOG + LINE == text(look(path)[0][0])


@pytest.mark.parametrize("method", PACKERS)
def test_cut_off_gives_what_came_before(tmp_path: Path, method: str) -> None:
    noise = random.Random(1)
    log = b"".join(LINE.strip() + b" %d\n" % noise.getrandbits(64) for _ in range(30000))
    path = tmp_path / "job.log"
    packed = PACKERS[method](log)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    [source], _ = look(path)

    with open_stream(source) as stream:
        got, problem = drain(stream)

    assert log.startswith(got)
    assert len(got) > len(log) // 3 or method == "bzip2"
    assert f"{path}: ends in the middle of its compressed data; the {len(got):,} bytes" in problem


def test_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    packed = bytearray(gzip.compress(os.urandom(300_000) + LOG))
    packed[200_000:200_100] = bytes(100)
    path.write_bytes(packed)

    with streams.Stream("job.log.gz", streams.open_regular(path)) as stream:
        assert "is damaged" in drain(stream)[1]  # type: ignore[arg-type]


def test_garbage_behind_a_gzip_member(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(LOG, mtime=0) + b"garbage, quite a lot of it")
    stream = open_stream(look(path)[0][0])

    assert LOG == stream.read(len(LOG))
    with pytest.raises(InputProblem, match="other bytes follow"):
        stream.read(1)


def test_cut_off_before_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(LOG, mtime=0)[:12])

    sources, problems = look(path)

    assert ([], ["ends in the middle of its compressed data"]) == (sources, problems)


@pytest.mark.parametrize("size", [1, 7, 100, 65536, 1 << 20])
def test_reads_of_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(gzip.compress(LOG[:100_000], mtime=0))
    got = b""

    with open_stream(look(path)[0][0]) as stream:
        while data := stream.read(size):
            assert len(data) == size or len(got) + len(data) == 100_000
            got += data

    assert LOG[:100_000] == got


def test_lines_can_be_iterated(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(gzip.compress(LINE * 3, mtime=0))

    with io.BufferedReader(open_stream(look(path)[0][0])) as stream:  # type: ignore[type-var]
        assert [LINE] * 3 == list(stream)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-32"])
def test_byte_order_marks(tmp_path: Path, coding: str) -> None:
    path = tmp_path / "job.log"
    content = LINE.decode() + "│ größer\n"
    path.write_bytes(("\ufeff" + content if coding == "utf-16-be" else content).encode(coding))

    [source], _ = look(path)

    assert not source.plain
    assert content.encode() == text(source)
    assert sniff(path.read_bytes()) == "nccl-log"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n\n \n", "is empty"),
        (b"\x7fELF" + bytes(100), "is a program, not a log"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is an image, not a log"),
        (bytes(range(256)) * 10, "is binary data, not a log"),
        (gzip.compress(gzip.compress(LOG, mtime=0), mtime=0), "is compressed twice; unpack it first"),
    ],
)
def test_foreign_content(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)

    assert ([], [reason]) == look(path)


def test_missing_and_strange_names(tmp_path: Path) -> None:
    assert ([], ["no such file or folder"]) == look(tmp_path / "none")
    assert ([], ["no such file or folder"]) == look("")
    assert "embedded null" in look("a\0b")[1][0]
    assert "too long" in look("x" * 5000)[1][0]
    (tmp_path / "dangling").symlink_to("nowhere")
    assert ([], ["no such file or folder"]) == look(tmp_path / "dangling")
    (tmp_path / "loop").symlink_to("loop")
    assert "symbolic links" in look(tmp_path / "loop")[1][0]


def test_problem_is_one_safe_line(tmp_path: Path) -> None:
    [problem] = expand([f"{tmp_path}/a\n\x1b[31mb\udcff"])

    assert f"{tmp_path}/a??[31mb?: no such file or folder" == str(problem)


def test_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # file modes do not stop root

    assert ([], ["you may not read it"]) == look(path)
    assert (["you may not read it"]) == look(tmp_path)[1]


def test_one_bad_file_does_not_stop_the_rest(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "b.log.gz").write_bytes(b"\x1f\x8b\x08broken")
    (tmp_path / "c.log").write_bytes(LOG)

    sources, problems = look(tmp_path / "a.log", tmp_path / "b.log.gz", tmp_path / "none", tmp_path / "c.log")

    assert ["a.log", "c.log"] == names(tmp_path, sources)
    assert len(problems) == 2


def test_pipes_sockets_and_devices_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        (tmp_path / "job.log").write_bytes(LOG)

        assert ["job.log"] == names(tmp_path, look(tmp_path)[0])
        assert ["is a named pipe, not a file; pipe it in and name `-`"] == look(tmp_path / "fifo")[1]
        assert ["is a socket, not a file; pipe it in and name `-`"] == look(tmp_path / "socket")[1]
        assert ["is a device, not a file; pipe it in and name `-`"] == look("/dev/null")[1]


def test_file_that_becomes_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)
    [source], _ = look(path)
    path.unlink()
    os.mkfifo(path)

    with pytest.raises(InputProblem, match="not a regular file"):
        open_stream(source)


def test_process_substitution(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, gzip.compress(LINE, mtime=0))
    os.close(writer)
    try:
        [source], _ = look(f"/dev/fd/{reader}")
        assert text(source) == LINE
    finally:
        os.close(reader)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lzma.compress(LOG))))

    [source], problems = look("-", "-")

    assert ("-", None, None, False, []) == (*source[:4], problems)
    assert text(source) == LOG
    assert not sys.stdin.closed


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst", "zip"])
def test_archives_are_unpacked_from_a_pipe(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(buffer, "w") as packed:
            packed.writestr("logs/a.log", LOG)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            info = tarfile.TarInfo("logs/a.log")
            info.size = len(LOG)
            archive.addfile(info, io.BytesIO(LOG))
    data = buffer.getvalue()
    if form == "tar.gz":
        data = gzip.compress(data, mtime=0)
    elif form == "tar.zst":
        data = zstandard.ZstdCompressor().compress(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    [source], problems = look("-")

    assert ("-!logs/a.log", []) == (source.name, problems)
    assert LOG == text(source)


def test_standard_input_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(leader), os.fdopen(follower) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert ["standard input is a terminal; pipe a log into it"] == look("-")[1]


def test_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    assert ["standard input is closed"] == look("-")[1]


def test_folder(tmp_path: Path) -> None:
    for name in (
        "b.log",
        "a/2.err",
        "a/1.out",
        ".git/x.log",
        "__pycache__/y.log",
        "train.py",
        "lib.so.2",
        "w.safetensors",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(LOG)
    (tmp_path / "empty.log").touch()
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(1000))
    (tmp_path / "a" / "core.17").write_bytes(b"\x7fELF" + bytes(1000))
    (tmp_path / "c.log.xz").write_bytes(lzma.compress(LOG))

    sources, problems = look(tmp_path)

    assert ["is a program, not a log; 1 more there that hold no log"] == problems
    assert ["b.log", "c.log.xz", "a/1.out", "a/2.err"] == names(tmp_path, sources)


def test_links_in_folders_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.log").write_bytes(LOG)
    (root / "out.log").symlink_to(tmp_path / "outside.log")
    (root / "self").symlink_to(root)

    assert ([], ["holds no log; looked at 0 files; 2 symbolic links were not followed"]) == look(root)


def test_folder_without_logs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(LOG)

    assert ([], ["holds no log; looked at 1 files"]) == look(tmp_path)


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


def test_sparse_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)
    os.truncate(path, 1 << 40)

    [source], _ = look(path)
    budgets.set_limit("bytes", 1 << 20)
    stream = open_stream(source)

    assert not source.plain
    assert 1 << 20 == len(stream.read(1 << 21))
    with pytest.raises(InputProblem, match="is larger than 1,048,576 bytes"):
        stream.read(1)


@pytest.mark.parametrize("method", PACKERS)
def test_bombs_are_stopped(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RATIO_FROM", 1 << 20)
    path = tmp_path / "job.log"
    path.write_bytes(PACKERS[method](LINE + b"a" * (30 << 20)))
    [source], _ = look(path)

    with open_stream(source) as stream:
        got, problem = drain(stream)

    assert len(got) < 30 << 20
    assert "grows to more than 500 times its size" in problem


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

    assert [] == problems
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


@given(st.binary(max_size=500))
def test_sniff_never_fails(head: bytes) -> None:
    assert sniff(head)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (LINE, "nccl-log"),
        (b"NCCL version 2.21.5+cuda12.4\n", "nccl-log"),
        (b"RCCL version 2.22.3\n", "nccl-log"),
        (b"node01:101:140 [0] INFO NET/Socket : 1 interfaces found\n", "nccl-log"),
        (b"\xef\xbb\xbf" + LINE, "nccl-log"),
        (LINE + bytes(4000) + LINE, "nccl-log"),
        (b'{"log":"' + LINE.strip() + b'\\n","stream":"stderr"}\n', "nccl-log"),
        (b'<stdout rank="3">' + LINE.strip() + b"</stdout>\n", "nccl-log"),
        (b"Traceback (most recent call last):\n", "job-log"),
        (b"\x1b[36m(Worker pid=1)\x1b[0m hello\n", "job-log"),
        (b"caf\xe9 epoch 3\n", "job-log"),
        (b"[1,0]<stdout>:hello\n", "job-log"),
        (b"some words\n", "text"),
        (b'{"schemaVersion": 1, "traceEvents": [{"name": "nccl:all_reduce"}]}', "json"),
        (b'[\n{"name": "process_name"},\n', "json"),
        (b'<system version="1">\n  <cpu numaid="0"/>\n', "xml"),
        (b'<?xml version="1.0"?>\n<nvidia_smi_log>', "xml"),
        (b"<graphs version='1'>\n<graph/>", "xml"),
        (b"\x80\x02}q\x00", "pickle"),
        (b"", "empty"),
        (b" \r\n", "empty"),
        (bytes(100), "binary"),
        (zstandard.ZstdCompressor().compress(LOG), "compressed"),
    ],
)
def test_sniff(head: bytes, kind: str) -> None:
    assert kind == sniff(head)


def test_sniff_facts_file(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "job.db") as base:
        base.execute("CREATE TABLE message (text)")

    assert sniff((tmp_path / "job.db").read_bytes()) == "sqlite"
    assert [tmp_path / "job.db"] == [source.path for source in look(tmp_path / "job.db")[0]]


def test_sniff_takes_the_name_only_for_plain_text() -> None:
    assert sniff(b"some words\n", "slurm-12.out") == "job-log"
    assert sniff(b"\x7fELF", "slurm-12.out") == "program"


def test_a_hole_of_zero_bytes_makes_no_binary_file_of_a_log() -> None:
    text = b"rank0: step 1 loss 2.3\n" * 40
    for head in (text + bytes(3_000) + text, bytes(3_000) + text, text + bytes(3_000)):
        assert "binary" != detect.sniff(head, "job.out")
    for head in (bytes(range(256)) * 50, b"\x01\x00\x02\x00" * 100, text + b"\x00" + text):
        assert "binary" == detect.sniff(head, "job.out")
