"""What users name: files, folders, archives, pipes, and everything that is broken, hostile or no log at all."""

import gzip
import io
import lzma
import os
import random
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from helpers.input_files import LINE, LOG, PACKERS, drain, look, names, text

from nccl_doctor.inputs import streams
from nccl_doctor.inputs.sources import InputProblem, expand, open_stream, sniff

# zstd written as a stream does not state its size
PACKERS["zstd-stream"] = lambda data: (lambda packer: packer.compress(data) + packer.flush())(
    zstandard.ZstdCompressor().compressobj()
)


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

    assert ["is a program, not a log"] * 2 == problems
    assert ["b.log", "c.log.xz", "a/1.out", "a/2.err"] == names(tmp_path, sources)


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


def test_the_file_of_standard_output_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("node01:101:140 [0] NCCL INFO Using network IB\n")
    script = (
        "import sys; from nccl_doctor.inputs import sources; print(*[s.name for s in sources.expand(sys.argv[1:])])"
    )
    with (tmp_path / "report.txt").open("w+") as output:
        print("a report of yesterday", file=output, flush=True)
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], stdout=output, check=True)
        output.seek(0)
        assert str(tmp_path / "job.log") == output.read().splitlines()[-1]
