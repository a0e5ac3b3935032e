"""Numbers that no program prints: more digits than an integer of 64 bits has, than Python converts, infinite ones. Nothing stops."""

import importlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from helpers.places import FIXTURES
from helpers.waiting import until

from nccl_doctor.app import analyze
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, Process
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import InputProblem
from nccl_doctor.log import parallel
from nccl_doctor.log.line_patterns import load

_WHOLE = re.compile(rb"(?<![\w.])\d+(?![\w.])")
_KEYED = re.compile(rb'"([\w:. -]{1,60})"\s*:\s*\[?-?\d')
HUGE = {"30 digits": "9" * 30, "4,400 digits": "9" * 4_400}
_DECIMAL = re.compile(rb"(?<![A-Za-z0-9_.])\d+(?:\.\d+)?(?![A-Za-z0-9_])")
TORN = (b"1..5", b".", b"7\xff", b"1.2.3", b"1e", b"-")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:\.\d+)?(?![A-Za-z0-9_])")
SAMPLES = [
    f"node01:10:11 [0] NCCL {pattern.level or 'INFO'} {sample}" if pattern.where == "nccl" else sample
    for pattern in load()
    for sample in pattern.sample
]
GROUP = 25  # samples read together
LINES = 60  # of a file; with more, a number of thousands of digits for each of its own makes tens of megabytes
FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and path.stat().st_size < 100_000 and "make" not in path.relative_to(FIXTURES).parts
)


@pytest.mark.parametrize("digits", HUGE)
@pytest.mark.parametrize("start", range(0, len(SAMPLES), GROUP))
def test_a_line_with_absurd_numbers_stops_nothing(start: int, digits: str) -> None:
    lines = [_NUMBER.sub(HUGE[digits], sample) for sample in SAMPLES[start : start + GROUP]]
    facts = analyze.read_text("\n".join([*lines, "node01:10:11 [0] NCCL WARN Cuda failure 'out of memory'"]))
    assert any("out of memory" in row.text for row in facts.rows(Message))


@pytest.mark.parametrize("number", [HUGE["4,400 digits"], "1e400", "-1"], ids=["4,400 digits", "infinite", "negative"])
def test_files_with_absurd_numbers_stop_nothing(number: str, tmp_path: Path) -> None:
    for path in FILES:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        changed = tmp_path / path.name
        changed.write_text(_NUMBER.sub(number, "".join(text.splitlines(True)[:LINES])))
        try:
            report, _, _ = analyze.analyze([str(changed)])
            assert report.inputs, path.name
        except UsageProblem:  # nothing is left of it
            continue
        finally:
            changed.unlink()


@pytest.mark.parametrize("digits", [400, 4_400])
def test_an_integer_beyond_floats_ends_no_reader_of_text(digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One number of seven, so that the lines are still those of the format."""
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")
    asked = 0
    for path in FILES:
        data = b"".join(path.read_bytes().splitlines(True)[:LINES])
        known = registry.recognise(data)
        for start in range(7) if known is not None and b"{" not in data[:1] else ():
            count = itertools.count(start)
            changed = _WHOLE.sub(lambda found, count=count: found[0] if next(count) % 7 else b"9" * digits, data)  # type: ignore[misc]
            asked += 1
            with suppress(UsageProblem, InputProblem):
                registry.read_file(known, io.BytesIO(changed), path.name, Facts())
    assert asked > 300


def test_a_torn_number_ends_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number of five is none, so that the lines are still those of the format."""
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")
    asked = 0
    for path in FILES:
        data = b"".join(path.read_bytes().splitlines(True)[:LINES])
        known = registry.recognise(data)
        for start in range(5) if known is not None else ():
            count, torn = itertools.count(start), itertools.cycle(TORN)
            changed = _DECIMAL.sub(
                lambda found, count=count, torn=torn: found[0] if next(count) % 5 else next(torn), data
            )  # type: ignore[misc]
            asked += 1
            with suppress(UsageProblem, InputProblem):
                registry.read_file(known, io.BytesIO(changed), path.name, Facts())
    assert asked > 300


def test_an_integer_beyond_floats_ends_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 digits, which Python converts to an integer and not to a float; the values of one key after the other."""
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")
    asked = 0
    for path in FILES:
        data = path.read_bytes()
        known = registry.recognise(data[: 1 << 16])
        for key in sorted(set(_KEYED.findall(data))) if known is not None and b"{" in data[:1000] else ():
            changed = re.sub(rb'("%s"\s*:\s*\[?)-?[\d.]+' % re.escape(key), rb"\g<1>" + b"9" * 400, data)
            asked += 1
            with suppress(UsageProblem, InputProblem):  # nothing is left of it
                registry.read_file(known, io.BytesIO(changed), path.name, Facts())
    assert asked > 300


def test_a_number_of_more_than_64_bits_is_no_number() -> None:
    facts = Facts()
    rows = [Process("node01", 1 << 70, 3, 8, 1, 1, 1, None, 1), Process("node01", 7, 4, 8, 1, 1, 1, None, 1)]
    facts.add(rows)
    assert [(None, 3), (7, 4)] == [(row.pid, row.rank) for row in facts.rows(Process)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("Exceeds the limit"), "read only in part, as gpu-samples: ValueError: Exceeds the limit"),
        (TypeError("int and str"), "a bug in our reader of gpu-samples ended the reading: TypeError: int and str"),
    ],
)
def test_an_error_of_a_reader_ends_its_file_only(tmp_path: Path, error: Exception, words: str) -> None:
    (tmp_path / "gpu.csv").write_bytes((FIXTURES / "gpu" / "busy70.csv").read_bytes())
    (tmp_path / "job.log").write_text("node01:10:11 [0] NCCL WARN Cuda failure 'out of memory'\n")

    class Broken:
        @staticmethod
        def read_format(*_: object) -> Reading:
            raise error

    genuine = importlib.import_module
    load = mock.Mock(side_effect=lambda name: Broken if ".formats.gpu." in name else genuine(name))
    with mock.patch.object(registry.importlib, "import_module", load):
        facts, problems = analyze.read_facts([str(tmp_path)])
    assert 1 == len([row for row in facts.rows(Message) if "out of memory" in row.text])
    assert [problem for problem in problems if "gpu.csv" in problem and words in problem]


def _dies(*_: object) -> bytes:
    os._exit(9)


def test_the_stretch_of_a_process_that_is_killed_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"node{n:02d}:10:11 [0] NCCL INFO Using network IB\n" for n in range(50)))
    with (
        mock.patch.object(parallel, "PARALLEL", 100),
        mock.patch.object(parallel, "processors", return_value=3),
        mock.patch.object(parallel, "_packed", _dies),
    ):
        partial, _ = parallel.scan_file(path)
    assert (50, 50) == (partial.lines, len(partial.headers))


INTERRUPTED = """
import sys, time
from contextlib import suppress
from pathlib import Path
from nccl_doctor.cli.main import main
from nccl_doctor.log import parallel

def waits(path, *_):
    Path(f"{path}.started").touch()
    while True:
        time.sleep(1000)

parallel.PARALLEL, parallel.processors, parallel._packed = 1000, lambda: 3, waits
sys.exit(main(["analyze", sys.argv[1]]))
"""


def test_a_user_who_stops_the_reading_of_a_large_log_sees_no_traceback(tmp_path: Path) -> None:
    """The signal comes while the processes that read its parts are at work."""
    path = tmp_path / "job.log"
    path.write_text("".join(f"node01:10:11 [0] NCCL INFO Using network {n % 7}IB\n" for n in range(500)))
    command = [sys.executable, "-c", INTERRUPTED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        until(lambda: Path(f"{path}.started").exists() or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert 130 == process.returncode, said.decode()
    assert b"Traceback" not in said
