"""Standard input that is closed, no text, a folder, or never ends, and outputs named `-`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import DEMO

NCCL_DOCTOR = [sys.executable, "-m", "nccl_doctor"]


@pytest.mark.parametrize("given", [b"Xid 79 \xff\n", b"\xed\xa0\x80 NCCL_IB_HCA\n", b"\xff"])
def test_bytes_that_are_no_utf_8_are_pasted_as_odd_characters(given: bytes) -> None:
    done = subprocess.run([*NCCL_DOCTOR, "explain", "-"], input=given, capture_output=True, check=False)

    assert done.returncode in (0, 2)
    assert b"internal error" not in done.stderr
    assert (b"Xid 79" in given) == (b"Xid 79" in done.stdout)


@pytest.mark.parametrize("path", ["/dev/zero", "a file that only takes bytes"])
def test_what_is_no_pasted_text_is_one_line(path: str, tmp_path: Path) -> None:
    with open(path, "rb", buffering=0) if path.startswith("/") else (tmp_path / "x").open("wb", buffering=0) as file:  # noqa: PTH123
        done = subprocess.run([*NCCL_DOCTOR, "explain", "-"], stdin=file, capture_output=True, text=True, check=False)

    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["explain", "-"], ["analyze", "-"], ["watch"], ["bundle", str(DEMO), "-o", "b.tar.gz"]],
    ids=lambda one: one[0],
)
def test_a_closed_standard_input_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    script = "import os; os.close(0); import sys; sys.stdin = None\nfrom nccl_doctor.cli.main import run; run()"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["analyze", str(DEMO)]], ids=" ".join)
def test_a_standard_output_that_takes_nothing_is_one_line(arguments: list[str]) -> None:
    with Path(os.devnull).open("rb") as read_only:
        done = subprocess.run(
            [*NCCL_DOCTOR, *arguments], stdout=read_only, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr


@pytest.mark.parametrize("arguments", [["analyze", str(DEMO)], ["simulate"]], ids=lambda one: one[0])
def test_a_report_named_as_standard_output_goes_there(arguments: list[str], tmp_path: Path) -> None:
    command = [*NCCL_DOCTOR, *arguments, "-o", "-"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)

    assert done.stdout
    assert [] == list(tmp_path.iterdir())
