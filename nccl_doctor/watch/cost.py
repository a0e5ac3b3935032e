"""CPU time of the screen and of the children that sample for it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
INTERVAL = 2.0  # seconds between two measurements


class Cost:
    """CPU time since the last measurement, in percent of one core."""

    def __init__(self, children: Callable[[], list[int]]) -> None:
        self._children = children
        self._before: dict[int, float] = {}
        self._at = time.monotonic()
        self._own = time.process_time()
        self.percent = 0.0

    def measure(self) -> None:
        now = time.monotonic()
        if now - self._at < INTERVAL:
            return
        own = time.process_time()
        used = {pid: seconds for pid in self._children() if (seconds := _read_cpu_seconds(pid)) is not None}
        grown = sum(max(seconds - self._before.get(pid, seconds), 0.0) for pid, seconds in used.items())
        self.percent = 100 * (own - self._own + grown) / (now - self._at)
        self._at, self._own, self._before = now, own, used


def _read_cpu_seconds(pid: int) -> float | None:
    """Returns CPU seconds of a process and of its children that have ended (proc_pid_stat(5)); None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / TICK
    except (OSError, ValueError, IndexError):
        return None
