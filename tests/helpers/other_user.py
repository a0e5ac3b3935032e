"""Code that runs as another user, who may not enter the folder in which the repository lies."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.places import ROOT

NOBODY = 65534
# Python and its packages may lie where nobody may read. What is imported late is imported before, by doing everything once
# as root: in the children of preflight, and here.
AS_NOBODY = f"""
import contextlib, encodings.idna, importlib, os, resource, sys, traceback
from nccl_doctor.cli.main import main
from nccl_doctor.node.runtime.collect import COLLECTORS, MODULES
from nccl_doctor.node.runtime.root import Root
for name in COLLECTORS:
    with contextlib.suppress(Exception):
        list(importlib.import_module(f"nccl_doctor.node.{{MODULES[name]}}").collect(Root("/")))
sys.stdout = open(os.devnull, "w")
main(["preflight", "--state=-", "--format=json"])
sys.stdout = sys.__stdout__
os.chdir("/"); os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""


def run_as_nobody(code: str, folder: Path, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python code as nobody, with a copy of the package and its rules below `folder` that everybody may read.

    `before` is a command that root starts, with Python's behind it.
    """
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    package = folder / "nccl_doctor"
    shutil.copytree(ROOT / "nccl_doctor", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "rules", package / "rules" / "data")
    return subprocess.run(
        [*before, sys.executable, "-c", AS_NOBODY + code], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
