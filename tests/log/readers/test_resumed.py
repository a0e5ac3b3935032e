"""Reading on from a saved fact base: what a full reading finds, and only what was appended is read."""

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.examples import examples
from helpers.scanning import life, plain
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.facts.reading_points import ReadingPoint
from nccl_doctor.facts.store import Facts
from nccl_doctor.log import parallel, scanner
from nccl_doctor.log.counts import LogCounts, PackedCounts
from nccl_doctor.log.readers import followed, kept_counts
from nccl_doctor.log.readers.resumed import ResumedReader
from nccl_doctor.simulate import Spec, write_log

WRITER = "n1:100:150 [0] "
REFUSED = "misc/socket.cc:484 NCCL WARN Connect to 10.1.0.5<40001> failed : Connection refused"
BUFFERS = "sendbuff 0x7f00 recvbuff 0x7f00 count 1024 datatype 7 op 0 root 0 comm 0x55aa [nranks=8] stream 0x1"
PIECES = [
    "\n".join(life(rank, 8) for rank in range(8)),
    "\n".join(life(rank, 8).replace("COMPLETE", "START") for rank in range(8)),
    "\n".join(f"{WRITER}NCCL INFO Channel 0{number} : 0[0] -> 1[1] via P2P/IPC" for number in range(4)),
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "t.py", line 3, in f\n[rank3]: RuntimeError: CUDA error: 2',
    "\n".join([f"{WRITER}{REFUSED}"] * 30),
    "\n".join(f"{WRITER}NCCL INFO AllReduce: opCount {op:x} {BUFFERS}" for op in range(20)),
    "step 1200/5000 | loss 2.31 | lr 3.0e-04 | 3412.1 tok/s\n" * 3,
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-05-07T12:00:00 ***",
    "größe \ufffd 한\r\n" * 3,
]
LOG = ("\n".join(write_log(Spec(nodes=2, gpus=4, fault="collective-desync", steps=900))) + "\n").encode()


def counts(reader: ResumedReader | None, path: Path) -> tuple[dict[str, Any], Any]:
    """What a reading of a log counts, comparable; by default one from the start."""
    found, end = reader.scan_file(path) if reader is not None else parallel.scan_file(path)
    found.finish()
    seen = {key: (one.n, one.last, one.line) for key, one in end.seen.items()}
    return plain(found), seen


@examples(25)
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=5, max_size=30),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    ends=st.booleans(),
)
def test_the_facts_are_those_of_a_full_reading(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], cuts: list[float], ends: bool
) -> None:
    data = ("\n".join(pieces) + "\n" * ends).encode()
    path = tmp_path_factory.mktemp("log") / "job.log"
    points: dict[str, ReadingPoint] = {}
    with mock.patch.object(scanner, "AHEAD", 1500), mock.patch.object(followed, "AHEAD", 1500):
        for size in [*sorted(int(cut * len(data)) for cut in cuts), len(data)]:
            path.write_bytes(data[:size])
            reader = ResumedReader(points)
            assert counts(None, path) == counts(reader, path)
            points = {point.file: point for point in reader.points()}
    if len(data) > 20_000:
        assert points


def base(folder: Path, data: bytes) -> list[str]:
    """Read a log with --resume for the first time. Returns the command that does so."""
    (folder / "job.log").write_bytes(data)
    command = ["analyze", "--resume", str(folder / "base.db"), "--format", "json", str(folder / "job.log")]
    assert main(command) in (0, 1)
    return command


def rewritten(data: bytes) -> bytes:
    return data.replace(b"NCCL INFO", b"NCCL TNFO", 1)


def replaced(data: bytes) -> bytes:
    return LOG[::-1]


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 3]


def appended(data: bytes) -> bytes:
    return LOG


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (appended, "were read by an earlier run"),
        (rewritten, "has changed where it was read before"),
        (replaced, "has changed where it was read before"),
        (truncated, "is shorter than what was read of it"),
    ],
)
def test_the_report_is_that_of_the_log_as_it_is(
    change: Callable[[bytes], bytes], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = base(tmp_path, LOG[: len(LOG) * 2 // 3])
    (tmp_path / "job.log").write_bytes(change(LOG[: len(LOG) * 2 // 3]))
    capfd.readouterr()
    main(command)
    report = json.loads(capfd.readouterr().out)

    assert 1 == len(report["resumed"])
    assert words in report.pop("resumed")[0]
    main(["analyze", "--jobs", "one", "--format", "json", str(tmp_path / "job.log")])
    assert json.loads(capfd.readouterr().out) == report
    expected = analyze.analyze([str(tmp_path / "job.log")])[1]
    assert expected.counts() == Facts.open(tmp_path / "base.db").counts()


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = base(tmp_path, LOG)
    with (tmp_path / "job.log").open("ab") as file:
        file.write(b"the last words\n")
    read: list[int] = []
    real = parallel.read_part
    monkeypatch.setattr(
        parallel, "read_part", lambda path, start, *rest: read.append(start) or real(path, start, *rest)
    )
    main(command)
    assert read
    assert min(read) > len(LOG) - 3 * scanner.AHEAD


def spoiled_version(folder: Path) -> None:
    _update(folder, "UPDATE reading_point SET reader = 'another'")


def spoiled_counts(folder: Path) -> None:
    _update(folder, "UPDATE reading_point SET counts = replace(counts, '\"headers\":[', '\"headers\":[[7],')")


def spoiled_types(folder: Path) -> None:
    _update(folder, "UPDATE reading_point SET size = 'x', counts = 5")


def writable_by_others(folder: Path) -> None:
    (folder / "base.db").chmod(0o666)


def saved_without_points(folder: Path) -> None:
    _update(folder, "DROP TABLE reading_point")


def _update(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "base.db")) as db, db:
        db.execute(statement)


@pytest.mark.parametrize(
    "spoil", [spoiled_version, spoiled_counts, spoiled_types, writable_by_others, saved_without_points]
)
def test_a_base_that_cannot_be_used_means_a_full_reading(
    spoil: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = base(tmp_path, LOG)
    first = json.loads(capfd.readouterr().out)
    spoil(tmp_path)
    main(command)
    second = json.loads(capfd.readouterr().out)
    assert "an earlier run" not in str(second.pop("resumed", ""))
    assert first == second
    main(command)
    assert "an earlier run" in str(json.loads(capfd.readouterr().out)["resumed"])


def test_another_database_is_refused_and_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = base(tmp_path, LOG)
    _update(tmp_path, "PRAGMA application_id = 5")
    before = (tmp_path / "base.db").read_bytes()
    assert 2 == main(command)
    assert "is no fact base of nccl-doctor" in capfd.readouterr().err
    assert before == (tmp_path / "base.db").read_bytes()


def packed() -> PackedCounts:
    return parallel.scan(io.BytesIO("\n".join(PIECES * 2).encode()), large=True)[0].packed()


def test_what_was_written_is_read_back() -> None:
    first, second = LogCounts(), LogCounts()
    first.merge(packed())
    second.merge(kept_counts.load_counts(kept_counts.dump(packed())))
    first.finish()
    second.finish()
    assert plain(first) == plain(second)


@examples(30)
@given(
    at=st.floats(0, 1),
    length=st.integers(0, 3),
    more=st.sampled_from(["", "0", "-1", "9" * 30, "[]", "null", '"x"', "{}", "1e999", "NaN", "]"]),
)
def test_damaged_counts_are_refused_or_read(at: float, length: int, more: str) -> None:
    text = kept_counts.dump(packed())
    place = int(at * len(text))
    try:
        read = kept_counts.load_counts(text[:place] + more + text[place + length :])
    except ValueError:
        return
    counts = LogCounts()
    counts.merge(read)
    assert counts.lines == read.lines
    counts.finish()
