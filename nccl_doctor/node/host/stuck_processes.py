"""Processes of the NVIDIA driver's tools that hang in the kernel, and processes that nobody waited for.

Name and state prove nothing: every user can give a program the name `nvidia-smi` and let it wait in state D (vfork, a FUSE mount).
The stack does, because its frames name the driver:

    [<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]
    [<0>] nvidia_ioctl+0x71/0x880 [nvidia]
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import HostProcess
from nccl_doctor.node.runtime.root import Root

MOST = 200  # rows
_SECONDS = 0.25  # for going through /proc
_PAUSE = 0.2
_DRIVER = re.compile(r"\[((?:nvidia|mlx|ib_|rdma|irdma|bnxt|efa|amdgpu|amdkfd|gdrdrv)\w*)\]$", re.MULTILINE)
_TOOLS = re.compile(r"nvidia|nv-|nvsm|dcgm|mlnx|mst|ibv?_|fi_")


class Process(NamedTuple):
    """One line of /proc/PID/stat, as far as it is needed."""

    pid: int
    name: str
    state: str
    threads: int
    started: int  # clock ticks after boot


def parse(text: str) -> Process | None:
    """A name may hold blanks and brackets, so the last bracket ends it."""
    head, _, rest = text.rpartition(")")
    pid, _, name = head.partition(" (")
    words = rest.split()
    if len(words) < 20 or not pid.isdecimal():
        return None
    try:
        return Process(int(pid[:9]), name, words[0], int(words[17]), int(words[19]))
    except ValueError:
        return None


def matters(found: Process) -> bool:
    """A zombie, or one of the tools of GPUs and network cards that waits for the kernel."""
    return found.state == "Z" or (found.state == "D" and _TOOLS.match(found.name) is not None)


def driver_of(stack: str | None) -> str | None:
    """The driver of GPUs or network cards whose code is on a stack, the innermost one; None where there is none."""
    found = _DRIVER.search(stack or "")
    return found[1] if found else None


def _ask() -> dict[str, Any]:
    """Nothing is kept of processes that do not matter."""
    ticks = os.sysconf("SC_CLK_TCK")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    until = time.monotonic() + _SECONDS
    rows: list[list[Any]] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        if len(rows) >= MOST or time.monotonic() > until:
            break
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            parsed = parse(file.read(4096).decode("utf-8", "replace"))
            if parsed is not None and matters(parsed):
                rows.append(
                    [parsed.pid, parsed.name, parsed.state, round(now - parsed.started / ticks, 1), parsed.threads]
                )
    if any(state == "D" for _, _, state, _, _ in rows):
        time.sleep(_PAUSE)
    return {"rows": [[*row, _driver(row[0])] for row in rows if row[2] != "D" or _still(row[0])]}


def _driver(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stack", "rb") as file:
            return driver_of(file.read(1 << 16).decode("utf-8", "replace"))
    except OSError:
        return None


def _still(pid: int) -> bool:
    """Whether a process waits for the kernel after a while too; for a moment every process does."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parsed = parse(file.read(4096).decode("utf-8", "replace"))
    except OSError:
        return False
    return parsed is not None and parsed.state == "D"


def collect(root: Root) -> Iterator[HostProcess]:
    kept = root.asked("processes", _ask) or {}
    rows = kept.get("rows")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, list) or list(map(type, row[:5])) != [int, str, str, float, int] or len(row) != 6:
            continue
        pid, name, state, age, threads, driver = row
        driver = driver if isinstance(driver, str) else None
        seen = Seen(f"/proc/{pid}/stat", f"{pid} ({name}) {state}, {threads} threads, {age:.0f} s old")
        yield HostProcess(None, pid, name, state, age, threads, driver, seen)
