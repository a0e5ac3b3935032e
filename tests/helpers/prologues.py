"""The scripts of docs/prologues, installed in a folder of a test with a program of the test's choice."""

import re
import shlex
import shutil
import sys
from pathlib import Path

from helpers.places import ROOT

SCRIPTS = ROOT / "docs" / "prologues"
LIMIT = 60  # seconds; a test that waits for the limit sets its own


def program(file: Path, text: str) -> Path:
    """An executable shell script."""
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def ours(folder: Path, options: str = "") -> Path:
    """A stand-in for the interpreter in /opt/nccl-doctor: ours, with further options of `preflight` behind the script's."""
    return program(folder / "python3", f'exec {shlex.quote(sys.executable)} "$@" --state - --timeout 30 {options}')


def install(folder: Path, python: Path | str, limit: int = LIMIT) -> Path:
    """Copies of all scripts, as an administrator installs them: the settings of launch.sh edited."""
    target = folder / "prologues"
    shutil.copytree(SCRIPTS, target, dirs_exist_ok=True)
    launch = target / "launch.sh"
    text = re.sub(r"(?m)^PYTHON=.*", f"PYTHON={shlex.quote(str(python))}", launch.read_text())
    launch.write_text(re.sub(r"(?m)^LIMIT=\d+", f"LIMIT={limit}", text))
    return target
