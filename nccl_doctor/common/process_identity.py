"""Tells one process from another that later got the same number."""

from pathlib import Path


def boot_id() -> str | None:
    """The identifier of the current boot; None outside of Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot (field 22 of /proc/PID/stat); None where it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None
