"""Shares one collection run between callers that start together, such as the TaskProlog of all ranks of a job.

The first caller looks and keeps the answers in the state folder for some seconds; the others wait for its lock and take them.
What belongs to a process (its environment, limits, software and grants) is asked by each. The folder is believed only where
nobody but the caller can write there, so ranks share by user.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.node.runtime import state
from nccl_doctor.node.runtime.root import Root

OWN = frozenset(("environment", "host", "scheduler", "software", "ssh", "deep"))
FRESH = 10.0  # seconds for which a look is shared
_GRANTS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


class Answers(NamedTuple):
    """What collectors said: rows as `answer` yields them, and how each fared."""

    look: str  # names the look: all who share it get the same
    rows: dict[str, list[Any]]
    ended: dict[str, dict[str, Any]]


def ask(
    folder: Path,
    root: Root,
    names: Sequence[str],
    seconds: float,
    look: Callable[[Sequence[str], float], Answers],
) -> Answers:
    """What these collectors say, from a look of another caller where one is fresh; otherwise kept for the others.

    Waits at most half of `seconds` for another caller, then looks by itself.
    """
    started = time.monotonic()
    key = _key(root, names)
    common = [name for name in names if name not in OWN]
    with state.opened(folder / "looks", seconds / 2) as kept:
        found = _fresh(kept.read("look"), key, common)
        if found is None:
            answers = look(names, started + seconds - time.monotonic())
            kept.write("look", {
                "key": key, "at": _uptime(), "look": answers.look,
                "rows": {name: answers.rows.get(name, []) for name in common},
                "ended": {name: answers.ended[name] for name in common if name in answers.ended},
            })  # fmt: skip
            return answers
    own = look([name for name in names if name in OWN], started + seconds - time.monotonic())
    return own._replace(look=found["look"], rows={**found["rows"], **own.rows}, ended={**found["ended"], **own.ended})


def _fresh(kept: dict[str, Any], key: str, common: Sequence[str]) -> dict[str, Any] | None:
    at, rows, ended = kept.get("at"), kept.get("rows"), kept.get("ended")
    if kept.get("key") != key or not isinstance(at, float) or not 0 <= _uptime() - at <= FRESH:
        return None
    if not isinstance(rows, dict) or not isinstance(ended, dict) or not isinstance(kept.get("look"), str):
        return None
    return kept if set(rows) == set(common) else None


def _uptime() -> float:
    """Seconds since the boot: a clock that is set does not make an old look fresh."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _key(root: Root, names: Sequence[str]) -> str:
    """Callers with the same key see the same node: boot, user, mounts, job and granted devices."""
    seen = [root.value("/proc/sys/kernel/random/boot_id"), os.geteuid(), root.deep, *names]
    for space in ("mnt", "net", "cgroup"):
        with suppress(OSError):
            seen.append(os.readlink(f"/proc/self/ns/{space}"))
    seen += [
        f"{name}={value}" for name, value in sorted(os.environ.items())
        if name in _GRANTS or name.endswith(("_DEVICES", "_GPUS", "_DEVICE_ORDINAL"))
    ]  # fmt: skip
    return hashlib.blake2b(repr(seen).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
