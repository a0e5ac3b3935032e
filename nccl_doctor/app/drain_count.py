"""Counts the nodes that were drained for one rule by a file in a folder that all nodes share, where no Slurm can be asked.

    /shared/nccl-doctor/HOST101.drained
    1763777000 node01
    1763777030 node02

The file can only hold a drain back, never cause one. The folder may hang: call `reserve` in a child with a deadline.
"""

import fcntl
import os
import re
import stat
import time

from nccl_doctor.common.trusted import distrust

_MOST = 1 << 20  # bytes that are read
_WAIT = 1.0  # seconds for the lock
_LINE = re.compile(r"(\d{1,12}) (\S{1,255})")


def reserve(folder: str, rule: str, node: str, most: int, window: float, now: float) -> int:
    """How many other nodes were drained for this rule within `window`; adds this node where they are fewer than `most`.

    Two nodes that ask at once do not both get the last place. Raises OSError where the file cannot be locked or used, or where
    users could write there, who would then keep broken nodes in service.
    """
    if why := distrust(folder):
        raise OSError(why)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(f"{folder}/{rule}.drained", flags, 0o600)
    try:
        found = os.fstat(handle)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_nlink != 1
            or found.st_uid != os.geteuid()
            or found.st_mode & 0o022
        ):
            raise OSError(f"{rule}.drained is not a file of ours alone")
        _lock(handle)
        text = os.pread(handle, _MOST, 0).decode("utf-8", "replace")
        rows = {match[2]: int(match[1]) for match in map(_LINE.fullmatch, text.splitlines()) if match}
        rows = {name: at for name, at in rows.items() if now - window <= at <= now + window}
        others = len(rows.keys() - {node})
        if others < most:
            rows[node] = int(now)
            os.ftruncate(handle, 0)
            os.pwrite(handle, "".join(f"{at} {name}\n" for name, at in rows.items()).encode(), 0)
        return others
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    until = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)
