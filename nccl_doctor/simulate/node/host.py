"""The host of an invented node, and what can be wrong with it."""

import posixpath
from typing import Any

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, fault, part

NOW = 1_790_000_000.0  # seconds since the epoch at which invented nodes are looked at
UPTIME = 345_600.12
BOOT = NOW - UPTIME
GROUP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
JOB = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711"
BARE = ("dgx-h100", "b200-roce", "l40s-pcie")
KIB = 1024
GIB = 1 << 30


def limit(tree: Tree, name: str, soft: int | str, hard: int | str | None = None) -> None:
    """Change one line of /proc/self/limits."""
    lines = tree.files["/proc/self/limits"].splitlines()
    for number, line in enumerate(lines):
        if line.startswith(name):
            unit = line.split()[-1]
            lines[number] = f"{name:<26}{soft!s:<21}{soft if hard is None else hard!s:<21}{unit}"
    tree.put("/proc/self/limits", "\n".join(lines))


def say(tree: Tree, asked: str, **values: Any) -> None:
    """Change the answer of a library."""
    tree.extra.setdefault(asked, {}).update(values)


def replace(tree: Tree, path: str, old: str, new: str) -> None:
    assert old in tree.files[path], f"{path} holds no {old}"
    tree.put(path, tree.files[path].replace(old, new))


def task(tree: Tree, cpus: str, gpus: str) -> None:
    """Give the task these CPUs and GPUs."""
    lines = tree.files["/proc/self/status"].splitlines()
    told = f"Cpus_allowed_list:\t{cpus}"
    tree.put("/proc/self/status", "\n".join(told if x.startswith("Cpus_allowed") else x for x in lines))
    environ = {**tree.extra["task"]["environ"], "CUDA_VISIBLE_DEVICES": gpus}
    say(tree, "task", environ=environ)


def gpus(tree: Tree, machine: Machine) -> list[str]:
    """Folders of the GPUs below /sys/devices, in the order of their addresses."""
    base = "/sys/bus/pci/devices"
    folders = []
    for path in sorted(tree.links):
        if posixpath.dirname(path) == base:
            folder = posixpath.normpath(posixpath.join(base, tree.links[path]))
            shown = tree.files.get(f"{folder}/vendor", "").strip(), tree.files.get(f"{folder}/class", "")[:6]
            if shown in (("0x10de", "0x0302"), ("0x10de", "0x0300")):
                folders.append(folder)
    return folders


def numa(tree: Tree, machine: Machine) -> None:
    """Nodes of memory and their CPUs, one a socket."""
    each = machine.cores // machine.sockets
    for node in range(machine.sockets):
        base = f"/sys/devices/system/node/node{node}"
        tree.put(f"{base}/cpulist", f"{node * each}-{(node + 1) * each - 1}")
        tree.put(f"{base}/distance", " ".join("10" if other == node else "21" for other in range(machine.sockets)))


@part
def limits(tree: Tree, machine: Machine) -> None:
    rows = [
        ("Max cpu time", "unlimited", "unlimited", "seconds"), ("Max stack size", 8388608, "unlimited", "bytes"),
        ("Max core file size", 0, "unlimited", "bytes"), ("Max processes", 4125000, 4125000, "processes"),
        ("Max open files", 131072, 1048576, "files"), ("Max locked memory", "unlimited", "unlimited", "bytes"),
        ("Max address space", "unlimited", "unlimited", "bytes"),
    ]  # fmt: skip
    head = f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units"
    body = [f"{name:<26}{soft!s:<21}{hard!s:<21}{unit}" for name, soft, hard, unit in rows]
    tree.put("/proc/self/limits", "\n".join([head, *body]))
    tree.put("/proc/self/uid_map", "         0          0 4294967295")
    tree.put(
        "/proc/self/status",
        f"Name:\tpython3\nState:\tR (running)\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
        f"Cpus_allowed_list:\t0-{machine.cores - 1}\nMems_allowed_list:\t0-{machine.sockets - 1}",
    )
    visible = ",".join(str(index) for index in range(machine.gpus))
    environ = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0"}
    say(tree, "task", environ=environ, uid=1000)


@part
def groups(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/self/cgroup", f"0::{GROUP}")
    tree.put(f"/sys/fs/cgroup{GROUP}/memory.max", "max")
    tree.put(f"/sys/fs/cgroup{GROUP}/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0")
    tree.put(f"{JOB}/memory.max", machine.ram * GIB * 97 // 100)
    tree.put(f"{JOB}/memory.current", 5 * GIB)
    tree.put(f"{JOB}/cpu.max", "max 100000")
    tree.put(f"{JOB}/pids.max", "max")


@part
def memory(tree: Tree, machine: Machine) -> None:
    total = machine.ram * GIB // KIB
    tree.put(
        "/proc/meminfo",
        f"MemTotal:       {total} kB\nMemFree:        {total * 8 // 10} kB\nMemAvailable:   {total * 9 // 10} kB\n"
        "SwapTotal:             0 kB\nSwapFree:              0 kB\nHugepagesize:       2048 kB",
    )
    efa = any(nic.kind == "efa" for nic in machine.nics)
    for size, count in ((2048, 5128 if efa else 0), (1048576, 0)):
        tree.put(f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages", count)
        tree.put(f"/sys/kernel/mm/hugepages/hugepages-{size}kB/free_hugepages", count)
    if efa:
        tree.put("/sys/module/efa/refcnt", 0)
    say(tree, "shm", size=machine.ram * GIB // 2, free=machine.ram * GIB // 2 - 4096, files=0, bytes=0, writable=1)
    tree.put("/proc/vmstat", "nr_free_pages 123456789\noom_kill 0\nnuma_pages_migrated 0")
    if machine.name in BARE:
        for controller in range(machine.sockets * 2):
            for counter in ("ce_count", "ue_count"):
                tree.put(f"/sys/devices/system/edac/mc/mc{controller}/{counter}", 0)


@part
def kernel(tree: Tree, machine: Machine) -> None:
    settings: dict[str, str | int] = {
        "kernel/numa_balancing": 0, "kernel/yama/ptrace_scope": 0, "kernel/core_pattern": "core", "vm/zone_reclaim_mode": 0,
        "vm/overcommit_memory": 0, "net/core/somaxconn": 4096, "net/core/rmem_max": 16777216, "net/core/wmem_max": 16777216,
        "net/ipv4/ip_local_port_range": "32768\t60999", "fs/file-max": 9223372036854775807, "kernel/perf_event_paranoid": 2,
        "net/ipv4/conf/all/rp_filter": 0,
    }  # fmt: skip
    for name, value in settings.items():
        tree.put(f"/proc/sys/{name}", value)
    bare = machine.name in BARE
    tree.put(
        "/proc/cmdline",
        f"BOOT_IMAGE=/boot/vmlinuz-5.15.0-105-generic root=/dev/nvme0n1p2 ro{' iommu=pt' if bare else ''} quiet",
    )
    tree.put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
    tree.put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    tree.put("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never")
    tree.put("/sys/devices/system/cpu/online", f"0-{machine.cores - 1}")
    tree.put("/proc/loadavg", "0.42 0.51 0.47 2/3124 815234")
    tree.put("/proc/stat", f"cpu  1 2 3 4\nbtime {BOOT:.0f}\nprocesses 815234")
    tree.put("/proc/1/cgroup", "0::/init.scope")
    if bare:
        for policy in range(16):
            tree.put(f"/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", "performance")
    numa(tree, machine)


@part
def names(tree: Tree, machine: Machine) -> None:
    say(tree, "clock", now=NOW, boot=BOOT, synchronised=1, offset=0.000012)
    say(tree, "hostname", name=tree.host, addresses=["10.1.0.11"], seconds=0.0008)
    tree.put("/etc/hosts", f"127.0.0.1 localhost\n10.1.0.11 {tree.host}")
    tree.put("/etc/resolv.conf", "nameserver 10.1.0.2\nsearch cluster.internal")
    count = max((nic.count for nic in machine.nics if nic.kind == "ethernet"), default=1)
    heads = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
    routes = ["eth0\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0"]
    routes += [f"eth{n}\t00{n:02X}010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0" for n in range(count)]
    tree.put("/proc/net/route", "\n".join([heads, *routes]))
    interface(tree, "lo", *(f"eth{n}" for n in range(count)))
    for n in range(count):
        tree.put(f"/proc/sys/net/ipv4/conf/eth{n}/rp_filter", 0)


def interface(tree: Tree, *added: str) -> None:
    """Names in /proc/net/dev."""
    head = (
        "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame|bytes"
    )
    text = tree.files.get("/proc/net/dev", head).rstrip("\n")
    tree.put(
        "/proc/net/dev", "\n".join([text, *(f"{name:>6}: 1234 12 0 0 0 0 0 0 1234 12 0 0 0 0 0 0" for name in added)])
    )


@fault("memlock-limit-in-task", "p5", "nd-h100-v5", "dgx-h100", "b200-roce")
def _memlock(tree: Tree, machine: Machine) -> None:
    limit(tree, "Max locked memory", 65536)


@fault("nofile-hard-limit-small")
def _nofile(tree: Tree, machine: Machine) -> None:
    limit(tree, "Max open files", 1024, 4096)


@fault("nproc-limit-small")
def _nproc(tree: Tree, machine: Machine) -> None:
    limit(tree, "Max processes", 1024)


@fault("stack-unlimited")
def _stack(tree: Tree, machine: Machine) -> None:
    limit(tree, "Max stack size", "unlimited")


@fault("dev-shm-small")
def _shm_small(tree: Tree, machine: Machine) -> None:
    say(tree, "shm", size=64 << 20, free=64 << 20)


@fault("node-dev-shm-full")
def _shm_full(tree: Tree, machine: Machine) -> None:
    size = tree.extra["shm"]["size"]
    say(tree, "shm", free=32 << 20, files=812, bytes=size - (40 << 20))


@fault("cgroup-memory-small")
def _cgroup(tree: Tree, machine: Machine) -> None:
    tree.put(f"{JOB}/memory.max", 16 * GIB)


@fault("cgroup-pids-small")
def _pids(tree: Tree, machine: Machine) -> None:
    tree.put(f"{JOB}/pids.max", 1024)
    tree.put(f"{JOB}/pids.current", 37)


@fault("cgroup-oom-kill")
def _cgroup_oom(tree: Tree, machine: Machine) -> None:
    replace(tree, f"/sys/fs/cgroup{GROUP}/memory.events", "oom_kill 0", "oom_kill 2")


@fault("cpus-fewer-than-gpus")
def _cpus(tree: Tree, machine: Machine) -> None:
    task(tree, "0", tree.extra["task"]["environ"]["CUDA_VISIBLE_DEVICES"])


@fault("binding-away-from-gpu", "dgx-h100", "nd-a100-v4")
def _binding(tree: Tree, machine: Machine) -> None:
    task(tree, f"{machine.cores // 2}-{machine.cores // 2 + 7}", "0")


@fault("swap-in-use")
def _swap(tree: Tree, machine: Machine) -> None:
    replace(
        tree,
        "/proc/meminfo",
        "SwapTotal:             0 kB\nSwapFree:              0 kB",
        "SwapTotal: 16777216 kB\nSwapFree: 2097152 kB",
    )


@fault("host-memory-low")
def _low(tree: Tree, machine: Machine) -> None:
    lines = tree.files["/proc/meminfo"].splitlines()
    tree.put("/proc/meminfo", "\n".join("MemAvailable:   4194304 kB" if x.startswith("MemAv") else x for x in lines))


@fault("load-from-others")
def _load(tree: Tree, machine: Machine) -> None:
    tree.put(
        "/proc/loadavg",
        f"{machine.cores * 1.8:.2f} {machine.cores * 1.7:.2f} {machine.cores * 1.2:.2f} 312/3124 815234",
    )


@fault("numa-balancing-on")
def _balancing(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/sys/kernel/numa_balancing", 1)


@fault("cpu-governor-powersave", *BARE)
def _governor(tree: Tree, machine: Machine) -> None:
    for policy in range(16):
        tree.put(f"/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", "schedutil")


@fault("iommu-translates-gpu-traffic", "l40s-pcie")
def _iommu(tree: Tree, machine: Machine) -> None:
    replace(tree, "/proc/cmdline", "iommu=pt", "intel_iommu=on")
    for number, folder in enumerate(gpus(tree, machine)):
        tree.put(f"/sys/kernel/iommu_groups/{40 + number}/type", "DMA")
        tree.link(f"{folder}/iommu_group", f"/sys/kernel/iommu_groups/{40 + number}")


@fault("acs-redirect-above-gpus", "l40s-pcie")
def _acs(tree: Tree, machine: Machine) -> None:
    for folder in gpus(tree, machine):
        tree.put(f"{posixpath.dirname(folder)}/config", acs_config(0x001D))


def acs_config(control: int | None) -> str:
    """The 4 KiB of configuration space of a switch port, as `lspci -xxxx` dumps them, in hexadecimal.

    A type 1 header (PLX 9797), the PCI Express capability at 0x68, then AER at 0x100 and access control at 0x148, which
    None leaves out. Bits of the control word: 0 SrcValid, 1 TransBlk, 2 ReqRedir, 3 CmpltRedir, 4 UpstreamFwd,
    5 EgressCtrl, 6 DirectTrans.
    """
    space = bytearray(4096)
    space[0:16] = bytes.fromhex("b51097970704100ab0000406 10000100".replace(" ", ""))
    space[0x18:0x1B] = bytes((0x10, 0x11, 0x11))  # bus above, bus below, last bus below
    space[0x34] = 0x68
    space[0x68:0x6C] = bytes.fromhex("10006200")  # PCI Express, version 2, downstream port
    space[0x100:0x104] = (0x0001 | 2 << 16 | (0x148 if control is not None else 0) << 20).to_bytes(4, "little")
    if control is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14C:0x150] = (0x5F).to_bytes(2, "little") + control.to_bytes(2, "little")
    return space.hex()


@fault("efa-hugepages-missing", "p3dn", "p4d", "p5")
def _huge(tree: Tree, machine: Machine) -> None:
    for name in ("nr_hugepages", "free_hugepages"):
        tree.put(f"/sys/kernel/mm/hugepages/hugepages-2048kB/{name}", 0)


@fault("clock-unsynchronised")
def _clock(tree: Tree, machine: Machine) -> None:
    say(tree, "clock", synchronised=0)


@fault("clock-offset-large")
def _offset(tree: Tree, machine: Machine) -> None:
    tree.command(
        "chronyc -n tracking",
        "Reference ID    : 0A010002 (10.1.0.2)\nStratum         : 3\n"
        "System time     : 312.441120000 seconds slow of NTP time\nLeap status     : Normal\n",
    )


@fault("clocksource-slow")
def _source(tree: Tree, machine: Machine) -> None:
    tree.put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")


@fault("hostname-is-loopback")
def _loopback(tree: Tree, machine: Machine) -> None:
    say(tree, "hostname", addresses=["127.0.1.1"])


@fault("hostname-unresolved")
def _unresolved(tree: Tree, machine: Machine) -> None:
    say(tree, "hostname", addresses=[], error="Name or service not known")


@fault("socket-candidate-virtual", "a3-highgpu")
def _bridge(tree: Tree, machine: Machine) -> None:
    interface(tree, "virbr0")
    tree.put("/sys/class/net/virbr0/operstate", "up")
    tree.put(
        "/proc/net/route",
        tree.files["/proc/net/route"] + "virbr0\t007AA8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
    )


@fault("rp-filter-strict", "a3-highgpu")
def _filter(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/sys/net/ipv4/conf/all/rp_filter", 1)
    replace(tree, "/proc/net/route", "eth2\t0002010A", "eth2\t0001010A")


@fault("memory-uncorrected-errors", *BARE)
def _edac(tree: Tree, machine: Machine) -> None:
    tree.put("/sys/devices/system/edac/mc/mc1/ue_count", 1)
