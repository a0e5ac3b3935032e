"""The hook for PBS against a stand-in of PBS's module: Debian has no PBS to run it in."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.prologues import SCRIPTS, install, program

STAND_IN = """
import atexit, json, sys
LOG_WARNING, ND_OFFLINE = 4, 1
said = {}
class Node:
    comment = sys.argv[1] or None
    state = 0
class Job:
    def rerun(self): said["rerun"] = True
    def delete(self): said["delete"] = True
class Event:
    vnode_list = {"n1": Node()}
    job = Job()
    def accept(self): said["end"] = "accept"; raise SystemExit(0)
    def reject(self, reason): said["end"] = "reject"; said["reason"] = reason; raise SystemExit(1)
one = Event()
def event(): return one
def get_local_nodename(): return "n1"
def logmsg(level, text): said["log"] = text
def tell():
    node = one.vnode_list["n1"]
    print(json.dumps({**said, "state": node.state, "comment": node.comment}))
atexit.register(tell)
"""


def hook(folder: Path, tool: str, comment: str = "") -> dict[str, Any]:
    """What the hook did with a program that does this."""
    scripts = install(folder, program(folder / "python3", tool) if tool else "/no/such/python3", 5)
    (folder / "pbs.py").write_text(STAND_IN)
    text = (SCRIPTS / "pbs_hook.py").read_text()
    assert "/etc/nccl-doctor/launch.sh" in text
    (folder / "hook.py").write_text(text.replace("/etc/nccl-doctor/launch.sh", str(scripts / "launch.sh")))
    done = subprocess.run(
        [sys.executable, str(folder / "hook.py"), comment], capture_output=True, text=True, check=False
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_broken_node_goes_offline_and_the_job_elsewhere(tmp_path: Path) -> None:
    said = hook(tmp_path, "echo noise; echo 'nccl-doctor:GPU012 gone'; exit 90")
    expected = {
        "end": "reject",
        "reason": "nccl-doctor:GPU012 gone",
        "rerun": True,
        "state": 1,
        "comment": "nccl-doctor:GPU012 gone",
    }
    assert expected == said


def test_the_comment_of_an_administrator_stays(tmp_path: Path) -> None:
    said = hook(tmp_path, "echo 'nccl-doctor:GPU012 gone'; exit 90", "waiting for a part")
    assert (0, "waiting for a part", "reject") == (said["state"], said["comment"], said["end"])


def test_a_job_that_cannot_work_is_deleted_and_the_node_stays(tmp_path: Path) -> None:
    said = hook(tmp_path, "echo 'nccl-doctor:HST001 memlock'; exit 91")
    assert ("reject", True, 0) == (said["end"], said["delete"], said["state"])


@pytest.mark.parametrize("tool", ["", "exit 0", "exit 1", "exit 2", "kill -KILL $$", "sleep 600"])
def test_everything_else_runs_the_job(tmp_path: Path, tool: str) -> None:
    said = hook(tmp_path, tool)
    assert ("accept", 0, None) == (said["end"], said["state"], said["comment"])
