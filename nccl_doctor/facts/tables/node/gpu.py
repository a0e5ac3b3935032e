"""The GPUs of a live node: PCI bus, device files, NVML, amdgpu, and counters against those of the last run."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class NodeMachine(NamedTuple):
    """The machine itself, as its firmware (DMI) and its PCI devices tell."""

    host: str | None
    vendor: str | None  # /sys/class/dmi/id/sys_vendor
    product: str | None  # /sys/class/dmi/id/product_name; of a cloud instance often its type
    type: str | None  # entry of machine_types.json; None where it is none of them
    container: int | None  # 1 inside a container, as far as that can be told
    ref: Ref


class GpuHint(NamedTuple):
    """Something that says that a machine without visible GPUs should have some."""

    host: str | None
    source: str  # instance (type of a cloud instance, or product), nvswitch (on the bus), packages (of a driver)
    text: str  # what it is: p4d.24xlarge, /usr/bin/nvidia-smi
    ref: Ref


class PciDevice(NamedTuple):
    """A GPU, NVSwitch or network card on the PCI bus, or a bridge above one of them."""

    host: str | None
    pci: str  # 0000:18:00.0
    kind: str  # gpu (NVIDIA), amd-gpu, nvswitch, nic, bridge
    vendor: str | None  # 0x10de
    device: str | None  # 0x2330
    driver: str | None  # kernel driver that is bound; None where none is
    parent: str | None  # bridge right above; None at the root complex
    path: str | None  # all bridges from the root to the device, separated by /
    numa: int | None  # NUMA node; None where the firmware does not say
    width: int | None  # lanes now
    width_max: int | None  # lanes that the device has
    speed: float | None  # GT/s of a lane now; an idle GPU lowers it
    speed_max: float | None  # GT/s
    answers: int | None  # 0 where the configuration space reads ff: the device fell off the bus
    acs: int | None  # 1 where a bridge sends traffic between its devices through the root; readable by root only
    excluded: int | None  # 1 where the NVIDIA driver was told to leave the GPU out
    minor: int | None  # N of /dev/nvidiaN
    firmware: str | None  # GPU System Processor firmware; None without it
    ref: Ref


class GpuFile(NamedTuple):
    """A device file of the NVIDIA driver."""

    host: str | None
    path: str  # /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0
    minor: int | None  # of /dev/nvidiaN
    present: int
    character: int | None  # 1 where it is a character device
    error: str | None  # why it cannot be opened by the caller: EACCES, EPERM, ENXIO, EIO; None where it can
    major: int | None  # of the file
    major_expected: int | None  # what /proc/devices says
    helper: int | None  # 1 where nvidia-modprobe is there, which makes such files when CUDA starts
    ref: Ref


class NodeDriver(NamedTuple):
    """The NVIDIA driver of a node."""

    host: str | None
    source: str  # pci (kernel files), nvml, nvidia-smi
    driver: str | None  # version
    open_module: int | None  # 1 with the open kernel module
    nvml: str | None  # version of the library
    cuda: int | None  # highest CUDA version that the driver runs, 12040 = 12.4
    gpus: int | None  # how many GPUs the source shows
    confidential: int | None  # 1 with confidential computing
    ready: int | None  # 1 where confidential GPUs accept work
    fabric_manager: int | None  # 1 where it runs, 0 where it does not; None where it cannot be told
    nouveau: int | None  # 1 where the nouveau module is loaded
    whole: int | None  # 1 where processes of the whole node can be seen, 0 inside a container
    seconds: float | None  # what the source took
    ref: Ref


class NodeGpu(NamedTuple):
    """One GPU of a node at this moment (NVML, else nvidia-smi)."""

    host: str | None
    gpu: int  # index of NVML
    minor: int | None  # N of /dev/nvidiaN
    uuid: str | None
    pci: str | None  # 0000:18:00.0
    model: str | None
    vbios: str | None
    util: int | None  # %
    util_memory: int | None  # %
    memory_total: float | None  # MiB
    memory_used: float | None  # MiB, without what the driver reserves
    memory_reserved: float | None  # MiB
    bar1_total: float | None  # MiB
    power: float | None  # W
    power_limit: float | None  # W that hold now (enforced)
    power_default: float | None  # W that the board starts with
    clock_sm: int | None  # MHz
    clock_memory: int | None  # MHz
    clock_sm_max: int | None  # MHz
    clock_memory_max: int | None  # MHz
    clock_app: int | None  # MHz of the SMs that were asked for (application clock)
    clock_app_default: int | None  # MHz
    reasons: int | None  # bits of NVML's clock event reasons
    pstate: int | None  # 0 fastest
    temperature: int | None  # degrees C
    temperature_memory: int | None  # degrees C
    slowdown: int | None  # degrees C at which the hardware slows down
    margin: int | None  # degrees C left to the slowdown
    pcie_width: int | None  # lanes
    pcie_width_max: int | None  # lanes
    pcie_generation: int | None
    pcie_generation_max: int | None
    mig: int | None  # 1 on
    mig_pending: int | None  # after the next reset
    compute_mode: int | None  # 0 default, 2 prohibited, 3 one process
    persistence: int | None  # 1 on
    fabric_state: str | None  # not-started, in-progress, completed; None where there is no fabric
    fabric_status: int | None  # nvmlReturn of the fabric's set-up; 0 = success
    fabric_health: str | None  # what its health mask complains about, separated by commas; empty = nothing
    cluster: str | None  # UUID of the NVLink domain over several nodes
    clique: int | None
    links: int | None  # NVLinks that the GPU has
    links_active: int | None
    granted: int | None  # 1 where the scheduler gave it to this job, 0 where not; None where it does not say
    ref: Ref


class AmdGpu(NamedTuple):
    """One GPU of AMD as the amdgpu driver shows it in /sys, or as `amd-smi` or `rocm-smi` printed it."""

    host: str | None
    gpu: int | None  # index as these programs count; None from /sys
    pci: str | None  # 0000:c1:00.0; None where a capture does not show it
    device: str | None  # 0x74a1
    model: str | None  # product_name
    driver: str | None  # amdgpu; None where none is bound, and in captures
    unique_id: str | None
    hive: str | None  # id that GPUs have in common that XGMI joins
    util: int | None  # %
    memory_total: float | None  # MiB
    memory_used: float | None  # MiB
    uncorrected: int | None  # errors of all blocks (RAS) since the driver was loaded
    corrected: int | None
    blocks: str  # with errors that were not corrected: umc, gfx
    links: int | None  # XGMI links to other GPUs, as KFD lists them
    ref: Ref


class GpuHealth(NamedTuple):
    """Memory errors and repairs of one GPU, counted since the driver was loaded (volatile) or ever (aggregate)."""

    host: str | None
    gpu: int
    pci: str | None
    ecc: int | None  # 1 on
    ecc_pending: int | None  # after the next reset
    corrected: int | None  # volatile
    uncorrected: int | None  # volatile
    corrected_total: int | None  # aggregate
    uncorrected_total: int | None  # aggregate
    sram_uncorrected: int | None  # volatile
    sram_uncorrected_total: int | None  # aggregate
    sram_threshold: int | None  # 1 where the driver says that the SRAM has failed too often
    remapped_corrected: int | None  # rows
    remapped_uncorrected: int | None  # rows
    remap_pending: int | None  # 1 where a reset is needed
    remap_failed: int | None  # 1 where no spare row was left
    remap_banks_none: int | None  # memory banks without any spare row
    retired_single: int | None  # pages, after repeated single-bit errors (before A100)
    retired_double: int | None  # pages, after a double-bit error
    retired_pending: int | None  # 1 where a reset is needed
    recovery: int | None  # what the driver asks for: 0 nothing, 1 GPU reset, 2 reboot, 3 drain P2P, 4 drain and reset
    inforom: int | None  # 1 valid, 0 corrupt
    ref: Ref


class GpuLink(NamedTuple):
    """One NVLink of a GPU."""

    host: str | None
    gpu: int
    link: int
    active: int
    speed: float | None  # GB/s in one direction
    ref: Ref


class GpuPair(NamedTuple):
    """How two GPUs of a node reach each other."""

    host: str | None
    gpu: int
    peer: int
    level: int | None  # 0 one board, 10 one switch, 20 several switches, 30 one host bridge, 40 one CPU, 50 across CPUs
    read: int | None  # 0 possible, 1 chipset, 2 GPU, 3 topology, 4 disabled, 5 not supported
    nvlink: int | None  # the same for NVLink
    ref: Ref


class GpuHolder(NamedTuple):
    """A process that holds a GPU now."""

    host: str | None
    gpu: int
    pid: int
    kind: str  # C compute, G graphics
    name: str | None
    user: str | None  # name or number
    job: str | None  # scheduler's job that its control group names
    own: int | None  # 1 where it belongs to the same job as this check, 0 where not; None where that cannot be told
    alive: int  # 0 where the process is gone and the driver has not noticed
    memory: float | None  # MiB
    granted: int | None  # as in node_gpu
    ref: Ref


class NodeGpuError(NamedTuple):
    """A call of NVML that failed in a way that says something about the node."""

    host: str | None
    gpu: int | None  # None: the library as a whole
    pci: str | None
    call: str
    code: int  # nvmlReturn_t
    name: str  # driver-not-loaded, gpu-lost, …
    text: str
    ref: Ref


class NodeCounter(NamedTuple):
    """A counter of which only the growth is judged."""

    host: str | None
    device: str  # PCI address, mlx5_0/1, eth0
    name: str  # pcie-replay, nvlink-replay, ecc-corrected, link_downed, …
    value: int
    before: int | None  # at the last run since the same boot; None where there was none; from `counter_before`
    ref: Ref


class CounterBefore(NamedTuple):
    """The value of a counter at the last run since the same boot, as the state file keeps it."""

    device: str
    name: str
    value: int
