"""The clock of a node: what time it is there, when it booted, and whether it is synchronised."""

import ctypes
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import NodeClock
from nccl_doctor.node.runtime.root import Root, fields

_UNSYNCHRONISED = 0x0040  # STA_UNSYNC
_NANOSECONDS = 0x2000  # STA_NANO: the offset is in ns, else in µs


class Times(NamedTuple):
    """Seconds since the epoch; None where the tree does not say."""

    now: float | None
    boot: float | None


class _Timex(ctypes.Structure):
    """The head of `struct timex` (adjtimex(2)); the rest is room for what the kernel writes."""

    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_byte * 256),
    ]  # fmt: skip


def times(root: Root) -> Times:
    """When the node was read and when it booted."""
    kept = root.asked("clock", _ask)
    if isinstance(kept, dict) and isinstance(kept.get("now"), (int, float)):
        boot = kept.get("boot")
        return Times(float(kept["now"]), float(boot) if isinstance(boot, (int, float)) else None)
    uptime = (root.value("/proc/uptime") or "").split()
    started = re.search(r"^btime (\d{1,12})$", root.text("/proc/stat") or "", re.MULTILINE)
    if started is None:
        return Times(None, None)
    boot = float(started[1])
    with suppress(ValueError, IndexError):
        return Times(boot + float(uptime[0]), boot)
    return Times(None, boot)


def _ask() -> dict[str, Any]:
    now = time.time()
    return {"now": now, "boot": now - time.clock_gettime(time.CLOCK_BOOTTIME), **_kernel()}


def _kernel() -> dict[str, Any]:
    """What adjtimex says; empty where it is not allowed."""
    buffer = _Timex()
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer)) >= 0:
            unit = 1e-9 if buffer.status & _NANOSECONDS else 1e-6
            return {"synchronised": int(not buffer.status & _UNSYNCHRONISED), "offset": buffer.offset * unit}
    return {}


def collect(root: Root) -> Iterator[NodeClock]:
    """One row. chronyd is asked first: where it does not write the hardware clock, the kernel calls itself unsynchronised."""
    now, boot = times(root)
    kept = root.asked("clock", _ask) or {}
    seen = Seen("adjtimex", " ".join(f"{name}={kept[name]}" for name in ("synchronised", "offset") if name in kept))
    synchronised, offset = kept.get("synchronised"), kept.get("offset")
    source = "kernel" if synchronised is not None else None
    if not root.live or any(root.exists(path) for path in ("/run/chrony", "/var/run/chrony")):
        with suppress(TimeoutError):
            out = root.run("chronyc", "-n", "tracking", seconds=1.0)
            if out is not None and out.status == 0:
                synchronised, offset = tracking(out.text)
                source, seen = "chrony", Seen("chronyc -n tracking", out.text.strip())
    if source is None:
        with suppress(TimeoutError):
            out = root.run("timedatectl", "show", "-p", "NTPSynchronized", "--value", seconds=1.0)
            if out is not None and out.text.strip() in ("yes", "no"):
                synchronised, source = int(out.text.strip() == "yes"), "systemd"
                seen = Seen("timedatectl show -p NTPSynchronized", out.text.strip())
    if now is not None or source is not None:
        yield NodeClock(None, now, boot, synchronised, offset, source, seen)


def tracking(text: str) -> tuple[int | None, float | None]:
    """Whether chronyd has a reference, and how far the clock is from it in seconds (behind it is negative)."""
    properties = fields(text)
    leap = properties.get("Leap status")
    away = re.match(r"(\d+\.\d+) seconds (slow|fast)", properties.get("System time", ""))
    offset = float(away[1]) * (-1 if away[2] == "slow" else 1) if away else None
    return (int(leap != "Not synchronised") if leap else None), offset
