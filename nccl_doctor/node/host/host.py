"""The host: what it grants a task, how its kernel is set, and where its GPUs sit."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import (
    CgroupEvent,
    CgroupLimit,
    CpuGovernor,
    GpuPlace,
    HostLoad,
    HostMachine,
    HostMemory,
    HostName,
    HostPart,
    HostProcess,
    HostTask,
    HugePages,
    KernelSetting,
    NodeClock,
    NodeCounter,
    NodeInterface,
    NodeRoute,
    SharedMemory,
    TaskLimit,
)
from nccl_doctor.node.host import cgroup, clock, gpu_locality, memory, stuck_processes, task
from nccl_doctor.node.network import firewall, routes
from nccl_doctor.node.runtime.root import Absent, Root

TABLES = (
    CgroupEvent, CgroupLimit, CpuGovernor, GpuPlace, HostLoad, HostMachine, HostMemory, HostName, HostTask, HugePages,
    KernelSetting, NodeClock, NodeCounter, NodeInterface, NodeRoute, SharedMemory, TaskLimit, HostPart, HostProcess,
)  # fmt: skip
_SYSCTLS = (
    "kernel.numa_balancing", "kernel.yama.ptrace_scope", "kernel.core_pattern", "kernel.perf_event_paranoid",
    "vm.zone_reclaim_mode", "vm.overcommit_memory", "net.core.somaxconn", "net.core.rmem_max", "net.core.wmem_max",
    "net.ipv4.ip_local_port_range", "fs.file-max",
)  # fmt: skip
_FILES = {
    "cmdline": "/proc/cmdline",
    "uptime": "/proc/uptime",
    "boot_id": "/proc/sys/kernel/random/boot_id",
    "release": "/proc/sys/kernel/osrelease",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
}
_HUGE = "/sys/kernel/mm/transparent_hugepage"
_GUESTS = re.compile(
    r"Virtual Machine|KVM|QEMU|Google Compute Engine|VMware|HVM domU|VirtualBox|Bochs|OpenStack", re.IGNORECASE
)
_HYPERVISORS = ("QEMU", "Xen", "VMware, Inc.", "innotek GmbH", "Google", "Alibaba Cloud", "OpenStack Foundation")
_RUNTIMES = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc", "containerd": "container"}


def collect(root: Root) -> Iterator[Any]:
    """Rows of the tables above, those that cost nothing first."""
    yield machine(root)
    yield from task.collect(root)
    yield from task.read_limits(root)
    yield from cgroup.collect(root)
    yield from memory.collect(root)
    yield from settings(root)
    yield from governors(root)
    yield from load(root)
    yield drives(root)
    yield from gpu_locality.collect(root)
    yield from routes.collect(root)
    yield from clock.collect(root)
    yield from stuck_processes.collect(root)
    yield from routes.read_name(root)
    with suppress(Absent):
        yield from firewall.collect(root)


def machine(root: Root) -> HostMachine:
    """What kind of machine it is."""
    vendor, product = root.value("/sys/class/dmi/id/sys_vendor"), root.value("/sys/class/dmi/id/product_name")
    devices = [name for name in root.names("/sys/class/infiniband") if not name.startswith(".")]
    efa = int(root.exists("/sys/module/efa"))
    inside = container(root)
    seen = Seen("/sys/class/dmi/id", f"{vendor or '?'}: {product or '?'}{f', inside {inside}' if inside else ''}")
    return HostMachine(None, vendor, product, virtual(root, vendor, product), inside, len(devices), efa, seen)


def virtual(root: Root, vendor: str | None, product: str | None) -> int | None:
    """1 in a guest. A machine of EC2 is one unless its type ends in `.metal`."""
    if vendor is None and product is None:
        return 1 if root.exists("/sys/hypervisor/type") else None
    if vendor == "Amazon EC2":
        return int(not (product or "").endswith(".metal"))
    return int(vendor in _HYPERVISORS or bool(_GUESTS.search(product or "")) or root.exists("/sys/hypervisor/type"))


def container(root: Root) -> str | None:
    """Which runtime made the container that the task is in; None on the host itself."""
    if root.exists("/.dockerenv"):
        return "docker"
    if root.exists("/run/.containerenv"):
        return "podman"
    groups = root.text("/proc/1/cgroup") or ""
    return next((name for word, name in _RUNTIMES.items() if f"/{word}" in groups or f"-{word}" in groups), None)


def settings(root: Root) -> Iterator[KernelSetting]:
    """Settings of the kernel by their usual names."""
    paths = {name: f"/proc/sys/{name.replace('.', '/')}" for name in _SYSCTLS} | _FILES
    for name, path in paths.items():
        if (value := root.value(path)) is not None:
            yield KernelSetting(None, name, " ".join(value.split()), Seen(path, value))
    for name, path in (
        ("transparent_hugepage", f"{_HUGE}/enabled"),
        ("transparent_hugepage.defrag", f"{_HUGE}/defrag"),
    ):
        value = root.value(path)
        chosen = re.search(r"\[([\w+]+)\]", value or "")
        if value is not None and chosen is not None:
            yield KernelSetting(None, name, chosen[1], Seen(path, value))


def governors(root: Root) -> Iterator[CpuGovernor]:
    """A row for each pair of governor and preference; none in most virtual machines."""
    base = "/sys/devices/system/cpu/cpufreq"
    rows: Counter[tuple[str, str | None]] = Counter()
    place: dict[tuple[str, str | None], str] = {}
    for policy in root.names(base):
        if re.fullmatch(r"policy\d{1,5}", policy) and (governor := root.value(f"{base}/{policy}/scaling_governor")):
            preference = None
            if governor == "powersave":  # intel_pstate in active mode knows two governors and many preferences
                preference = root.value(f"{base}/{policy}/energy_performance_preference")
            rows[governor, preference] += 1
            place.setdefault((governor, preference), f"{base}/{policy}/scaling_governor")
    for (governor, preference), count in rows.items():
        seen = Seen(place[governor, preference], f"{governor}{f' ({preference})' if preference else ''} on {count}")
        yield CpuGovernor(None, governor, preference, count, seen)


def load(root: Root) -> Iterator[HostLoad]:
    """How many processes want to run, and how many can."""
    text = root.value("/proc/loadavg")
    cpus = len(task.cpu_set(root.value("/sys/devices/system/cpu/online"))) or None
    with suppress(ValueError, IndexError):
        words = (text or "").split()
        yield HostLoad(None, float(words[0]), float(words[1]), cpus, Seen("/proc/loadavg", text or ""))


def drives(root: Root) -> HostPart:
    """NVMe drives; what is behind a controller of another kind is none."""
    rows = [name for name in root.names("/sys/class/nvme") if re.fullmatch(r"nvme\d{1,4}", name)]
    return HostPart(None, "nvme", len(rows), Seen("/sys/class/nvme", " ".join(rows) or "no NVMe drive"))
