"""Draining a node in Slurm with a reason that says why, never over somebody else's reason."""

import os
import re
import subprocess
from collections.abc import Mapping

from nccl_doctor.cli.prologue import OWNER

SECONDS = 3.0  # for one call of scontrol; a controller that is away must not hold up the prolog
_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin:/usr/local/sbin:/usr/sbin:/sbin"  # a prolog has none


def drain(node: str, why: str) -> str | None:
    """Drain a node unless it is drained already for a reason of others. Returns what could not be done, else None."""
    told = _state(node)
    if isinstance(told, str):
        return told
    state, reason = told
    if "DRAIN" in state and reason and not reason.startswith(OWNER):
        return None
    return _scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={' '.join(why.split())}")[1]


def resume(node: str) -> str | None:
    """Give a node back that we drained, and no other. Returns what could not be done, else None."""
    told = _state(node)
    if isinstance(told, str):
        return told
    state, reason = told
    if "DRAIN" not in state or not reason.startswith(OWNER):
        return None
    return _scontrol("update", f"NodeName={node}", "State=RESUME")[1]


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node in Slurm."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]


def _state(node: str) -> tuple[str, str] | str:
    text, problem = _scontrol("show", "node", node, "-o")
    if problem is not None:
        return problem
    state = re.search(r"\bState=(\S+)", text)
    reason = re.search(r"\bReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", text)
    return (state[1] if state else "", reason[1] if reason else "")


def _scontrol(*arguments: str) -> tuple[str, str | None]:
    environ = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_PATH}", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["scontrol", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
            env=environ, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        return "", "scontrol is not on the path"
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"scontrol {arguments[0]} failed: {' '.join(str(error).split())}"
    if done.returncode:
        return "", f"scontrol {arguments[0]} failed: {' '.join((done.stderr or done.stdout).split())}"
    return done.stdout, None
