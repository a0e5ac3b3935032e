"""Dumps the stacks of all ranks on this node with py-spy and groups equal ones."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import Stack
from nccl_doctor.formats.profiles import pyspy
from nccl_doctor.node.host.job_processes import RankProcess

MAX_PARALLEL = 8
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class Group(NamedTuple):
    """Ranks whose main threads are at the same place."""

    doing: str
    members: list[RankDoing]
    frames: list[str]  # innermost first


def dump(facts: Facts, ranks: Sequence[RankProcess], *, native: bool = False, seconds: float = 10.0) -> list[str]:
    """Add the stacks of these processes to the facts. Returns one sentence for each process that failed."""
    program = _program()
    if program is None:
        return ["py-spy is not installed: run pip install py-spy"]
    host = socket.gethostname()
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        answers = list(pool.map(lambda one: _run_pyspy(program, one.pid, native, seconds), ranks))
    problems = []
    for one, (text, problem) in zip(ranks, answers, strict=True):
        name = f"stack of rank {one.rank} on {host}"
        if problem is not None:
            problems.append(f"rank {one.rank} (process {one.pid}): {problem}")
            ref = facts.evidence(name, 1, problem)
            facts.add([Collection(host, f"stacks {one.rank}", "failed", 0.0, problem, ref)])
            continue
        dumps = [found for found, _ in pyspy.parse_text((n, None, line) for n, line in enumerate(text.splitlines(), 1))]
        pyspy.rows(facts, name, dumps, host, {one.pid: one.rank})
    facts.mark_covered("stack")
    return problems


def _program() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _run_pyspy(program: str, pid: int, native: bool, seconds: float) -> tuple[str, str | None]:
    # Text, because the JSON of py-spy 0.4 omits the child processes of a rank.
    command = [program, "dump", "--subprocesses", "--pid", str(pid), *(["--native"] if native else [])]
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
            f"no stack within {seconds:g} s; the process may hang in a driver (check for state D: `ps -o stat,wchan -p {pid}`)",
        )
    except OSError as error:
        return "", f"py-spy cannot be started: {error.strerror}"
    if done.returncode == 0 and "Process " in done.stdout:
        return done.stdout, None
    return "", explain_failure(done.stderr or done.stdout, pid)


def explain_failure(text: str, pid: int) -> str:
    """Returns what an error message of py-spy means and what to do."""
    lowered = text.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return _permission(pid)
    if "python version" in lowered or "python interpreter" in lowered:
        return "is not a Python process, or py-spy does not support its interpreter"
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


def groups(facts: Facts) -> list[Group]:
    """Returns ranks grouped by place, the smallest groups first."""
    texts = {
        number: text.partition(": ")[2].split(" < ")
        for number, text in facts.query(
            "SELECT e.id, e.text FROM evidence e WHERE e.id IN (SELECT ref FROM rank_doing)"
        )
    }
    found: dict[tuple[str, str | None, str | None], Group] = {}
    for one in facts.rows(RankDoing):
        key = (one.doing, _place(one.leaf), one.worker)
        found.setdefault(key, Group(one.doing, [], texts.get(one.ref, []))).members.append(one)
    return sorted(found.values(), key=lambda group: (len(group.members), group.doing in ("collective", "backward")))


def _place(leaf: str | None) -> str | None:
    """Returns a frame without its line number, because ranks in one loop are at different lines."""
    return leaf.rpartition(":")[0] if leaf and ":" in leaf else leaf


def workers(facts: Facts, pid: int) -> list[Stack]:
    """Returns the child processes of a rank, such as loader workers."""
    return [stack for stack in facts.rows(Stack) if stack.parent == pid and stack.main]
