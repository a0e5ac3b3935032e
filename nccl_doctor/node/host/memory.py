"""Memory of a node: free, swap, huge pages, shared memory, and what the kernel had to do when it ran out."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import HostMemory, HugePages, NodeCounter, SharedMemory
from nccl_doctor.node.runtime.root import Root, fields

SHM = "/dev/shm"
_HUGE = "/sys/kernel/mm/hugepages"
_EDAC = "/sys/devices/system/edac/mc"


def kilobytes(text: str | None) -> int | None:
    """`1024 kB` in bytes."""
    match = re.fullmatch(r"(\d{1,15}) kB", text or "")
    return int(match[1]) * 1024 if match else None


def collect(root: Root) -> Iterator[HostMemory | HugePages | SharedMemory | NodeCounter]:
    properties = fields(root.text("/proc/meminfo") or "")
    total = kilobytes(properties.get("MemTotal"))
    if total is not None:
        available, swap, free = (kilobytes(properties.get(name)) for name in ("MemAvailable", "SwapTotal", "SwapFree"))
        shown = " ".join(
            f"{name}: {properties[name]}"
            for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
            if name in properties
        )
        yield HostMemory(None, total, available, swap, free, Seen("/proc/meminfo", shown))
    yield from _huge(root)
    yield from _shared(root)
    yield from _counters(root)


def _huge(root: Root) -> Iterator[HugePages]:
    for name in root.names(_HUGE):
        match = re.fullmatch(r"hugepages-(\d{1,12})kB", name)
        total = root.number(f"{_HUGE}/{name}/nr_hugepages") if match else None
        if match is not None and total is not None:
            free = root.number(f"{_HUGE}/{name}/free_hugepages")
            seen = Seen(f"{_HUGE}/{name}", f"nr_hugepages={total} free_hugepages={free}")
            yield HugePages(None, int(match[1]) * 1024, total, free, seen)


def _shared(root: Root) -> Iterator[SharedMemory]:
    kept = root.asked("shm", _ask)
    if not isinstance(kept, dict) or kept.get("size") is None:
        return
    size, free = kept["size"], kept.get("free")
    seen = Seen(SHM, f"size={size} free={free} nccl files={kept.get('files', 0)}")
    yield SharedMemory(
        None, size, free, kept.get("files", 0), kept.get("bytes", 0), kept.get("writable"), seen
    )  # fmt: skip


def _ask() -> dict[str, Any]:
    try:
        room = os.statvfs(SHM)
    except OSError:
        return {}
    files = 0
    size = 0
    with suppress(OSError), os.scandir(SHM) as entries:
        for entry in entries:
            if entry.name.startswith("nccl-"):
                files += 1
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return {
        "size": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize, "files": files, "bytes": size,
        "writable": int(os.access(SHM, os.W_OK)),
    }  # fmt: skip


def _counters(root: Root) -> Iterator[NodeCounter]:
    match = re.search(r"^oom_kill (\d{1,18})$", root.text("/proc/vmstat") or "", re.MULTILINE)
    if match is not None:
        yield _counter("memory", "oom_kill", int(match[1]), "/proc/vmstat", match[0])
    for name in root.names(_EDAC):
        if re.fullmatch(r"mc\d{1,4}", name):
            for counter in ("ue_count", "ce_count"):
                value = root.number(path := f"{_EDAC}/{name}/{counter}")
                if value is not None:
                    yield _counter(name, counter, value, path, str(value))


def _counter(device: str, name: str, value: int, path: str, text: str) -> NodeCounter:
    return NodeCounter(None, device, name, value, None, Seen(path, text))
