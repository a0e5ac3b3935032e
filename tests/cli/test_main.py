"""The command line: what it loads, how it ends, what it says when something is wrong."""

import gzip
import io
import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.places import DEMO, ROOT

from nccl_doctor.app import analyze
from nccl_doctor.cli import table
from nccl_doctor.cli.main import COMMANDS, main
from nccl_doctor.cli.options import use_color

pytestmark = pytest.mark.usefixtures("plain_surroundings")
PASTED = "node01:101:140 [0] NCCL INFO Using network IB"
HEAVY = ("pandas", "numpy", "textual", "rich", "hyperscan", "ClusterShell", "zstandard")


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, env={**os.environ, **environment}, cwd=ROOT, check=False,
    )  # fmt: skip


# what is loaded

LOADED = """
import sys
from nccl_doctor.cli.main import main
status = main(sys.argv[1:])
print("LOADED", status, *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["explain", "NCCL_IB_HCA"],
        ["explain", "dev-shm-full"],
        ["explain", PASTED],
        ["analyze", "--help"],
    ],
)
def test_help_and_explain_load_nothing_heavy(arguments: list[str]) -> None:
    done = run_python(LOADED, *arguments)
    _, status, *modules = done.stderr.splitlines()[-1].split()
    assert "0" == status, done.stderr
    assert [] == [name for name in HEAVY if name in modules]


def test_json_needs_neither_pandas_nor_rich() -> None:
    done = run_python(LOADED, "analyze", "--format", "json", str(DEMO))
    modules = done.stderr.splitlines()[-1].split()
    assert [] == [name for name in ("pandas", "textual", "rich", "matplotlib") if name in modules]


def test_every_command_has_its_module_and_a_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert 0 == main([name, "--help"])
        assert f"Usage: nccl-doctor {name}" in capsys.readouterr().out


# analyze


def test_analyze_answers_with_the_fault_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["analyze", str(DEMO)])
    out, err = capsys.readouterr()
    assert out.startswith("ERROR: ")
    assert "" == err
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) < 24


@pytest.mark.parametrize(("level", "status"), [("error", 1), ("warning", 1), ("note", 1), ("never", 0)])
def test_fail_on(level: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert status == main(["analyze", "--fail-on", level, "--format", "json", str(DEMO)])
    assert "error" == json.loads(capsys.readouterr().out)["verdict"]


def test_a_healthy_log_ends_with_0(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["analyze", "--fail-on", "warning", str(healthy)])
    assert capsys.readouterr().out.startswith(("HEALTHY", "NOTE"))


def test_standard_input_is_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(DEMO.read_bytes())))
    assert 1 == main(["analyze", "-", "--format", "json"])
    piped = json.loads(capsys.readouterr().out)
    main(["analyze", str(DEMO), "--format", "json"])
    named = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in named["findings"]] == [f["name"] for f in piped["findings"]]


@pytest.mark.parametrize(
    ("file", "start"),
    [("r.json", "{"), ("r.sarif", "{"), ("r.md", "## ERROR"), ("r.html", "<!doctype html>"), ("r.xml", "<?xml"), ("r.txt", "ERROR: ")],
)  # fmt: skip
def test_output_takes_its_format_from_the_name(
    file: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["analyze", str(DEMO), "-o", str(tmp_path / file)])
    assert (tmp_path / file).read_text("utf-8").startswith(start)
    assert "" == capsys.readouterr().out


def test_saved_facts_are_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "job.db"
    main(["analyze", str(DEMO), "--save", str(saved), "--format", "json"])
    first = json.loads(capsys.readouterr().out)
    assert 1 == main(["analyze", str(saved), "--format", "json"])
    assert first["findings"] == json.loads(capsys.readouterr().out)["findings"]
    assert sqlite3.connect(saved).execute("SELECT count(*) FROM evidence").fetchone()[0] > 0


def test_save_keeps_its_hands_off_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(DEMO.read_bytes())
    for arguments in (["--save", str(log)], ["-o", str(log)]):
        assert 2 == main(["analyze", str(log), *arguments])
    assert 2 == main(["analyze", str(DEMO), "--save", str(log)])
    assert DEMO.read_bytes() == log.read_bytes()
    assert 3 == len(capsys.readouterr().err.splitlines())


def test_one_bad_file_is_named_and_the_rest_analyzed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.bin").write_bytes(bytes(range(256)) * 64)
    assert 1 == main(["analyze", str(DEMO), str(tmp_path / "bad.bin"), "--format", "json"])
    out, err = capsys.readouterr()
    assert 1 == len(err.splitlines())
    assert "bad.bin" in err
    assert json.loads(out)["findings"]


def test_width_and_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main(["analyze", str(DEMO), "--width", "50"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 50
    monkeypatch.setenv("COLUMNS", "60")
    main(["analyze", str(DEMO)])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_an_ascii_screen_gets_ascii() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nccl_doctor", "analyze", str(DEMO)],
        capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    assert 1 == done.returncode, done.stderr
    assert done.stdout.isascii()
    assert done.stdout.startswith(b"ERROR: ")


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(
    choice: str, terminal: bool, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert expected is use_color(choice, terminal)


# how it ends


def _missing(folder: Path) -> list[str]:
    return ["analyze", str(folder / "absent.log")]


def _written(name: str, content: bytes) -> Callable[[Path], list[str]]:
    def arguments(folder: Path) -> list[str]:
        (folder / name).write_bytes(content)
        return ["analyze", str(folder / name)]

    return arguments


WRONG: dict[str, Callable[[Path], list[str]]] = {
    "missing file": _missing,
    "empty file": _written("empty.log", b""),
    "binary file": _written("core.1234", b"\x7fELF" + bytes(range(256)) * 100),
    "broken archive": _written("job.tar.gz", b"\x1f\x8b\x08\x00broken"),
    "broken database": _written("job.db", b"SQLite format 3\0" + b"x" * 200),
    "folder without logs": lambda folder: ["analyze", str(folder)],
    "unknown format": lambda folder: ["analyze", "--format", "pdf", str(DEMO)],
    "unknown option": lambda folder: ["analyze", "--frobnicate", str(DEMO)],
    "unknown command": lambda folder: ["frobnicate"],
    "no path": lambda folder: ["analyze"],
    "rules are no folder": lambda folder: ["analyze", "--rules", str(folder / "absent"), str(DEMO)],
    "no configuration": lambda folder: ["analyze", "--config", str(folder / "absent.toml"), str(DEMO)],
    "output in no folder": lambda folder: ["analyze", str(DEMO), "-o", str(folder / "absent" / "r.json")],
    "save in no folder": lambda folder: ["analyze", str(DEMO), "--save", str(folder / "absent" / "r.db")],
    "width of nothing": lambda folder: ["analyze", "--width", "1", str(DEMO)],
    "unknown table": lambda folder: ["facts", "--table", "frobs"],
    "empty query": lambda folder: ["sql", str(DEMO), " -- nothing"],
    "no query": lambda folder: ["sql", str(DEMO), "DELETE FROM message"],
    "wrong query": lambda folder: ["sql", str(DEMO), "SELECT frob FROM message"],
    "unknown rule": lambda folder: ["rules", "show", "no-such-rule"],
    "no rules": lambda folder: ["rules", "check", str(folder)],
    "unknown fault": lambda folder: ["simulate", "--fault", "no-such-fault"],
    "unknown word": lambda folder: ["explain", "zzzz qqqq"],
    "nothing to explain": lambda folder: ["explain", " "],
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_user_got_wrong_is_one_line_and_status_2(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = WRONG[case](tmp_path)
    assert 2 == main(arguments)
    out, err = capsys.readouterr()
    assert "" == out
    assert 1 == len(err.splitlines()), err
    assert err.startswith("nccl-doctor: ")


def test_a_control_character_in_a_name_stays_out_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    main(["analyze", "no\x1b[31m\nfile"])
    err = capsys.readouterr().err
    assert 1 == len(err.splitlines())
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError, EOFError]
)  # click takes the second for a prompt without an answer
def test_our_own_failure_is_one_line_and_status_3(
    failure: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure("by zero")

    monkeypatch.setattr(analyze, "analyze", fail)
    assert 3 == main(["analyze", str(DEMO)])
    assert (
        f"nccl-doctor: internal error: {failure.__name__}: by zero (set NCCL_DOCTOR_DEBUG=1 to see the traceback)"
        == capsys.readouterr().err.strip()
    )
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")
    with pytest.raises(failure):
        main(["analyze", str(DEMO)])


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m nccl_doctor simulate --gpus 8 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert ("", 0) == (done.stderr, done.returncode)


# what is read, and how far


def test_progress_moves_within_a_file_and_ends_at_the_total(tmp_path: Path) -> None:
    line = "node01:101:140 [0] NCCL INFO Using network IB\n"
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_text(line * 60_000)
    packed.write_bytes(gzip.compress(random.Random(1).randbytes(400_000).hex().encode() + line.encode() * 9))
    seen: list[tuple[int, int]] = []
    analyze.read_facts([str(plain), str(packed)], lambda done, total: seen.append((done, total)))
    sizes = plain.stat().st_size, packed.stat().st_size
    done = [done for done, _ in seen]
    assert {sum(sizes)} == {total for _, total in seen}
    assert sum(sizes) == done[-1] == max(done)
    assert len({place for place in done if place < sizes[0]}) > 3
    assert len({place for place in done if sizes[0] < place < sum(sizes)}) > 1


def test_files_of_other_kinds_in_a_folder_are_told_in_a_line_a_kind(tmp_path: Path, healthy: Path) -> None:
    healthy.rename(tmp_path / "job.log")
    for number in range(3):
        (tmp_path / f"{number}.xml").write_text("<?xml version='1.0'?><config><a>1</a></config>")
        (tmp_path / f"{number}.pkl").write_bytes(pickle.dumps({"model": [1, 2]}))
        (tmp_path / f"{number}.dat").write_bytes(bytes(range(256)) * 10)
    _, problems = analyze.read_facts([str(tmp_path)])
    assert [
        f"{tmp_path}/0.dat and 2 more: is binary data, not a log",
        f"{tmp_path}/0.pkl and 2 more: is pickle data, but not a dump of PyTorch's flight recorder",
        f"{tmp_path}/0.xml and 2 more: is XML of no kind that is read here",
    ] == problems
    _, problems = analyze.read_facts([str(tmp_path / "job.log"), str(tmp_path / "0.xml")])
    assert [f"{tmp_path}/0.xml: is XML of no kind that is read here"] == problems


def test_simulate_fits_defaults_to_the_fault_and_refuses_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["simulate", "--fault", "efa-device-missing"])
    assert (
        "nccl-doctor: --network is efa, because efa-device-missing does not occur with ib\n" == capsys.readouterr().err
    )
    assert 2 == main(["simulate", "--fault", "efa-device-missing", "--network", "ib"])
    assert "does not occur with --network ib; use --network efa" in capsys.readouterr().err
    assert 2 == main(["simulate", "--fault", "duplicate-gp"])
    assert "no fault is called duplicate-gp; similar: duplicate-gpu" in capsys.readouterr().err


def test_tables_fit_the_screen_and_name_what_they_cut() -> None:
    wide = table.render(["id", "text", "n"], [("a", "x" * 200, 1), ("b", "y", 22)], width=40)
    assert all(len(line) <= 40 for line in wide.splitlines())
    assert wide.endswith("\n(cut: text; --format csv shows all)\n")
    long = table.render(["id", "words"], [("a", "word " * 30)], width=40)
    assert 40 >= max(map(len, long.splitlines()))
    assert 30 == len(long.split()) - len(["id", "words", "--", "-----", "a"])
    many = table.render([f"column{n}" for n in range(20)], [["x"] * 20], width=40)
    assert "left out: column4" in many.replace("\n", " ")


def test_a_closed_standard_output_is_one_line() -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "nccl_doctor", "analyze", str(DEMO)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (2, "nccl-doctor: standard output is closed\n") == (done.returncode, done.stderr)


# the end

ENDING = """
import atexit, sys
from nccl_doctor.cli.main import run
atexit.register(lambda: print("callback", file=sys.stderr))
{before}
sys.argv = ["nccl-doctor", "analyze", *sys.argv[1:]]
run()
"""


@pytest.mark.parametrize("before", ["", "sys.setprofile(lambda *_: None)", "del atexit._run_exitfuncs"])
def test_analyze_ends_with_its_status_output_and_callbacks(before: str) -> None:
    done = run_python(ENDING.format(before=before), str(DEMO))
    assert (1, "callback\n") == (done.returncode, done.stderr)
    assert done.stdout.startswith("ERROR: ")


@pytest.mark.parametrize(
    ("command", "threads"),
    [("analyze", "1"), ("compare", "1"), ("sql", "1"), ("record", "None"), ("preflight", "None")],
)
def test_numpy_starts_no_threads_but_in_jobs(command: str, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, OpenBLAS ends the process as Ctrl-C does."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    code = "import os, sys\nfrom nccl_doctor.cli import main\nmain.main = lambda _: print(os.environ.get('OPENBLAS_NUM_THREADS')) or 0\n"
    done = run_python(f"{code}sys.argv = ['nccl-doctor', '{command}']\nmain.run()")
    assert f"{threads}\n" == done.stdout
