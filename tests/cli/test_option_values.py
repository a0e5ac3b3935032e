"""Values of options that nobody means: each is one short line and status 2."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.cli.main import main
from nccl_doctor.rules import folder

DEMO = str(FIXTURES / "demo.log")
LONG = "a" * 5_000  # longer than any name of a file
DIGITS = "1" * 5_000  # longer than what Python converts
PREFLIGHT = ["preflight", "--only", "clock", "--state", "-"]

ODD = {
    "input": ["analyze", LONG],
    "base": ["analyze", DEMO, "--save", LONG],
    "base of --resume": ["analyze", DEMO, "--resume", LONG],
    "folder of rules": ["analyze", DEMO, "--rules", LONG],
    "report": ["analyze", DEMO, "-o", LONG],
    "configuration": ["analyze", DEMO, "--config", LONG],
    "configuration that never ends": ["analyze", DEMO, "--config", "/dev/zero"],
    "format": ["analyze", DEMO, "--format", LONG],
    "input of sql": ["sql", LONG, "SELECT 1"],
    "input of rules try": ["rules", "try", DEMO, LONG],
    "rule": ["rules", "show", LONG],
    "table": ["facts", "--table", LONG],
    "similar table": ["facts", "--table", "proces"],
    "expectations": [*PREFLIGHT, "--expect", LONG],
    "expectations that never end": [*PREFLIGHT, "--expect", "/dev/zero"],
    "tree": ["preflight", "--root", LONG],
    "tree that never ends": ["preflight", "--root", "/dev/zero"],
    "tree that is no archive": ["preflight", "--root", DEMO],
    "number of a node": [*PREFLIGHT, "--nodes", DIGITS],
    "range of nodes": [*PREFLIGHT, "--nodes", f"n[1-{DIGITS}]"],
    "more nodes than there are": [*PREFLIGHT, "--nodes", "n[1-9999999]"],
    "base on standard output": ["analyze", DEMO, "--save", "-"],
    "bundle on standard output": ["bundle", DEMO, "--yes", "-o", "-"],
    "workers": ["analyze", DEMO, "--dask", "local:x"],
    "more workers than can be": ["analyze", DEMO, "--dask", f"slurm:{DIGITS}"],
    "empty folder of preflight": ["preflight", "--state", ""],
    "empty folder of a tree": ["simulate", "--node", "p5", "-o", ""],
    "no number of seconds": ["analyze", DEMO, "--follow", "--idle", "nan"],
    "no number as time-out": ["preflight", "--timeout", "nan"],
    "empty configuration": ["analyze", DEMO, "--config", ""],
    "empty recording": ["watch", "--once", "--replay", ""],
    "device as a log": ["watch", "--once", "--log", "/dev/zero"],
    "process that cannot be": ["stacks", "--pid", "-1"],
    "number larger than that of any process": ["stacks", "--pid", "99999999999999999999"],
    "process that is not there": ["stacks", "--pid", "4194304"],
    "many ranges of nodes": [*PREFLIGHT, "--nodes", "n[1-999]-[1-999]-[1-999]"],
}


@pytest.mark.parametrize("case", ODD)
def test_odd_value_is_one_short_line_and_status_2(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert 2 == main(ODD[case])

    said = capsys.readouterr()
    assert ("", 1) == (said.out, said.err.count("\n"))
    assert len(said.err) < 600
    assert "Error" not in said.err
    assert [] == list(tmp_path.iterdir())


def test_numbers_of_thousands_of_digits_and_nesting_in_expectations_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in (f"[gpu]\ncount = {DIGITS}\n", f"a = {'[' * 5_000}"):
        file = tmp_path / "expect.toml"
        file.write_text(text)
        assert 2 == main([*PREFLIGHT, "--expect", str(file)])
        assert 1 == capsys.readouterr().err.count("\n")


def test_a_folder_of_rules_that_cannot_be_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc` has such folders: of a process that ended."""
    (tmp_path / "ended").mkdir()
    listed = os.scandir

    def scandir(folder: Path | str) -> "Iterator[os.DirEntry[str]]":
        if str(folder).endswith("/ended"):
            raise OSError(errno.EINVAL, "Invalid argument", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)

    assert 1 == main(["analyze", DEMO, "--rules", str(tmp_path)])


@pytest.mark.parametrize("command", [["analyze", DEMO, "--rules"], ["rules", "check"], ["rules", "list", "--rules"]])
def test_a_folder_of_rules_that_is_the_whole_disk_is_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_MOST", 50)
    for number in range(60):
        (tmp_path / f"{number}.txt").touch()
    assert 2 == main([*command, str(tmp_path)])
    assert "holds more than 50 files; name the folder of the rules\n" in capsys.readouterr().err


def test_thousands_of_files_that_are_no_rules_are_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(300):
        (tmp_path / f"{number}.toml").write_text("[tool]\n")
    assert 1 == main(["analyze", DEMO, "--rules", str(tmp_path)])
    said = capsys.readouterr().err.splitlines()
    assert len(said) < 30
    assert "280 further files" in said[-1]
