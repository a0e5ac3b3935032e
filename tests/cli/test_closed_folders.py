"""Paths that a user may not look at: each is one line and status 2, for every command that takes one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.places import DEMO, FIXTURES

from nccl_doctor.cli.main import main
from nccl_doctor.rules.folder import rule_files

NOBODY = 65534
LOG = str(DEMO)
COMMANDS = {
    "input": ["analyze", "CLOSED"],
    "input beside another": ["analyze", LOG, "CLOSED"],
    "rules": ["analyze", LOG, "--rules", "CLOSED"],
    "configuration": ["analyze", LOG, "--config", "CLOSED"],
    "base": ["analyze", LOG, "--save", "CLOSED"],
    "base of --resume": ["analyze", LOG, "--resume", "CLOSED"],
    "report": ["analyze", LOG, "-o", "CLOSED"],
    "input of compare": ["compare", LOG, "CLOSED"],
    "input of facts": ["facts", "CLOSED"],
    "export": ["facts", LOG, "--export", "CLOSED"],
    "input of sql": ["sql", "CLOSED", "SELECT 1"],
    "rules of show": ["rules", "show", "NET001", "--rules", "CLOSED"],
    "rule": ["rules", "check", "CLOSED"],
    "input of rules try": ["rules", "try", str(rule_files(FIXTURES.parent / "rules" / "network")[0]), "CLOSED"],
    "tree": ["preflight", "--root", "CLOSED", "--state", "-"],
    "followed log": ["watch", "--once", "--log", "CLOSED"],
    "recording": ["watch", "--once", "--replay", "CLOSED"],
    "input of bundle": ["bundle", "CLOSED", "--yes", "-o", "b.tar.gz"],
    "bundle": ["bundle", LOG, "--yes", "-o", "CLOSED"],
    "log of simulate": ["simulate", "-o", "CLOSED"],
    "tree of simulate": ["simulate", "--node", "p5", "-o", "CLOSED"],
    "folder of mcp": ["mcp", "CLOSED"],
}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without root's right to look everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("where", ["closed", "closed/x"])
@pytest.mark.parametrize("case", COMMANDS)
def test_what_may_not_be_looked_at_is_one_line(
    case: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if (case, where) == ("folder of mcp", "closed"):
        pytest.skip("a server reads what pytest has put in the place of standard input")
    monkeypatch.chdir(tmp_path)
    closed = tmp_path / "closed"
    if where == "closed":
        closed.mkdir()

    def run(path: Path) -> int:
        return main([str(path) if word == "CLOSED" else word for word in COMMANDS[case]])

    if os.geteuid() == 0:  # imports what is imported late, which nobody may not
        run(tmp_path / where)
    capsys.readouterr()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    shutil.rmtree(closed, ignore_errors=True)
    closed.mkdir(0)
    try:
        with unprivileged():
            status = run(tmp_path / where)
    finally:
        closed.chmod(0o700)

    said = capsys.readouterr().err
    assert "internal error" not in said
    if where == "closed/x":  # some commands find nothing in a folder that is closed itself
        assert (1 if case == "input beside another" else 2, 1) == (status, said.count("\n")), said


def test_a_program_that_may_not_be_run_is_told_by_watch(tmp_path: Path) -> None:
    """Where Python itself cannot be started: it was removed, or its folder is closed."""
    script = "import sys; sys.executable = '/no/such/python'\nfrom nccl_doctor.cli.main import run; run()"
    command = [sys.executable, "-c", script, "watch", "--once", "--log", LOG]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    assert "/no/such/python: No such file or directory" in done.stdout
