"""What a node grants a task, how its kernel is set, and what else decides whether a job runs well on it."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class HostMachine(NamedTuple):
    """What kind of machine this is."""

    host: str | None
    vendor: str | None  # DMI system vendor
    product: str | None  # DMI product name
    virtual: int | None  # 1 in a virtual machine; None where the firmware's tables cannot be read
    container: str | None  # docker, podman, kubernetes, lxc, container; None on the host itself
    rdma: int  # devices in /sys/class/infiniband
    efa: int  # 1 where the module efa is loaded
    ref: Ref


class HostTask(NamedTuple):
    """The process that runs the check: a task of a job, or a prologue of its scheduler."""

    host: str | None
    uid: int | None
    ipc_lock: int | None  # 1 where it may lock memory beyond the limit (CAP_IPC_LOCK outside of a user namespace)
    cpus: int | None  # CPUs that it may run on
    cpu_list: str | None
    memory_nodes: str | None  # NUMA nodes that it may take memory from
    context: str | None  # prolog, epilog, task_prolog, task; None outside of a scheduler
    nodes: int | None  # nodes of the job
    gpus: int | None  # GPUs that it is given; None where nothing limits it
    locked: int | None  # bytes that a trial of mlock could lock; None where it was not tried
    ref: Ref


class TaskLimit(NamedTuple):
    """A resource limit of this task, or of the daemon that starts tasks."""

    host: str | None
    process: str  # self, slurmd; shell for `ulimit -a` and /proc/PID/limits in a capture
    name: str  # memlock and stack (bytes), nofile, nproc, core (bytes)
    soft: int | None  # -1 = unlimited
    hard: int | None  # -1 = unlimited
    ref: Ref


class CgroupLimit(NamedTuple):
    """The tightest limit of a control group above this task."""

    host: str | None
    name: str  # memory (bytes), cpu (CPUs), pids
    value: float
    used: float | None
    path: str  # control group that sets it
    ref: Ref


class CgroupEvent(NamedTuple):
    """What happened to the control group of this task since it was made."""

    host: str | None
    name: str  # oom_kill
    times: int
    path: str
    ref: Ref


class SharedMemory(NamedTuple):
    """/dev/shm as this task sees it."""

    host: str | None
    size: int | None  # bytes
    free: int | None  # bytes
    leftover: int  # files named nccl-*
    leftover_bytes: int
    writable: int | None
    ref: Ref


class HostMemory(NamedTuple):
    """Memory of the node, in bytes."""

    host: str | None
    total: int
    available: int | None
    swap_total: int | None
    swap_free: int | None
    ref: Ref


class HugePages(NamedTuple):
    """Huge pages of one size."""

    host: str | None
    size: int  # bytes of a page
    total: int
    free: int | None
    ref: Ref


class HostLoad(NamedTuple):
    """How busy the node is."""

    host: str | None
    load1: float  # runnable and blocked processes, mean of a minute
    load5: float
    cpus: int | None  # online
    ref: Ref


class KernelSetting(NamedTuple):
    """A setting of the kernel."""

    host: str | None
    name: str  # sysctl name, or transparent_hugepage, cmdline, clocksource, boot_id, release, uptime
    value: str
    ref: Ref


class CpuGovernor(NamedTuple):
    """How the clock of CPUs is chosen."""

    host: str | None
    governor: str  # performance, powersave, schedutil, …
    preference: str | None  # energy_performance_preference
    policies: int  # frequency domains that have it
    ref: Ref


class GpuPlace(NamedTuple):
    """Where a GPU sits, from /sys/bus/pci."""

    host: str | None
    pci: str
    position: int  # in the order of PCI addresses, from 0
    numa: int | None
    cpus: str | None  # CPUs near it
    granted: int | None  # 1 where the task is given it, 0 where another one; None where that is not known
    distance: int | None  # of the nearest NUMA node that the task may run on, as firmware counts: 10 = the same
    iommu: str | None  # type of its group: DMA, DMA-FQ (translated), identity
    ref: Ref


class HostName(NamedTuple):
    """What the node's own name resolves to."""

    host: str | None
    name: str
    addresses: str  # separated by blanks; empty where it does not resolve
    loopback: int  # 1 where all of them are 127.… or ::1
    error: str | None
    seconds: float | None
    ref: Ref


class NodeInterface(NamedTuple):
    """A network interface, as NCCL and others pick one for TCP."""

    host: str | None
    name: str
    position: int  # in the order of the kernel, from 0
    up: int | None
    virtual: int  # 1 for bridges and tunnels of containers and virtual machines
    subnets: str  # of its routes, separated by blanks; empty without an IPv4 address
    rp_filter: int | None  # the stricter of its own and that of all: 0 off, 1 strict, 2 loose
    ref: Ref


class NodeRoute(NamedTuple):
    """A line of the IPv4 routing table, or the default route of IPv6."""

    host: str | None
    interface: str
    subnet: str
    gateway: str | None
    metric: int
    ref: Ref


class NodeClock(NamedTuple):
    """The clock of the node."""

    host: str | None
    now: float | None  # seconds since the epoch
    boot: float | None  # when the kernel started
    synchronised: int | None
    offset: float | None  # seconds to the reference
    source: str | None  # source of the statement: chrony, kernel, systemd
    ref: Ref


class KernelLog(NamedTuple):
    """What could be read of the kernel's log."""

    host: str | None
    source: str | None  # kmsg, dmesg, journal, a file; None where nothing may be read
    lines: int
    first: float | None  # time of the oldest line, seconds since the epoch
    now: float | None  # when it was read
    boot: float | None
    ref: Ref


class StuckTask(NamedTuple):
    """A process that the kernel called blocked."""

    host: str | None
    pid: int
    name: str
    seconds: int  # how long it was blocked, as last printed
    still: int | None  # 1 where it is blocked at this moment, 0 where it is gone or runs
    function: str | None  # kernel function in which it waits (/proc/PID/wchan, root only)
    driver: str | None  # in whose code it waits (/proc/PID/stack): nvidia, mlx5_core; None: not known or none
    stamp: float | None
    ref: Ref


class HostProcess(NamedTuple):
    """A zombie, or a tool of GPUs or network cards that waits for the kernel."""

    host: str | None
    pid: int
    name: str
    state: str  # D uninterruptible, Z zombie
    age: float  # seconds since it was started
    threads: int  # a zombie with more than one has a thread that does not end
    driver: str | None  # in whose code it waits (/proc/PID/stack): nvidia, mlx5_core; None: not known or none
    ref: Ref


class HostPart(NamedTuple):
    """Parts of the node that are counted."""

    host: str | None
    name: str  # nvme (drives on the PCI bus)
    number: int
    ref: Ref


class TaskFolder(NamedTuple):
    """A folder that programs of the task write to."""

    host: str | None
    variable: str  # HOME, TMPDIR
    path: str
    state: str  # ok, missing, not-a-folder, not-writable
    uid: int | None  # who asked
    ref: Ref


class Firewall(NamedTuple):
    """A chain of a packet filter that sees what other nodes send to this one."""

    host: str | None
    source: str  # nft, iptables-save
    chain: str
    policy: str  # accept, drop
    closing: str  # the rule that refuses all that is left; empty without one
    sources: int  # rules before it that accept by source address or interface
    ref: Ref
