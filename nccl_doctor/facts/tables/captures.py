"""What was captured on a node or written for a scheduler: output of host commands, lists of packages, Kubernetes objects."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref
from nccl_doctor.facts.tables.base import joined_by


class GpuMatrix(NamedTuple):
    """One pair of devices in `nvidia-smi topo -m`."""

    host: str | None
    file: str
    device: str  # GPU0, NIC0, mlx5_0
    peer: str
    path: str  # NV18, PIX, PXB, PHB, NODE, SYS
    ref: int


class NvlinkState(NamedTuple):
    """NVLinks of one GPU in `nvidia-smi nvlink -s`."""

    host: str | None
    file: str
    gpu: int
    model: str | None
    active: int
    inactive: int
    speed: float | None  # GB/s of one link and direction, the lowest
    ref: int


class C2cState(NamedTuple):
    """NVLink-C2C of one Grace superchip in `nvidia-smi c2c -s`: the links between its GPU and its CPU."""

    host: str | None
    file: str
    gpu: int
    model: str | None
    active: int
    inactive: int
    speed: float | None  # GB/s of one link and direction, the lowest
    total: float  # GB/s of all active links in one direction
    ref: int


class NvlinkUse(NamedTuple):
    """NVLinks of one GPU in `nvidia-smi nvlink -gt d`, which counts their traffic, or `nvidia-smi nvlink -c`, their capabilities."""

    host: str | None
    file: str
    gpu: int
    model: str | None
    links: int  # links of which a value is printed
    sent: int | None  # KiB on all links since the counters were reset; None where they do not count
    received: int | None  # KiB
    without_p2p: int | None  # links that do not support P2P
    ref: int


class FabricEvent(NamedTuple):
    """An error in the log of NVIDIA's Fabric Manager; equal texts are one row."""

    host: str | None
    file: str
    kind: str  # nvswitch, error
    text: str
    n: int
    ref: int


class IbPort(NamedTuple):
    """One port in `ibstat`, `ibstatus` or `ibv_devinfo`, or in /sys/class/infiniband of a live node."""

    host: str | None
    file: str
    hca: str
    port: int | None
    state: str  # Active, Down, Initializing, Armed
    physical: str | None  # LinkUp, Polling, Disabled
    rate: float | None  # Gb/s
    link_layer: str | None  # InfiniBand, Ethernet
    lanes: int | None  # 4 of `400 Gb/sec (4X NDR)`
    speed: str | None  # SDR, DDR, QDR, FDR, EDR, HDR, NDR, XDR
    lid: int | None  # address inside the InfiniBand subnet; 0 or 65535 = none given
    sm_lid: int | None  # that of the subnet manager; 0 = none
    partitions: int | None  # partition keys with full membership
    mtu: int | None  # active_mtu of `ibv_devinfo`: bytes of one RDMA packet, 256 to 4096
    ref: Ref


@joined_by("kind, name")
class LinkCounter(NamedTuple):
    """An error counter of one link or port, as a command printed it: since it was cleared, mostly since the driver was loaded."""

    host: str | None
    file: str
    source: str  # ethtool, ip, perfquery, rdma, mlxlink, nvidia-smi, dcgmi, amd-smi, rocm-smi, node_exporter
    kind: str  # ib, ethernet, nvlink, c2c, xgmi, pcie
    link: str  # mlx5_0/1, lid 7 port 1, eth0, GPU 3 link 5, GPU 3
    name: str  # of the same counter the same from all programs: symbol_error, link_downed, rx_crc_errors, nvlink-replay, pcie-replay
    value: int
    ref: Ref


class LinkQuality(NamedTuple):
    """One port as `mlxlink` measured it: the signal, and what the program says of it."""

    host: str | None
    file: str
    link: str  # mlx5_0, or the number of the output in its file where nothing names the device
    state: str | None  # Active, Polling, Disable
    speed: str | None  # IB-NDR, 400G
    lanes: int | None
    raw_ber: float | None  # bit error rate of the line, before correction
    effective_ber: float | None  # after correction
    symbol_ber: float | None  # of what reaches the receiver, after retransmission on the link (InfiniBand)
    minutes: float | None  # since the counters were cleared
    advice: str | None  # Recommendation of the program
    module: str | None  # what of the module is outside of its range: power of the light, bias current, heat
    ref: Ref


class FabricCheck(NamedTuple):
    """One stage in the summary of `ibdiagnet`."""

    host: str | None
    file: str
    stage: str  # Links Check, Port Counters
    warnings: int
    errors: int
    text: str | None  # the first warning or error of the file that names a counter or a link
    ref: Ref


class KernelModule(NamedTuple):
    """A module in `lsmod` that matters for GPUs and networks; one row `(list)` says that the list was seen."""

    host: str | None
    file: str
    name: str
    ref: int


class OfiDomain(NamedTuple):
    """A domain in `fi_info`."""

    host: str | None
    rank: int | None
    file: str
    provider: str
    domain: str
    protocol: str | None
    ref: Ref


class Package(NamedTuple):
    """A package in `conda list`, `pip list`, `pip freeze` or /opt/amazon/efa_installed_packages that has to do with GPUs or networks."""

    file: str
    source: str  # conda, pip, efa
    name: str
    version: str
    ref: int


class KubePod(NamedTuple):
    """A pod template: one replica kind of a TFJob, PyTorchJob or MPIJob, or a pod, Job, StatefulSet or Deployment."""

    file: str
    kind: str
    name: str | None
    role: str | None  # Worker, PS, Launcher, Chief, Master
    replicas: int
    gpus: int | None  # nvidia.com/gpu of one pod; None where none is asked for
    rdma: int | None  # rdma/… or vpc.amazonaws.com/efa of one pod
    shared_memory: int  # 1 where a memory volume is mounted at /dev/shm
    host_network: int
    lock_memory: int  # 1 with IPC_LOCK or privileged
    slots: int | None  # slotsPerWorker of an MPIJob, nprocPerNode of a PyTorchJob
    horovod: int  # 1 where the command or image names Horovod or mpirun
    ref: int


class KubeResource(NamedTuple):
    """A resource of a node in `kubectl describe node`."""

    node: str | None
    file: str
    name: str  # nvidia.com/gpu, vpc.amazonaws.com/efa, rdma/…, hugepages-2Mi
    capacity: str | None
    allocatable: str | None
    requested: str | None
    ref: int


class KubeNode(NamedTuple):
    """A condition of a node in `kubectl describe node` or `kubectl get nodes`."""

    host: str
    file: str
    condition: str  # Ready, DiskPressure, SchedulingDisabled (cordoned)
    bad: int  # 1 where it says that something is wrong
    text: str | None  # what the kubelet says of it
    ref: Ref


class SchedulerNode(NamedTuple):
    """A node as its scheduler sees it: `scontrol show node`, `sinfo -R`, `sinfo -N -l`."""

    host: str
    file: str
    state: str  # as printed, in capitals: IDLE, MIXED+DRAIN, DOWN*
    reason: str | None  # that the administrator, a program or Slurm itself gave
    cpus: int | None
    cpus_used: int | None
    memory: float | None  # MiB that it should have
    memory_free: float | None  # MiB
    load: float | None  # CPULoad
    gpus: int | None  # of its generic resources
    gpus_used: int | None
    ref: Ref


class HostNumber(NamedTuple):
    """A number that a command shows of a host: `ulimit -a`, `free`, `df`, `lscpu`, `numactl -H`, `top`, `perf stat`."""

    host: str | None
    file: str
    command: str  # ulimit, free, df, lscpu, numactl, top, perf stat
    name: str  # locked memory, available, CPUs, NUMA nodes, used of /scratch
    value: float  # -1 for a limit that is unlimited
    unit: str  # B, %, s, empty for a count
    ref: Ref


class SwitchPart(NamedTuple):
    """A power supply, or the fans, of a switch as `ibswinfo` shows them."""

    switch: str  # its node description
    file: str
    part: str  # PSU0, PSU0 fan, fans, fan#3
    state: str  # OK, ERROR, `0 rpm` of a fan that stands still
    ref: Ref


class ListedState(NamedTuple):
    """The state of a part of a machine or cluster as a table or a list of a command tells it: a port, a power supply, a disk, a pool."""

    host: str | None
    file: str
    source: str  # the command, or what stands above the table
    kind: str  # port: of a switch or a host, of which unused ones are down; thing
    name: str  # Ethernet4, PSU 2, rpool
    state: str  # as it is printed
    level: str  # bad: it does not work; poor: it works less well; well
    ref: Ref


class ListedNumber(NamedTuple):
    """A number with a unit that such a table or list tells of a part."""

    host: str | None
    file: str
    source: str
    name: str  # of the part
    title: str  # of the number; empty where the part is what is measured
    value: float
    unit: str
    ref: Ref


class HostValue(NamedTuple):
    """What a command printed on a host, of which only the values are known: `node01: 64` of `pdsh … nproc`."""

    host: str
    file: str
    position: int  # 1, 2, … of the lines of the host
    value: str
    ref: Ref


class ListedProcess(NamedTuple):
    """A process in `ps` or `top` that is part of a job, hangs in the kernel or is a zombie. Of several lists the worst row."""

    host: str | None
    file: str
    pid: int
    user: str | None
    name: str  # python train.py, nvidia-smi, [kworker/3:1]
    state: str | None  # D uninterruptible, Z zombie, R, S, T stopped; None where the list has no such column
    cpu: float | None  # percent of one CPU, since its start in `ps`
    memory: float | None  # MiB resident
    waits: str | None  # kernel function in which it waits (WCHAN)
    job: int  # 1 for a script of Python, a launcher, a benchmark, a tool of GPUs
    ref: Ref


class QueuedJob(NamedTuple):
    """A job in `squeue` that is not done."""

    job: str
    file: str
    name: str | None
    state: str  # PD, R, CG, as printed
    reason: str | None  # in parentheses at the end of the row: Resources, Priority, BadConstraints
    nodes: int | None
    ref: Ref


class AccountedJob(NamedTuple):
    """A job, or a step of one, in the accounting of a scheduler (`sacct`, `seff`, `qacct`, `qstat -f`, `bhist`, HTCondor's log)."""

    scheduler: str  # slurm, gridengine, pbs, lsf, htcondor
    job: str  # id, with the index of an array and the name of a step
    name: str | None
    state: str | None
    elapsed_s: float | None
    waited_s: float | None  # in the queue (bhist)
    nodes: int | None
    cpus: int | None
    max_rss: float | None  # MiB of the task that used most; of the whole job from seff
    cpu_efficiency: float | None  # share of the allocated time of CPUs that was used
    memory_efficiency: float | None  # share of the memory that was asked for
    tasks: int | None  # of a step
    mean_cpu_s: float | None  # CPU time of a task of the step, the mean of all
    least_cpu_s: float | None  # of the task that used least
    least_task: int | None  # its number in the step: SLURM_PROCID, the rank where srun starts a process a rank
    least_host: str | None
    ref: int


@joined_by("number")
class CopyTest(NamedTuple):
    """One test of `nvbandwidth`, or one matrix of `p2pBandwidthLatencyTest`: copies that differ in their GPUs only."""

    number: int  # 1, 2, … over all inputs
    host: str | None  # None where several hosts take part, or none is named
    file: str
    tool: str  # nvbandwidth, p2pBandwidthLatencyTest, bandwidthTest, gpu-copy, gpu-stream, shoc
    test: str  # host_to_device_memcpy_ce, or the title of the matrix
    kind: str  # host (a GPU and host memory), pair, bisect (all pairs at once), local (inside a GPU), crowd (many at once), none
    measure: str  # bandwidth, latency
    engine: str | None  # CE copy engine, SM kernel
    unit: str  # GB/s, ns, us
    gpus: int
    model: str | None  # of all GPUs
    total: float | None  # of the line SUM
    status: str  # passed, waived, error
    said: str | None  # why it was waived or failed
    ref: int


@joined_by("test")
class CopyRate(NamedTuple):
    """One number of a matrix of copies."""

    test: int  # number of the `copy_test`
    host: str | None  # of the GPU
    gpu: int  # on its host; of the column
    peer_host: str | None
    peer: int | None  # the other GPU, that of the row; None for host memory and for a GPU by itself
    value: float | None  # in the unit of the test; None = N/A, no copy is possible
    ref: int
