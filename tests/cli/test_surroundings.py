"""What surrounds a command: no HOME, a current folder that is gone or cannot be written, locales, outputs that are no files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import DEMO, FIXTURES

from nccl_doctor.cli.main import main

NCCL_DOCTOR = [sys.executable, "-m", "nccl_doctor"]
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    "environment",
    [
        BARE,
        BARE | {"HOME": ""},
        BARE | {"HOME": "/dev/null", "TMPDIR": "/no/such"},
        BARE | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        BARE | {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        BARE | {"LC_ALL": "tr_TR.UTF-8"},
        BARE | {"LC_ALL": "no such locale", "PYTHONIOENCODING": "ascii"},
        BARE | {"PYTHONIOENCODING": "utf-16"},
    ],
    ids=lambda environment: (
        " ".join(f"{name}={value}" for name, value in environment.items() if name != "PATH") or "bare"
    ),
)
def test_no_environment_changes_what_is_found(tmp_path: Path, environment: dict[str, str]) -> None:
    """The name of the log has a letter beyond ASCII and a byte that is no UTF-8."""
    log = os.fsencode(tmp_path) + "/größe".encode() + b"\xff.log"
    with open(log, "wb") as file:  # noqa: PTH123 - the name is bytes
        file.write(DEMO.read_bytes())
    command = [*NCCL_DOCTOR, "analyze", log]

    done = subprocess.run([*command, "--save", "x.db"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    written = subprocess.run([*command, "-o", "x.md"], cwd=tmp_path, env=environment, capture_output=True, check=False)

    text = done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
    assert (1, b"") == (done.returncode, done.stderr)
    assert text.startswith("ERROR: The locked-memory limit is too small for the network card")
    assert (1, b"") == (written.returncode, written.stderr)
    assert "RES040" in (tmp_path / "x.md").read_text("utf-8")
    assert 1 == main(["analyze", str(tmp_path / "x.db")])


@pytest.mark.parametrize("arguments", [[], ["-o", "x.md"], ["--save", "x.db"]], ids=lambda one: " ".join(one) or "read")
def test_a_current_folder_that_was_removed_is_no_bug_of_ours(tmp_path: Path, arguments: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.rmdir({str(gone)!r})\nfrom nccl_doctor.cli.main import run; run()"
    command = [sys.executable, "-c", script, "analyze", str(DEMO), *arguments]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)

    assert (2 if arguments else 1) == done.returncode, done.stderr
    said = f"nccl-doctor: cannot write {arguments[-1]}: No such file or directory\n" if arguments else ""
    assert said == done.stderr


@pytest.mark.parametrize("settings", ["text.usetex: True\n", None], ids=["TeX", "pipe"])
def test_pictures_obey_no_file_of_the_current_folder_and_leave_none_in_the_home(
    settings: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    if settings is None:
        os.mkfifo(here / "matplotlibrc")
    else:
        (here / "matplotlibrc").write_text(settings)
    command = [*NCCL_DOCTOR, "analyze", str(FIXTURES / "job" / "xid-hang"), "--fail-on", "never", "-o", "x.html"]
    environment = {**os.environ, "HOME": str(home), "PATH": "/nowhere"}
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert "<svg" in (here / "x.html").read_text("utf-8")
    assert [] == list(home.rglob("*"))


def test_links_in_a_circle_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)

    assert 2 == main(["analyze", str(DEMO), "-o", str(circle)])
    assert 2 == main(["analyze", str(DEMO), "--save", str(circle)])
    assert 1 == main(["analyze", str(DEMO), str(circle), "-o", str(tmp_path / "x.md")])
    assert 3 == capsys.readouterr().err.count("Too many levels of symbolic links")


def test_save_replaces_no_device_and_waits_for_no_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root may replace /dev/null; a link to a pipe is what /dev/stdout is."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")

    for name in ("pipe", "link", "."):
        assert 2 == main(["analyze", str(DEMO), "--save", str(tmp_path / name)])
    assert 3 == capsys.readouterr().err.count("it is not a regular file")
    assert ["link", "pipe"] == sorted(one.name for one in tmp_path.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_a_report_and_a_base_need_two_names(tmp_path: Path, there: bool, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "x.db"
    if there:
        assert 1 == main(["analyze", str(DEMO), "--save", str(target)])
    before = target.read_bytes() if there else b""
    capsys.readouterr()

    assert 2 == main(["analyze", str(DEMO), "--save", str(target), "-o", f"{tmp_path}/../{tmp_path.name}/x.db"])
    assert "both name" in capsys.readouterr().err
    assert before == (target.read_bytes() if there else b"")
