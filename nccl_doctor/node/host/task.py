"""The task that runs the check: its limits, rights, CPUs, and what its scheduler granted."""

import ctypes
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import HostTask, TaskLimit
from nccl_doctor.node.runtime.root import Root, fields

IPC_LOCK = 14  # bit of CAP_IPC_LOCK
TRIAL = 64 << 20  # bytes that the trial of mlock locks
_LIMITS = {
    "locked memory": "memlock",
    "open files": "nofile",
    "processes": "nproc",
    "stack size": "stack",
    "core file size": "core",
}
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_PROCID", "SLURM_SCRIPT_CONTEXT",
    "SLURM_STEP_GPUS",
)  # fmt: skip


def environment(root: Root) -> Mapping[str, str]:
    """The few variables of the task that say what it was given."""
    kept = root.asked("task", lambda: _ask(bool(root.deep))) or {}
    parsed = kept.get("environ")
    return {str(k): str(v) for k, v in parsed.items()} if isinstance(parsed, dict) else {}


def _ask(deep: bool) -> dict[str, Any]:
    rows: dict[str, Any] = {
        "environ": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "uid": os.geteuid(),
    }
    return {**rows, "locked": locked()} if deep else rows


def locked(size: int = TRIAL) -> int:
    """How many bytes could be locked, up to `size`: halved until mlock agrees."""
    library = ctypes.CDLL(None, use_errno=True)
    while size >= mmap.PAGESIZE:
        with mmap.mmap(-1, size) as area:
            view = (ctypes.c_char * size).from_buffer(area)
            done = library.mlock(ctypes.byref(view), ctypes.c_size_t(size)) == 0
            del view
        if done:
            return size
        size //= 2
    return 0


def cpu_set(text: str | None) -> set[int]:
    """`0-3,8` as a set; an empty set for any other text."""
    rows: set[int] = set()
    for part in (text or "").strip().split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first > 100_000:
            continue
        rows.update(range(first, last + 1))
    return rows


def parse_limits(text: str) -> Iterator[tuple[str, int | None, int | None, int]]:
    """(name, soft, hard, line) of the limits that matter, from /proc/<pid>/limits; -1 is unlimited."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"Max (.{1,80}?)\s{2,80}(\S+)\s+(\S+)", line)
        name = _LIMITS.get(match[1]) if match else None
        if match is not None and name is not None:
            yield name, _limit(match[2]), _limit(match[3]), number


def _limit(text: str) -> int | None:
    return -1 if text == "unlimited" else int(text) if text.isdecimal() and len(text) < 20 else None


def read_limits(root: Root) -> Iterator[TaskLimit]:
    places = {"self": "/proc/self/limits"}
    for path in ("/run/slurmd.pid", "/var/run/slurmd.pid", "/run/slurm/slurmd.pid"):
        if (pid := root.number(path)) is not None:
            places["slurmd"] = f"/proc/{pid}/limits"
            break
    for process, path in places.items():
        lines = (text := root.text(path) or "").splitlines()
        for name, soft, hard, number in parse_limits(text):
            seen = Seen(path, " ".join(lines[number - 1].split()), number)
            yield TaskLimit(None, process, name, soft, hard, seen)


def collect(root: Root) -> Iterator[HostTask]:
    """One row, where /proc/self/status can be read."""
    text = root.text("/proc/self/status")
    if text is None:
        return
    properties = fields(text)
    variables = environment(root)
    kept = root.asked("task", lambda: _ask(bool(root.deep))) or {}
    allowed = properties.get("Cpus_allowed_list")
    seen = Seen("/proc/self/status", f"CapEff: {properties.get('CapEff', '?')} Cpus_allowed_list: {allowed or '?'}")
    yield HostTask(
        host=None, uid=_uid(properties), ipc_lock=_may_lock(root, properties), cpus=len(cpu_set(allowed)) or None,
        cpu_list=allowed, memory_nodes=properties.get("Mems_allowed_list"), context=context(variables),
        nodes=_count(variables.get("SLURM_JOB_NUM_NODES") or variables.get("SLURM_NNODES")), gpus=_given(variables),
        locked=kept.get("locked"), ref=seen,
    )  # fmt: skip


def user(root: Root) -> int | None:
    """The effective user of the task."""
    return _uid(fields(root.text("/proc/self/status") or ""))


def _uid(said: Mapping[str, str]) -> int | None:
    """The effective user."""
    ids = said.get("Uid", "").split()
    return int(ids[1]) if len(ids) > 1 and ids[1].isdecimal() else None


def _may_lock(root: Root, said: Mapping[str, str]) -> int | None:
    """The capability counts in the first user namespace only: the kernel asks there."""
    with suppress(ValueError):
        able = int(said.get("CapEff", ""), 16) >> IPC_LOCK & 1
        namespace = (root.value("/proc/self/uid_map") or "0 0 4294967295").split()
        return int(bool(able) and namespace == ["0", "0", "4294967295"])
    return None


def context(variables: Mapping[str, str]) -> str | None:
    """Which part of a job this is; None outside of one."""
    script = variables.get("SLURM_SCRIPT_CONTEXT", "")
    if script:
        return {"prolog_slurmd": "prolog", "prolog_task": "task_prolog", "epilog_slurmd": "epilog"}.get(script, script)
    if "SLURM_PROCID" in variables:
        return "task"
    return "prolog" if "SLURM_JOB_ID" in variables else None


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 9 else None


def _given(variables: Mapping[str, str]) -> int | None:
    """How many GPUs the task is given."""
    listed = variables.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    return len([part for part in listed.split(",") if part.strip() and part.strip() not in ("-1", "NoDevFiles")])
