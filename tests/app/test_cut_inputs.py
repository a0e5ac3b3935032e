"""Inputs of which a part cannot be read, or reaches a budget: what is left is read, a sentence says so, nothing is called healthy."""

import errno
import gzip
import io
import json
import math
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.common import budgets
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchRow, GpuSample, Input, Message
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Format
from nccl_doctor.inputs import sources, streams
from nccl_doctor.inputs.exports import tables
from nccl_doctor.log import parallel
from nccl_doctor.simulate import Spec, write_log

HEALTHY = ("\n".join(write_log(Spec(nodes=1, gpus=2, steps=20))) + "\n").encode()
TABLE = b"""# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    31.30    0.00    0.00      0    30.90    0.00    0.00      0
"""


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(HEALTHY)
    assert "healthy" == analyze.analyze([str(path)])[0].verdict
    return path


def verdict(*paths: Path) -> str:
    return analyze.analyze([str(path) for path in paths])[0].verdict


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_a_second_pass_over_a_damaged_file_reads_what_is_whole(tmp_path: Path, healthy: Path, damage: str) -> None:
    """The log holds a table of nccl-tests, for which its file is opened again."""
    noise = random.Random(1)
    lines = b"".join(b"node01:101:140 [0] NCCL INFO noise %d\n" % noise.getrandbits(99) for _ in range(9000))
    packed = gzip.compress(HEALTHY + TABLE + lines)
    place = len(packed) * 3 // 4
    (tmp_path / "b.log.gz").write_bytes(
        packed[:place] + (bytes(40) + packed[place + 40 :] if damage == "zeros" else b"")
    )

    report, facts, problems = analyze.analyze([str(tmp_path)])

    assert 1 == len([problem for problem in problems if "b.log.gz" in problem])
    assert {8} == {row.size for row in facts.rows(BenchRow)}
    assert "healthy" != report.verdict
    assert ["a.log", "b.log.gz"] == sorted(Path(one.path).name for one in report.inputs)
    assert [0] == [one.note.count("b.log.gz") for one in report.inputs if one.note]  # a report names the file before it


@pytest.mark.parametrize("apart", ["one", "each"])
def test_a_file_that_is_removed_between_two_passes(
    tmp_path: Path, healthy: Path, apart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "b.log"
    log.write_bytes(HEALTHY + TABLE)
    within = registry.within

    def rotated(marks: Iterable[bytes], head: bytes, *, led: bool) -> list[Format]:
        found = within(marks, head, led=led)
        if found:
            log.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(registry, "within", rotated)

    report, _, _ = analyze.analyze([str(log), str(healthy)], apart=apart)

    notes = {Path(one.path).name: one.note for job in (report.jobs or [report]) for one in job.inputs}
    assert {"a.log": "", "b.log": "read only in part: no such file or folder"} == notes
    assert "healthy" != report.verdict


@pytest.mark.parametrize("change", ["grow", "truncate", "replace"])
def test_a_file_that_changes_while_it_is_read(healthy: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes when it was recognised and its size is known, before it is read."""
    scan_file = parallel.scan_file

    def changed(path: Path, *arguments: Any, **options: Any) -> Any:
        if change == "grow":
            path.write_bytes(HEALTHY + b"one more line\n")
        elif change == "truncate":
            os.truncate(path, 3000)
        else:
            (path.parent / "new").write_bytes(HEALTHY[:3000])
            (path.parent / "new").replace(path)
        return scan_file(path, *arguments, **options)

    monkeypatch.setattr(parallel, "scan_file", changed)

    report, _, problems = analyze.analyze([str(healthy)])

    assert [] == problems
    assert [healthy.stat().st_size] == [one.bytes for one in report.inputs]
    assert change == "grow" or "healthy" != report.verdict


@pytest.mark.parametrize("moment", [(parallel, "scan_file"), (sources, "_file")])
def test_a_file_that_becomes_a_hole_of_a_terabyte_while_it_is_read(
    healthy: Path, moment: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held when it was opened is read; not the zeros behind it."""
    where, name = moment
    real = getattr(where, name)

    def late(*arguments: Any, **options: Any) -> Any:
        os.truncate(healthy, 1 << 40)
        return real(*arguments, **options)

    monkeypatch.setattr(where, name, late)

    [read] = analyze.analyze([str(healthy)])[0].inputs

    assert len(HEALTHY) <= read.bytes <= len(HEALTHY) + (1 << 16)  # with the rest of the last block


def test_a_disk_that_fails_in_the_middle_of_a_file(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file on a server that was replaced there (ESTALE): what was read before it counts, and the rest is told."""

    class Failing(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 9000:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(3000)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sources, "open_regular", Failing)
    monkeypatch.setattr(parallel, "scan_file", fail)

    report, _, problems = analyze.analyze([str(healthy)])

    assert [f"{healthy}: cannot be read: Input/output error; the 9,000 bytes before that were read"] == problems
    assert report.inputs[0].bytes == 9000
    assert "healthy" != report.verdict


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08 damaged from the start", gzip.compress(HEALTHY)[:300]])
def test_what_nothing_can_be_read_of_is_not_healthy(tmp_path: Path, healthy: Path, content: bytes) -> None:
    (tmp_path / "b.log.gz").write_bytes(content)

    assert "nothing-found" == verdict(healthy, tmp_path / "b.log.gz")
    assert "nothing-found" == verdict(tmp_path)


def test_a_file_that_is_missing_is_not_healthy_and_a_picture_is(tmp_path: Path, healthy: Path) -> None:
    (tmp_path / "loss.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "loss.plot").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))

    assert "healthy" == verdict(tmp_path)
    assert "healthy" == verdict(healthy, tmp_path / "loss.png")
    assert "nothing-found" == verdict(healthy, tmp_path / "missing.log")


def test_a_bomb_beside_a_healthy_log(tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RATIO_FROM", 1 << 20)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"a" * (30 << 20)))

    assert "nothing-found" == verdict(tmp_path)
    assert "nothing-found" == verdict(healthy, tmp_path / "b.log.gz")


def sparse_tar(path: Path, size: int) -> None:
    """One member of `size` bytes, of which the archive holds 2,048."""
    data = b"1\n0\n2048\n".ljust(512, b"\0") + HEALTHY[:2048]
    info = tarfile.TarInfo("GNUSparseFile.0/x.log")
    info.size = len(data)
    info.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x.log", "GNU.sparse.realsize": str(size),
    }  # fmt: skip
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))


def test_a_sparse_member_of_an_archive_is_bounded(
    tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RATIO_FROM", 1 << 20)
    sparse_tar(tmp_path / "b.tar", 4 << 40)

    report, _, problems = analyze.analyze([str(tmp_path)])

    assert [True] == [
        "grows to more than 500 times its size; raise the limit with --limit ratio=5000" in one for one in problems
    ]
    assert "nothing-found" == report.verdict


def test_members_of_an_archive_share_one_budget(tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a zip names the same bytes many times, or many members repeat each other."""
    monkeypatch.setattr(streams, "RATIO_FROM", 1 << 20)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"{number}.log", HEALTHY[:3000] * 100)
    budgets.set_limit("ratio", 20)

    report, _, problems = analyze.analyze([str(tmp_path)])

    assert "nothing-found" == report.verdict
    assert any("is in an archive that grows to more than 20 times its size" in problem for problem in problems)
    assert len(problems) < 45


def test_members_that_overlap(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", HEALTHY)
    raw = (tmp_path / "one.zip").read_bytes()
    start, end = raw.rfind(b"PK\1\2"), raw.rfind(b"PK\5\6")
    entries = raw[start:end] * 300
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 300, 300, len(entries), start, 0)
    (tmp_path / "b.zip").write_bytes(raw[:start] + entries + last)
    (tmp_path / "one.zip").unlink()
    (tmp_path / "a.log").write_bytes(HEALTHY)

    report, _, problems = analyze.analyze([str(tmp_path)])

    assert len(problems) < 30
    assert report.inputs


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("members", 3, "has more than 3 members"), ("bytes", 3 * len(HEALTHY), "is in an archive that is larger than")],
)
def test_a_limit_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: int, words: str
) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.log", HEALTHY)

    assert 0 == main(["analyze", str(tmp_path / "b.zip"), "--format", "json", "--limit", f"{name}={value}"])
    said = capsys.readouterr()
    assert words in said.err
    assert f"raise the limit with --limit {name}={10 * value}" in said.err
    assert "nothing-found" == json.loads(said.out)["verdict"]


@pytest.mark.parametrize("wrong", ["bytes", "bytes=x", "bytes=0", "sheep=3", "=", "bytes=" + "9" * 30])
def test_a_limit_that_is_none(wrong: str, healthy: Path) -> None:
    assert 2 == main(["analyze", str(healthy), "--limit", wrong])


def test_a_full_table_is_told_and_not_healthy(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(HEALTHY + b"".join(b"node01:101:140 [0] NCCL WARN Thing %d is odd\n" % n for n in range(50)))
    budgets.set_limit("rows", 20)

    report, facts, problems = analyze.analyze([str(path)])

    assert 20 >= max(n for name, n in facts.counts().items() if name not in ("evidence", "input"))
    assert any("is full" in problem and "--limit rows=200" in problem for problem in problems)
    assert "healthy" != report.verdict


def test_a_lone_surrogate_is_one_odd_character(tmp_path: Path) -> None:
    """In JSON any half of a pair can be written; SQLite and UTF-8 do not take it."""
    path = tmp_path / "pod.log"
    record = r'{"log":"node01:101:140 [0] init.cc:1 NCCL WARN Call to \ud800 failed\n","stream":"stdout","time":"2024-01-01T00:00:00Z"}'
    path.write_text(record + "\nnode01:101:140 [0] NCCL WARN Cuda failure 'out of memory'\n")

    facts, _ = analyze.read_facts([str(path)])

    assert any("out of memory" in row.text for row in facts.rows(Message))
    assert all("\ud800" not in row.text for row in facts.rows(Message))


def test_a_row_whose_number_is_too_large_for_its_column_is_left_out() -> None:
    facts = Facts()
    facts.add([Input("a", "text", 1 << 70, 1, 1, 1, None), Input("b", "text", 1, 1, 1, 1, None)])
    assert ["b"] == [row.path for row in facts.rows(Input)]


@pytest.mark.parametrize("endless", [math.inf, -math.inf, math.nan, 1.7e308, -1e200])
def test_no_fact_is_infinite(endless: float) -> None:
    """An unknown value where the column may have one; else the row is left out."""
    facts = Facts()
    known = GpuSample("a", 0, "x.csv", 1.0, 60.0, 5, 9.5, 0.5, None, None, 1)
    facts.add([known, known._replace(util_mean=endless), known._replace(start=endless)])
    assert [9.5, None] == [row.util_mean for row in facts.rows(GpuSample)]


def test_sizes_beyond_64_bits_in_nccl_tests(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TABLE.replace(b"  8    ", b"  " + b"9" * 23 + b"    ") + TABLE.splitlines(True)[-1])
    facts, _ = analyze.read_facts([str(path)])
    assert {8} == {row.size for row in facts.rows(BenchRow)}


def _table(*, newest_first: bool = False, torn: bool = False) -> bytes:
    """The healthy log as a log service exports it."""
    rows = [
        f"2026-05-07 12:{at // 60:02}:{at % 60:02}.000,{json.dumps(line)}\n".replace('\\"', '""')
        for at, line in enumerate(HEALTHY.decode().splitlines())
    ]
    if torn:
        rows.insert(3, '2026-05-07 12:00:03.000,"' + "x" * 3000 + "\n")
    return ("@timestamp,@message\n" + "".join(reversed(rows) if newest_first else rows)).encode()


def test_a_table_whose_newest_line_comes_first_is_held_up_to_the_budget(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(_table(newest_first=True))
    assert "healthy" == verdict(tmp_path / "a.csv")

    budgets.set_limit("held", 20_000)
    report, _, problems = analyze.analyze([str(tmp_path / "a.csv")])

    assert "healthy" != report.verdict
    assert 1 == len(problems)
    assert "older ones than line" in problems[0]
    assert problems[0].endswith("--limit held=200000")


def test_a_row_of_a_table_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_PIECE", 2_000)
    (tmp_path / "a.csv").write_bytes(_table(torn=True))

    report, _, problems = analyze.analyze([str(tmp_path / "a.csv")])

    assert "healthy" != report.verdict
    assert 1 == len(problems)
    assert "1 row cannot be read, the first on line 5" in problems[0]


def test_a_document_beyond_the_budget_is_read_as_text(tmp_path: Path) -> None:
    rows = [{"message": line} for line in HEALTHY.decode().splitlines()]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    assert "healthy" == verdict(tmp_path / "a.json")

    budgets.set_limit("held", 10_000)
    report, _, problems = analyze.analyze([str(tmp_path / "a.json")])

    assert "healthy" != report.verdict
    assert 1 == len(problems)
    assert "read as plain text" in problems[0]


def test_a_journal_that_ends_in_a_field_is_not_healthy(tmp_path: Path) -> None:
    records = [b"__CURSOR=1\nMESSAGE=" + line + b"\n\n" for line in HEALTHY.splitlines()]
    path = tmp_path / "a.export"
    path.write_bytes(b"".join(records))
    assert "healthy" == verdict(path)

    path.write_bytes(b"".join(records) + b"__CURSOR=2\nMESSAGE\n" + struct.pack("<Q", 1 << 40) + b"torn")
    report, _, problems = analyze.analyze([str(path)])

    assert "healthy" != report.verdict
    assert 1 == len(problems)
    assert "ends in the middle of a field" in problems[0]
