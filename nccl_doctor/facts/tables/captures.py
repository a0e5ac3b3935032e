"""What was captured on a node or written for a scheduler: output of host commands, lists of packages, Kubernetes objects."""

from typing import NamedTuple

from nccl_doctor.facts.evidence import Ref


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


class SlurmJob(NamedTuple):
    """A job, or a step of one, as Slurm's accounting shows it (`sacct`, `seff`)."""

    job: str  # id, with the index of an array and the name of a step
    name: str | None
    state: str | None
    elapsed_s: float | None
    nodes: int | None
    cpus: int | None
    max_rss: float | None  # MiB of the task that used most; of the whole job from seff
    cpu_efficiency: float | None  # share of the allocated time of CPUs that was used
    memory_efficiency: float | None  # share of the memory that was asked for
    ref: int
