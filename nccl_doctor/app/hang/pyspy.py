"""Runs py-spy on a process; explains its failures."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
NOT_PYTHON = "is not a Python process, or py-spy does not support its interpreter"
TRIES = 3  # without a pause a running process may change while it is read


def program() -> str | None:
    """Returns the path of py-spy; None where it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def dump(path: str, pid: int, *, native: bool, seconds: float) -> tuple[str, str | None]:
    """Returns the stacks of a process and of its children with their local variables, and why it failed.

    The process is not paused, so that a stopped one can be read too; native frames and a process that changes need a pause.
    """
    ways = [["--native"]] if native else [*[["--nonblocking"]] * TRIES, []]
    problem: str | None = None
    partial = ""
    for way in ways:
        text, problem = _run(path, pid, way, seconds)
        if problem is None or (text and problem == NOT_PYTHON):  # a child of the rank is another program
            return text, None
        partial = text or partial
        if not _worth_another(problem):
            break
    return (partial, None) if partial else ("", problem)


def _worth_another(problem: str) -> bool:
    return not problem.startswith(
        ("no stack within", "py-spy cannot", "belongs to", "the kernel allows", "cannot be", "has ended")
    )


def _run(path: str, pid: int, way: list[str], seconds: float) -> tuple[str, str | None]:
    """Returns the stacks and what failed, if anything: py-spy stops at the first child that it cannot read."""
    # Text, because the JSON of py-spy 0.4 omits the child processes of a rank.
    command = [path, "dump", "--subprocesses", "--full-filenames", "--locals", "--pid", str(pid), *way]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return (
            "",
            f"no stack within {seconds:g} s; the process may hang in a driver (state D: `ps -o stat,wchan -p {pid}`)",
        )
    except OSError as error:
        return "", f"py-spy cannot be started: {error.strerror}"
    if done.returncode == 0 and "Process " in done.stdout:
        return done.stdout, None
    own = done.stdout if f"Process {pid}:" in done.stdout and "\nThread " in done.stdout else ""
    return own, explain_failure(done.stderr or done.stdout, pid)


def explain_failure(text: str, pid: int) -> str:
    """Returns what an error message of py-spy means and what to do."""
    lowered = text.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return _permission(pid)
    if "python version" in lowered or "python interpreter" in lowered:
        return NOT_PYTHON
    if "process executable name" in lowered or "no such process" in lowered or "no such file" in lowered:
        return "has ended"
    return " ".join(text.split("\n", 1)[0].split())[:200] or "py-spy failed without a message"


def _permission(pid: int) -> str:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
        scope = YAMA.read_text().strip() if YAMA.exists() else "0"
    except OSError:
        return "has ended"
    if owner != os.geteuid() and os.geteuid() != 0:
        return f"belongs to another user (uid {owner}): run as that user or as root"
    if os.geteuid() != 0 and scope != "0":
        return (
            f"the kernel allows only its parent to trace it (kernel.yama.ptrace_scope = {scope}): run as root, or `sysctl -w "
            "kernel.yama.ptrace_scope=0` (weakens the node until the next boot; set 1 to undo)"
        )
    return (
        "cannot be traced: in a container add `--cap-add SYS_PTRACE` (Kubernetes: securityContext.capabilities.add "
        "SYS_PTRACE and shareProcessNamespace), or run on the host"
    )
