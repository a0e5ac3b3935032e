"""The hook for PBS against a stand-in of PBS's module: Debian has no PBS to run it in.

The stand-in behaves as OpenPBS does for execjob_begin (src/resmom/mom_hook_func.c, src/modules/python/pbs/v1): the list of
vnodes holds those of the job, on all its hosts, and the one that is named as the host only where the job has it; comments are
known to the server alone; an unhandled exception and an alarm reject the job; `accept` and `reject` end the hook.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.prologues import SCRIPTS, install, program

STAND_IN = """
import json, os, sys, time
LOG_WARNING, ND_OFFLINE = 4, 1
told = json.loads(sys.argv[1])
said = {"log": [], "nodes": {}}
class Vnode:
    comment = None
    def __init__(self, name): self._name = name
    def __setattr__(self, name, value):
        if not name.startswith("_"): said["nodes"].setdefault(self._name, {})[name] = value
        object.__setattr__(self, name, value)
class Job:
    def rerun(self): said["rerun"] = True
    def delete(self): said["delete"] = True
class Event:
    vnode_list = {name: Vnode(name) for name in told["vnodes"]}
    job = Job()
    def accept(self): end("accept")
    def reject(self, reason): end("reject", reason=reason)
class Server:
    def vnode(self, name):
        if told["comments"] == "hangs": time.sleep(600)
        if told["comments"] is None: raise RuntimeError("Unauthorized Request")
        return type("Told", (), {"comment": told["comments"].get(name)})
one = Event()
def event(): return one
def server(): return Server()
def get_local_nodename(): return told["host"]
def logmsg(level, text): said["log"].append(text)
def end(how, **more):
    print(json.dumps({**said, "end": how, **more}))
    raise SystemExit(how == "reject")
"""
BROKEN = "echo noise; echo 'nccl-doctor:GPU012 gone'; exit 90"
HOSTILE = {"PATH": "/no/such", "LD_LIBRARY_PATH": "/tmp", "PYTHONPATH": "/tmp", "ENV": "/tmp/x", "PBS_JOBID": "$(id)"}


def hook(
    folder: Path, tool: str, comments: Any = None, vnodes: tuple[str, ...] = ("n1",), host: str = "n1",
    launcher: str = "launch.sh",
) -> dict[str, Any]:  # fmt: skip
    """What the hook did with a program that does this. `comments` is what the server tells; None: it refuses."""
    scripts = install(folder, program(folder / "python3", tool) if tool else "/no/such/python3", 5)
    (folder / "pbs.py").write_text(STAND_IN)
    text = (SCRIPTS / "pbs_hook.py").read_text()
    assert "/etc/nccl-doctor/launch.sh" in text
    text = text.replace("/etc/nccl-doctor/launch.sh", str(scripts / launcher))
    (folder / "hook.py").write_text(re.sub(r"(?m)^SERVER = 8", "SERVER = 1", text))
    told = json.dumps({"comments": comments, "vnodes": vnodes, "host": host})
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); exec(open('hook.py').read())", told],
        cwd=folder, env=HOSTILE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "" == done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_broken_node_goes_offline_and_the_job_elsewhere(tmp_path: Path) -> None:
    said = hook(tmp_path, BROKEN, {})
    reason = "nccl-doctor:GPU012 gone"
    nodes = {"n1": {"state": 1, "comment": reason}}
    assert {"end": "reject", "reason": reason, "rerun": True, "nodes": nodes, "log": []} == said


@pytest.mark.parametrize(
    ("comments", "expected"),
    [
        ({"n1": "waiting for a part"}, None),
        ({"n1": "nccl-doctor:IBN001 rail"}, "nccl-doctor:GPU012 gone"),
        ("hangs", None),
        (None, None),
    ],
    ids=["of-an-administrator", "ours", "server-hangs", "server-refuses"],
)
def test_the_comment_of_an_administrator_stays(tmp_path: Path, comments: Any, expected: str | None) -> None:
    """Only the server knows comments; where it does not tell them, the node goes offline and its comment is left alone."""
    said = hook(tmp_path, BROKEN, comments)
    assert (1, expected, "reject") == (said["nodes"]["n1"]["state"], said["nodes"]["n1"].get("comment"), said["end"])


@pytest.mark.parametrize("vnodes", [("N1[0]", "n1[1]", "n2[0]", "n10"), ("n1", "n1[0]", "n2")])
def test_all_vnodes_of_the_host_go_offline_and_no_others(tmp_path: Path, vnodes: tuple[str, ...]) -> None:
    said = hook(tmp_path, BROKEN, {}, vnodes)
    assert {name for name in vnodes if name.lower() in ("n1", "n1[0]", "n1[1]")} == set(said["nodes"])
    assert "reject" == said["end"]


def test_a_job_that_cannot_work_is_deleted_and_the_node_stays(tmp_path: Path) -> None:
    said = hook(tmp_path, "echo 'nccl-doctor:HST001 memlock'; exit 91", {})
    assert ("reject", True, {}) == (said["end"], said["delete"], said["nodes"])


@pytest.mark.parametrize("tool", ["", "exit 0", "exit 1", "exit 2", "kill -KILL $$", "sleep 600"])
def test_everything_else_runs_the_job(tmp_path: Path, tool: str) -> None:
    said = hook(tmp_path, tool, {})
    assert ("accept", {}) == (said["end"], said["nodes"])


def test_a_missing_launcher_is_told_in_the_log_of_pbs(tmp_path: Path) -> None:
    said = hook(tmp_path, "", {}, launcher="no-such.sh")
    assert ("accept", {}) == (said["end"], said["nodes"])
    (line,) = said["log"]
    assert "launch.sh ended with status" in line


def test_a_warning_is_not_taken_for_the_reason(tmp_path: Path) -> None:
    said = hook(
        tmp_path, "echo 'nccl-doctor: unknown key typo is left out'; echo 'nccl-doctor:GPU012 gone'; exit 90", {}
    )
    assert "nccl-doctor:GPU012 gone" == said["reason"]


def test_pbs_does_not_kill_the_hook_before_it_ends() -> None:
    text = (SCRIPTS / "pbs_hook.py").read_text()
    seconds = {name: int(value) for name, value in re.findall(r"(?m)^(LIMIT|SERVER) = (\d+)", text)}
    limit = int(re.findall(r"(?m)^LIMIT=(\d+)", (SCRIPTS / "launch.sh").read_text())[0])
    alarm = int(re.findall(r"alarm = (\d+)", text)[0])
    assert limit + 10 <= seconds["LIMIT"]
    assert sum(seconds.values()) < alarm
