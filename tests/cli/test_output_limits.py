"""Outputs that take no more, and what foreign text becomes in them."""

import csv
import errno
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from helpers.waiting import until

from nccl_doctor.cli import table
from nccl_doctor.cli.main import main
from nccl_doctor.common.printable import is_printable, printable

DEMO = FIXTURES / "demo.log"
NCCL_DOCTOR = [sys.executable, "-m", "nccl_doctor"]


@pytest.mark.parametrize(
    "arguments",
    [["analyze", str(DEMO)], ["sql", str(DEMO), "SELECT 1"], ["rules", "list"], ["--help"], ["analyze", "--help"]],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_a_full_disk_behind_standard_output_is_no_bug_of_ours(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*NCCL_DOCTOR, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
    assert "standard output: No space left on device" in done.stderr


def test_a_full_disk_behind_standard_error_changes_no_status() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*NCCL_DOCTOR, "analyze", "/no/such"], stdout=subprocess.PIPE, stderr=full, check=False)

    assert 2 == done.returncode


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    target.chmod(0o640)
    script = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\nfrom nccl_doctor.__main__ import run; run()"
    command = [sys.executable, "-c", script, "analyze", str(DEMO), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (2, "old") == (done.returncode, target.read_text()), done.stderr
    assert "File too large" in done.stderr
    assert [target] == list(tmp_path.iterdir())

    assert 1 == main(["analyze", str(DEMO), "-o", str(target)])
    assert 0o640 == target.stat().st_mode & 0o777
    assert "error" == json.loads(target.read_text())["verdict"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_descriptors_are_one_line_or_enough(number: int) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({5 + number}, 99))"
    script = f"import resource\nfrom nccl_doctor.cli.main import run\n{limit}\nrun()"
    done = subprocess.run(
        [sys.executable, "-c", script, "analyze", str(DEMO)], capture_output=True, text=True, check=False
    )

    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory for this process (ulimit -v)"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files (ulimit -n)"),
        (
            ImportError("/lib/x.so: failed to map segment from shared object"),
            "a library cannot be loaded: /lib/x.so: failed to map segment from shared object (ulimit -v)",
        ),
        (BlockingIOError(errno.EAGAIN, "Try again"), "Try again (ulimit -u)"),
        (OSError(errno.EBADF, "Bad file"), "cannot write to standard output: Bad file"),
        (OSError(errno.EIO, "Input/output error", "/data/job.log"), "/data/job.log: Input/output error"),
        (OSError(errno.ESTALE, "Stale file handle", b"/nfs/\xff"), "/nfs/?: Stale file handle"),
    ],
)
def test_a_machine_that_gives_no_more_is_no_bug_of_ours(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("nccl_doctor.app.analyze.analyze", fail)

    assert 2 == main(["analyze", str(DEMO)])
    assert f"nccl-doctor: {said}\n" == capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "-o", "--save"])
def test_an_empty_name_is_a_wrong_option(name: str) -> None:
    assert 2 == main(["analyze", *([str(DEMO), name, ""] if name else [""])])


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="only root reads it")
def test_a_device_that_has_nothing_to_say_is_no_bug_of_ours() -> None:
    device = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):  # what other tests made the kernel say
        while os.read(device, 8192):
            pass
    os.close(device)
    assert 2 == main(["analyze", "/proc/kmsg"])


@pytest.mark.parametrize("columns", ["1", "0", "-5", "abc", "9" * 30])
def test_no_width_of_the_terminal_makes_a_table_unreadable(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    [head, *_] = table.render(["host", "rank"], [("node01", 7)]).splitlines()

    assert "host    rank" == head


def test_an_infinite_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["sql", str(DEMO), "SELECT 9e999 AS x, -9e999 AS y", "--format", "json"])

    def refuse(word: str) -> float:
        raise AssertionError(word)

    assert [{"x": None, "y": None}] == json.loads(capsys.readouterr().out, parse_constant=refuse)


@pytest.mark.parametrize("form", table.FORMATS)
def test_no_escape_of_a_column_name_reaches_the_terminal(form: str) -> None:
    assert "\x1b" not in table.render(["a\x1b[31mb"], [["c\x1b]0;title\x07"]], form)


def test_no_cell_is_a_formula_in_a_spreadsheet() -> None:
    cells = ["=cmd|'/c calc'!A1", "+1+1", "-1+1", "@SUM(A1)", "-1.5", "text", 7, None]
    [_, row] = csv.reader(io.StringIO(table.render([str(n) for n in range(8)], [cells], "csv")))
    assert ["'=cmd|'/c calc'!A1", "'+1+1", "'-1+1", "'@SUM(A1)", "-1.5", "text", "7", ""] == row
    wide = [f"{sign}1+1" for sign in "\uff1d\uff0b\uff0d\uff20"]  # an East Asian spreadsheet takes these too
    assert [[f"'{cell}" for cell in wide]] * 2 == list(csv.reader(io.StringIO(table.render(wide, [wide], "csv"))))


def test_no_escape_of_a_rule_or_a_file_name_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job\x1b]0;title\x07.log"
    log.write_bytes(DEMO.read_bytes())
    rule = tmp_path / "ours.toml"
    words = {
        "id": "SITE001",
        "name": "ours",
        "title": "Ours",
        "severity": "note",
        "role": "context",
        "confidence": "certain",
    }
    words |= {"since": "0.1", "query": "SELECT min(ref) AS ref FROM message", "why": "w", "fix": "f"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in words.items()]
    lines += ['needs = ["message"]', 'message = "a\\u001b[31mb\\u202e"', 'references = ["r"]', "params = {}"]
    rule.write_text("\n".join(lines) + "\n")

    assert 0 == main(["rules", "try", str(rule), str(log)])

    out = capsys.readouterr().out
    assert "note, context, certain: ab\n" in out
    assert ".log:" in out
    assert "" == "".join(sign for sign in out if sign != "\n" and not sign.isprintable())


def test_letters_that_look_like_nothing_are_not_shown() -> None:
    assert "a?b?" == printable("a\u3164b\uffa0")
    assert not is_printable("\u2800")
    assert is_printable("node01 größe 한")


@pytest.mark.parametrize("query", [
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE ('x' || i) REGEXP '^(y|z)'",
    "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' REGEXP '^(a|a|aa)+$'",
], ids=["steps", "one expression"])  # fmt: skip
def test_an_interrupt_inside_of_a_query_is_one(query: str, tmp_path: Path) -> None:
    script = (
        "import sys; from nccl_doctor.facts import sql_functions as f; from nccl_doctor.cli.main import main\n"
        "old = f._pattern\n"
        "def told(text):\n    open(sys.argv[1], 'w').close(); return old(text)\n"
        "f._pattern = told\n"
        "sys.exit(main(['sql', *sys.argv[2:]]))"
    )
    mark = tmp_path / "started"
    command = [sys.executable, "-c", script, str(mark), str(DEMO), query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: mark.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert 130 == process.returncode, said.decode()
