"""Inputs that grow: the report is that of all that was written, and what was read is not read again."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.waiting import until

from nccl_doctor.app import analyze, follow
from nccl_doctor.cli.main import main
from nccl_doctor.common import interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.log import parallel
from nccl_doctor.log.readers import followed, rotated
from nccl_doctor.log.scanner import AHEAD
from nccl_doctor.reporters import render
from nccl_doctor.simulate import Spec, write_log

LOG = ("\n".join(write_log(Spec(nodes=2, gpus=4, fault="collective-desync", steps=1500))) + "\n").encode()
HALF = len(LOG) // 2


class Log:
    """A log of a folder, written step by step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "job.log"
        self.shown: list[Report] = []
        self.said: list[str] = []
        self.problems: list[str] = []
        self.looks = 0

    def follow(self, steps: Iterator[None], *paths: Path, idle: float | None = None) -> Report:
        """Take a step after each look."""
        next(steps)
        running = follow.Following(
            [str(path) for path in paths or (self.path.parent,)], self._look, self.shown.append, self.said.append
        )
        return running.run(lambda _: next(steps, steps) is steps, idle)

    def _look(self, paths: list[str], follower: followed.Follower) -> Report:
        self.looks += 1
        report, _, self.problems = analyze.analyze(paths, read_ahead=follower)
        return report


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(follow, "PAUSE", 0.0)
    monkeypatch.setattr(follow, "REST", 0.0)
    (tmp_path / "logs").mkdir()
    return Log(tmp_path / "logs")


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def grows(path: Path) -> Iterator[None]:
    cuts = sorted(Random(1).sample(range(len(LOG)), 5))
    for start, stop in zip([0, *cuts], [*cuts, len(LOG)], strict=True):
        append(path, LOG[start:stop])
        yield


def rotates(path: Path) -> Iterator[None]:
    append(path, LOG[:HALF])
    yield
    append(path, b"the last words before it is renamed\n")
    path.rename(path.with_name("job.log.1"))
    append(path, LOG[HALF:])
    yield


def is_copied_and_truncated(path: Path) -> Iterator[None]:
    append(path, LOG[:HALF])
    yield
    append(path, b"the last words before it is copied\n")
    shutil.copy(path, path.with_name("job.log.1"))
    path.write_bytes(b"")
    yield
    append(path, LOG[HALF:])
    yield


def is_truncated_and_rotated(path: Path) -> Iterator[None]:
    append(path, LOG[:HALF])
    yield
    shutil.copy(path, path.with_name("job.log.2"))
    path.write_bytes(b"")
    append(path, LOG[HALF : HALF + 900])
    path.rename(path.with_name("job.log.1"))
    append(path, LOG[HALF + 900 :])
    yield


def is_joined_by_others(path: Path) -> Iterator[None]:
    append(path, LOG[:HALF])
    yield
    append(path.with_name("other.log"), LOG[HALF:])
    (path.parent / "deep").mkdir()
    (path.parent / "deep" / "old.log.gz").write_bytes(gzip.compress(LOG[:5000]))
    yield


@pytest.mark.parametrize(
    "happens", [grows, rotates, is_copied_and_truncated, is_truncated_and_rotated, is_joined_by_others]
)
def test_the_report_is_that_of_the_whole_folder(
    log: Log, happens: Callable[[Path], Iterator[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = parallel.read_part

    def counted(path: Path, start: int, length: int, on_bytes: parallel.OnBytes | None = None) -> parallel.LogCounts:
        read.append(length)
        return real(path, start, length, on_bytes)

    monkeypatch.setattr(parallel, "read_part", counted)
    last = log.follow(happens(log.path))

    expected = analyze.analyze([str(log.path.parent)])[0]
    assert render("json", expected) == render("json", last)
    plain = sum(path.stat().st_size for path in log.path.parent.rglob("*.log*") if path.suffix != ".gz")
    assert plain <= sum(read) <= plain + log.looks * 3 * AHEAD


@pytest.mark.parametrize("happens", [rotates, is_copied_and_truncated])
def test_a_log_that_was_named_is_followed_to_its_next_name(log: Log, happens: Callable[[Path], Iterator[None]]) -> None:
    last = log.follow(happens(log.path), log.path)
    assert {"job.log", "job.log.1"} == {Path(one.path).name for one in last.inputs}
    assert [] == log.problems


def rotate(path: Path, *, packed: bool) -> None:
    """What logrotate does with a log of two older parts."""
    for number in (2, 1):
        for old in path.parent.glob(f"job.log.{number}*"):
            old.rename(path.with_name(old.name.replace(f"log.{number}", f"log.{number + 1}")))
    path.rename(path.with_name("job.log.1"))
    if packed:
        times = path.with_name("job.log.1").stat()
        path.with_name("job.log.1.gz").write_bytes(gzip.compress(path.with_name("job.log.1").read_bytes()))
        os.utime(path.with_name("job.log.1.gz"), ns=(times.st_atime_ns, times.st_mtime_ns))
        path.with_name("job.log.1").unlink()


def write_at(path: Path, data: bytes, second: int) -> None:
    append(path, data)
    os.utime(path, ns=(second * 10**9, second * 10**9))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["job.log.1", "job.log.1.gz"])
def test_a_part_that_was_rotated_away_between_two_looks_is_read(log: Log, packed: bool, name: str) -> None:
    """But no part that was there before."""
    append(log.path.with_name(name), gzip.compress(LOG[:900]) if name.endswith("gz") else LOG[:900])
    os.utime(log.path.with_name(name), ns=(10**9, 10**9))

    def steps() -> Iterator[None]:
        write_at(log.path, LOG[:HALF], 2)
        yield
        rotate(log.path, packed=packed)
        write_at(log.path, LOG[HALF : HALF + 9000], 3)
        rotate(log.path, packed=packed)
        write_at(log.path, LOG[HALF + 9000 :], 4)
        yield
        append(log.path, b"the last words\n")
        yield

    last = log.follow(steps(), log.path)

    end = ".gz" if packed else ""
    assert sorted(["job.log", f"job.log.1{end}", f"job.log.2{end}"]) == sorted(
        Path(one.path).name for one in last.inputs
    )
    assert LOG.count(b"\n") + 1 <= sum(one.lines for one in last.inputs) <= LOG.count(b"\n") + 3  # cut within lines
    assert [] == log.problems


@pytest.mark.parametrize("older_part", [False, True])  # which is no copy of what was truncated away
def test_a_log_that_is_truncated_without_a_copy_keeps_what_was_read(log: Log, older_part: bool) -> None:
    if older_part:
        write_at(log.path.with_name("job.log.1.gz"), gzip.compress(LOG[:900]), 1)

    def steps() -> Iterator[None]:
        append(log.path, LOG)
        yield
        log.path.write_bytes(b"a new job begins\n")
        yield

    last = log.follow(steps(), log.path)
    assert log.shown[0].findings[0].rule == last.findings[0].rule
    assert [f"{log.path}: {followed.GONE}"] == log.problems


def test_a_pipe_beside_a_truncated_log_is_not_waited_for(log: Log) -> None:
    def steps() -> Iterator[None]:
        append(log.path, LOG)
        yield
        os.mkfifo(log.path.with_name("job.log.pipe"))
        log.path.write_bytes(b"a new job begins\n")
        yield
        yield

    last = log.follow(steps(), log.path)
    assert log.shown[0].findings[0].rule == last.findings[0].rule


@pytest.mark.parametrize("name", ["scan_file", "read_end"])
def test_a_pipe_that_takes_the_place_of_a_log_while_it_is_looked_at_is_not_waited_for(
    name: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(parallel, name)

    def late(path: Path, *arguments: Any, **options: Any) -> Any:
        path.unlink()
        os.mkfifo(path)
        return real(path, *arguments, **options)

    append(log.path, LOG)
    expected = analyze.analyze([str(log.path)])[0].findings[0]
    monkeypatch.setattr(parallel, name, late)
    report, _, problems = analyze.analyze(
        [str(log.path)], **({"read_ahead": followed.Follower()} if name == "read_end" else {})
    )

    assert expected.rule == report.findings[0].rule  # of the file that was opened before
    assert [] == problems


def test_a_log_that_is_compressed_in_place_counts_once(log: Log) -> None:
    def steps() -> Iterator[None]:
        append(log.path, LOG)
        yield
        log.path.with_name("job.log.gz").write_bytes(gzip.compress(LOG))
        log.path.unlink()
        yield

    last = log.follow(steps())
    assert ["job.log.gz"] == [Path(one.path).name for one in last.inputs]


def test_a_report_comes_only_with_other_findings(log: Log) -> None:
    def steps() -> Iterator[None]:
        append(log.path, LOG)
        yield
        for _ in range(3):
            append(log.path, b"nothing to see\n")
            yield

    last = log.follow(steps())
    assert (1, 3) == (len(log.shown[:-1]), len(log.said))  # and the last one, which has more lines
    assert last == log.shown[-1]


def test_a_log_that_is_not_there_yet_is_waited_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            append(log.path, LOG)

    monkeypatch.setattr(follow.time, "sleep", sleep)
    last = log.follow(iter([None]), log.path)
    assert "error" == last.verdict
    assert 1 == len([line for line in log.said if line.startswith("waiting: ")])


def test_a_request_to_stop_ends_with_a_last_look(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log.path, LOG[:HALF])

    def sleep(_: float) -> None:
        append(log.path, LOG[HALF:])
        interruption.request()

    monkeypatch.setattr(follow.time, "sleep", sleep)
    try:
        last = log.follow(iter([None, None, None, None]))
    finally:
        interruption.clear()
    assert render("json", analyze.analyze([str(log.path.parent)])[0]) == render("json", last)


def test_rest_ends_it(log: Log) -> None:
    append(log.path, LOG)
    assert "error" == log.follow(iter([None] * 1000), idle=0.0).verdict


def test_standard_input_is_not_followed() -> None:
    with pytest.raises(UsageProblem, match="files or folders"):
        follow.Following(["-"], lambda *_: None, print, print)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("options", "status"), [(["--until", "finding"], 1), (["--idle", "0", "--fail-on", "never"], 0)]
)
def test_the_command_ends_by_itself(
    log: Log, options: list[str], status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    append(log.path, LOG)
    assert status == main(["analyze", "--follow", *options, "--format", "json", str(log.path)])
    assert "error" == json.loads(capfd.readouterr().out)["verdict"]


@pytest.mark.parametrize("options", [["--idle", "1"], ["--until", "finding"], ["--follow", "--dask", "local"]])
def test_options_that_do_not_go_together(log: Log, options: list[str]) -> None:
    append(log.path, LOG)
    assert 2 == main(["analyze", *options, str(log.path)])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_the_report(log: Log, number: signal.Signals) -> None:
    append(log.path, LOG)
    report = log.path.parent.parent / "report.json"
    command = [sys.executable, "-m", "nccl_doctor", "analyze", "--follow", "-o", str(report), str(log.path)]
    with subprocess.Popen(command) as process:
        until(lambda: report.exists() or process.poll() is not None)
        lines = json.loads(report.read_text())["inputs"][0]["lines"]
        append(log.path, b"the last words\n")
        process.send_signal(number)
    assert 1 == process.returncode
    assert lines + 1 == json.loads(report.read_text())["inputs"][0]["lines"]


def test_a_file_whose_format_shows_in_later_lines_did_not_vanish(log: Log) -> None:
    rows = "".join(f"{gpu:>5} {70 + gpu:>6} {40 + gpu:>6} {10 * gpu:>6}\n" for _ in range(20) for gpu in range(8))
    samples = f"# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n{rows}".encode()

    def steps() -> Iterator[None]:
        append(log.path, samples[:4])
        yield
        append(log.path, samples[4:])
        yield

    report = log.follow(steps())

    assert [("gpu-samples", len(samples))] == [(row.kind, row.bytes) for row in report.inputs]
    assert [] == log.problems


def test_a_copy_whose_format_shows_in_later_lines_is_read_once(log: Log) -> None:
    """The first look saw a line of text; before the next one the rest was written, copied and truncated."""
    samples = b"# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n" + b"    0     70     40     10\n" * 40

    def steps() -> Iterator[None]:
        append(log.path, samples[:4])
        yield
        append(log.path, samples[4:])
        shutil.copy2(log.path, log.path.with_name("job.log.1"))
        os.truncate(log.path, 0)
        yield

    report = log.follow(steps())

    assert [("job.log.1", "gpu-samples")] == [(Path(row.path).name, row.kind) for row in report.inputs if row.bytes]


def test_a_part_that_was_rotated_before_it_was_read_is_compressed_under_its_next_number(log: Log) -> None:
    first, second = log.path.with_name("job.log.1"), log.path.with_name("job.log.2.gz")

    def steps() -> Iterator[None]:
        append(first, LOG)
        yield
        second.write_bytes(gzip.compress(LOG))
        shutil.copystat(first, second)
        first.unlink()
        yield

    assert ["job.log.2.gz"] == [Path(one.path).name for one in log.follow(steps()).inputs]
    assert [] == log.problems


def test_the_number_of_a_removed_file_that_another_one_gets_is_no_new_name(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the inode of a removed file to the next one."""
    other = log.path.with_name("other.log")
    real = rotated.inode_of

    def steps() -> Iterator[None]:
        append(log.path, LOG)
        old = real(log.path)
        yield
        log.path.unlink()
        append(other, b"another log\n" * 2000)
        for module in (followed, rotated):
            monkeypatch.setattr(module, "inode_of", lambda path: old if path == other else real(path))
        yield

    assert {"job.log", "other.log"} == {Path(one.path).name for one in log.follow(steps()).inputs}
    assert [f"{log.path}: {followed.GONE}"] == log.problems


def test_a_log_that_is_truncated_behind_a_copy_and_renamed_between_two_looks_counts_once(log: Log) -> None:
    def steps() -> Iterator[None]:
        append(log.path, LOG)
        yield
        shutil.copy2(log.path, log.path.with_name("job.log.2"))
        os.truncate(log.path, 0)
        log.path.rename(log.path.with_name("job.log.1"))
        yield

    assert ["job.log.2"] == [Path(one.path).name for one in log.follow(steps()).inputs if one.bytes]
    assert not [problem for problem in log.problems if followed.GONE in problem]


def test_a_healthy_log_that_cannot_be_read_at_the_end_is_not_healthy(log: Log) -> None:
    packed = log.path.with_name("job.log.gz")
    healthy = "\n".join(write_log(Spec(nodes=1, gpus=2, steps=20))).encode()

    def steps() -> Iterator[None]:
        packed.write_bytes(gzip.compress(healthy))
        yield
        packed.write_bytes(bytes(range(256)) * 4)
        yield

    with pytest.raises(UsageProblem, match="the last report is of what could be read before"):
        log.follow(steps(), packed)
    assert ["healthy"] == [report.verdict for report in log.shown]
