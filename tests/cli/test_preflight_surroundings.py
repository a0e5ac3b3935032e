"""`preflight` on a node whose disks, configuration, /proc or limits are not what they should be: the same verdict, or none."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.other_user import run_as_nobody

from nccl_doctor.cli.fail_open import DRAIN
from nccl_doctor.cli.main import main
from nccl_doctor.simulate import node

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="root mounts, or becomes another user")
CALL = [sys.executable, "-I", "-m", "nccl_doctor", "preflight", "--for", "lsf", "--timeout", "60"]
VAR = {  # what is mounted over /var, and what was written there before
    "read-only": "mount -t tmpfs -o ro none /var",
    "full": "mount -t tmpfs -o size=16k none /var && mkdir /var/lib && head -c 1m /dev/zero >/var/x 2>/dev/null || :",
    "without inodes": "mount -t tmpfs -o nr_inodes=2 none /var && mkdir /var/lib",
    "without folders": "mount -t tmpfs none /var && touch /var/lib",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    node.build("dgx-h100", "gpu-off-the-bus", host="node02").write(folder)
    return folder


def within(mounts: str, command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in a mount namespace of its own; skips where there is none."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    shell = ["unshare", "-m", "/bin/sh", "-c", f'{mounts}\nexec "$@"', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, env={**environ}, cwd="/", check=False)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


@root_only
@pytest.mark.parametrize("how", VAR)
def test_a_var_that_cannot_be_written_changes_no_verdict(broken: Path, how: str) -> None:
    if str(broken).startswith("/var/"):
        pytest.skip("the folder of the tests lies in /var")
    done = within(VAR[how], [*CALL, "--root", str(broken), "--state", "/var/lib/nccl-doctor"])
    assert DRAIN == done.returncode, done.stderr
    assert "state" in done.stderr
    assert "Traceback" not in done.stderr


def make(kind: str, path: Path) -> None:
    """Something that is not a file of settings, or too large for one."""
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 1 << 40)  # sparse: it takes no space


@pytest.mark.parametrize("option", ["--settings", "--config", "--expect", "--rules"])
@pytest.mark.parametrize("kind", ["FIFO", "socket", "endless device", "folder", "sparse file of 1 TiB"])
def test_what_is_no_file_of_settings_is_not_read(
    broken: Path, tmp_path: Path, option: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "x.toml"
    make(kind, place)
    named = tmp_path if option == "--rules" else place
    status = main(["preflight", "--for", "lsf", "--state", "-", "--root", str(broken), option, str(named)])
    left_out = option == "--rules"  # the other rules are asked
    assert (DRAIN if left_out else 0) == status
    said = capfd.readouterr().err
    assert ("is not read" in said) == (not left_out)
    assert ("larger than" in said) == kind.startswith("sparse")


HIDDEN = ["unshare", "-m", "/bin/sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
LIVE = '["preflight", "--for", "lsf", "--state", "-", "--timeout", "60"]'


@root_only
def test_a_proc_that_hides_the_processes_of_others(open_path: Path) -> None:
    code = f"print(os.path.exists('/proc/1'), main({LIVE}))"
    done = run_as_nobody(code, open_path, HIDDEN)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(done.stderr.strip())
    hidden, status = done.stdout.splitlines()[-1].split()
    assert ("False", True) == (hidden, status in ("0", "91")), done.stdout + done.stderr
    assert "failed" not in done.stdout


@root_only
@pytest.mark.parametrize(
    "limit", ["NPROC, (0, 0)", "NOFILE, (6, 6)", "AS, (1 << 26, 1 << 26)", "CPU, (1, 1)", "FSIZE, (0, 0)"]
)
def test_limits_of_a_user_drain_nothing(open_path: Path, limit: str) -> None:
    """RLIMIT_NPROC counts for users alone: not one child can be started."""
    code = f"resource.setrlimit(resource.RLIMIT_{limit})\nprint('status', main({LIVE}))"
    done = run_as_nobody(code, open_path)
    assert DRAIN != done.returncode
    assert f"status {DRAIN}" not in done.stdout
    if limit.startswith("NPROC"):
        assert done.stdout.endswith("status 0\n"), done.stdout + done.stderr
