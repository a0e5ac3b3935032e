"""Draining a node in Slurm with a reason that says why, never over what an administrator decided."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from nccl_doctor.cli.prologue import OWNER
from nccl_doctor.common import trusted
from nccl_doctor.common.timestamps import iso_seconds

SECONDS = 3.0  # for one call of scontrol; a controller that is away must not hold up the prolog
FOLDERS = ("/opt/slurm/bin", "/opt/slurm/current/bin", "/usr/local/slurm/bin")  # beyond the system's folders
# States and flags of scontrol(1) in which a node is in service or drained. With any other (DOWN, FAIL, MAINT, REBOOT, INVALID_REG,
# a word of a later release, a mark such as `$`) somebody else decides about the node. `*` does not respond, `-` is planned.
_IN_SERVICE = {
    "IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED", "BLOCKED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE",
    "NOT_RESPONDING", "DRAIN", "DRAINED", "DRAINING",
}  # fmt: skip


def drain(node: str, why: str, commands: Sequence[str] = ()) -> bool | str:
    """Drain a node unless it is out of service for a reason of others. Returns whether it was, or what could not be done.

    A node that is drained for this rule already is left as it is: its time counts for the limit of drained nodes.
    """
    told = _state(node, commands)
    if isinstance(told, str):
        return told
    state, reason = told
    if not _in_service(state) or (reason and not reason.startswith(OWNER)):
        return False
    if "DRAIN" in state and reason.split()[:1] == why.split()[:1]:
        return False
    problem = _scontrol(commands, "update", f"NodeName={node}", "State=DRAIN", f"Reason={' '.join(why.split())}")[1]
    return problem or "DRAIN" not in state


def resume(node: str, commands: Sequence[str] = ()) -> str | None:
    """Give a node back that we drained, and no other. Returns what could not be done, else None."""
    told = _state(node, commands)
    if isinstance(told, str):
        return told
    state, reason = told
    if "DRAIN" not in state or not _in_service(state) or not reason.startswith(OWNER):
        return None
    # RESUME would end a DOWN that was set in between, and makes srun wait two minutes for a node with a job.
    return _scontrol(commands, "update", f"NodeName={node}", "State=UNDRAIN")[1]


def _in_service(state: str) -> bool:
    return all(word.rstrip("*-") in _IN_SERVICE for word in state.split("+"))


def drained(rule: str, commands: Sequence[str] = ()) -> tuple[list[tuple[float, str]], int] | str:
    """When which nodes were drained by us for this rule, and the number of all nodes; else what could not be done."""
    text, problem = _scontrol(commands, "show", "node", "-o")
    if problem is not None:
        return problem
    rows = []
    lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    for line in lines:
        name = line.partition("=")[2].split(maxsplit=1)[0]
        found = re.search(rf"\bReason={OWNER}(.*) \[[^\[\]]*@([-\dT:]+)\]\s*$", line)
        if found is None or not re.search(rf"^{re.escape(rule)} |\(\+[\w,]*\b{re.escape(rule)}\b[\w,]*\)$", found[1]):
            continue
        if "DRAIN" in line.partition(" State=")[2].partition(" ")[0]:
            since = iso_seconds(found[2], local=True)
            if since is not None:
                rows.append((since, name))
    return rows, len(lines)


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node in Slurm."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]


def _state(node: str, commands: Sequence[str]) -> tuple[str, str] | str:
    text, problem = _scontrol(commands, "show", "node", node, "-o")
    if problem is not None:
        return problem
    state = re.search(r"\bState=(\S+)", text)
    if state is None:
        return f"scontrol names no state of node {node}"
    reason = re.search(r"\bReason=(.{0,900}?)(?: \[[^\[\]]{0,80}@[^\[\]]{0,80}\])?\s{0,80}$", text)
    return state[1], reason[1] if reason else ""


def _scontrol(commands: Sequence[str], *arguments: str) -> tuple[str, str | None]:
    program = trusted.command("scontrol", (*FOLDERS, *commands))
    if program is None:
        return "", "scontrol is in no folder that is searched (setting `commands`)"
    configuration = os.environ.get("SLURM_CONF", "")
    known = {"SLURM_CONF": configuration} if configuration and trusted.distrust(configuration) is None else {}
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
            env=trusted.clean_environment(**known), text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"scontrol {arguments[0]} failed: {' '.join(str(error).split())}"
    if done.returncode:
        return "", f"scontrol {arguments[0]} failed: {' '.join((done.stderr or done.stdout).split())}"
    return done.stdout, None
