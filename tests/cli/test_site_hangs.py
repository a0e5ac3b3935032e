"""Files that the site names on a mount that hangs: the job runs, and soon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

HUNG = ROOT / "tests" / "helpers" / "hung_mount.py"
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="a mount that hangs needs root and /dev/fuse"
)


@pytest.mark.parametrize("option", ["--expect", "--config", "--rules", "--settings"])
def test_a_named_file_on_a_hung_mount_does_not_hold_up_the_job(tmp_path: Path, option: str) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    command = [
        "unshare", "--mount", "--propagation", "private", sys.executable, str(HUNG), str(mount), sys.executable, "-m", "nccl_doctor",
        "preflight", "--for", "slurm-health", "--observe", "--state=-", "--only=selinux", f"{option}={mount}/site",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert 0 == done.returncode, done.stderr
    assert "gives no answer" in done.stderr
