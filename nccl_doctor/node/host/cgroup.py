"""Limits of the control groups above this task, version 1 and 2."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import CgroupEvent, CgroupLimit
from nccl_doctor.node.runtime.root import Root

BASE = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63 for "no limit"


class _Tight(NamedTuple):
    value: float
    used: float | None
    path: str
    file: str
    text: str


def paths(text: str) -> dict[str, str]:
    """Controller -> path from /proc/<pid>/cgroup; the controller of version 2 is empty."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                rows[controller] = os.path.normpath(parts[2])
    return rows


def _folders(root: Root, base: str, path: str) -> list[str]:
    """The folder of a group and those above it. Inside a container the path may not exist: then the base."""
    if not root.exists(base + path):
        path = "/"
    rows = []
    while path not in ("/", ""):
        rows.append(base + path)
        path = os.path.dirname(path)
    return [*rows, base]


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() and len(text) < 25 else None


def collect(root: Root) -> Iterator[CgroupLimit | CgroupEvent]:
    """At most one row a limit: the tightest of all groups above."""
    text = root.text("/proc/self/cgroup")
    if text is None:
        return
    own = paths(text)
    unified = f"{BASE}/unified" if root.exists(f"{BASE}/unified") else BASE
    tight: dict[str, _Tight] = {}
    if "" in own:
        folders = _folders(root, unified, own[""])
        for folder in folders:
            _two(root, folder, tight)
        yield from _kills(root, folders[0], f"{folders[0]}/memory.events")
    for name in ("memory", "cpu", "pids"):
        if name in own:
            folders = _folders(root, f"{BASE}/{name}", own[name])
            for folder in folders:
                _one(root, name, folder, tight)
            if name == "memory":
                yield from _kills(root, folders[0], f"{folders[0]}/memory.oom_control")
    for name, limit in tight.items():
        seen = Seen(limit.file, limit.text)
        yield CgroupLimit(None, name, limit.value, limit.used, limit.path, seen)


def _keep(tight: dict[str, _Tight], name: str, limit: _Tight) -> None:
    if name not in tight or limit.value < tight[name].value:
        tight[name] = limit


def _two(root: Root, folder: str, tight: dict[str, _Tight]) -> None:
    for name in ("memory", "pids"):
        file = f"{folder}/{name}.max"
        if (value := _number(root.value(file))) is not None:
            used = _number(root.value(f"{folder}/{name}.current"))
            _keep(tight, name, _Tight(value, used, folder, file, f"{value:.0f}"))
    quota = (root.value(f"{folder}/cpu.max") or "").split()
    if len(quota) == 2:
        _quota(quota[0], quota[1], folder, f"{folder}/cpu.max", tight)


def _one(root: Root, name: str, folder: str, tight: dict[str, _Tight]) -> None:
    if name == "cpu":
        quota, period = root.value(f"{folder}/cpu.cfs_quota_us"), root.value(f"{folder}/cpu.cfs_period_us")
        _quota(quota or "", period or "", folder, f"{folder}/cpu.cfs_quota_us", tight)
        return
    limit, use = ("limit_in_bytes", "usage_in_bytes") if name == "memory" else ("max", "current")
    file = f"{folder}/{name}.{limit}"
    value = _number(root.value(file))
    if value is not None and value < _UNLIMITED:
        used = _number(root.value(f"{folder}/{name}.{use}"))
        _keep(tight, name, _Tight(value, used, folder, file, f"{value:.0f}"))


def _quota(quota: str, period: str, folder: str, file: str, tight: dict[str, _Tight]) -> None:
    granted, of = _number(quota), _number(period)
    if granted is not None and of:
        _keep(tight, "cpu", _Tight(granted / of, None, folder, file, f"{quota} {period}"))


def _kills(root: Root, folder: str, file: str) -> Iterator[CgroupEvent]:
    for line in (root.text(file) or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdecimal():
            yield CgroupEvent(None, "oom_kill", int(count), folder, Seen(file, line))
