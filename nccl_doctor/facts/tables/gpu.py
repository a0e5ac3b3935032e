"""What samples of GPUs show: how busy they were, what held them back, who used them."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class GpuUse(NamedTuple):
    """One GPU over one file of samples, from the first to the last moment at which any GPU of the file was in use."""

    host: str | None
    gpu: int | None  # index as the tool counts
    uuid: str | None
    model: str | None
    source: str  # nvidia-smi, dmon, dcgm, json, jobstats, wandb (means of half a minute)
    file: str
    samples: int
    first: float | None  # seconds since the epoch; local time of the node read as UTC
    seconds: float | None  # from the first to the last sample of the job
    busy_share: float | None  # share of samples with utilisation of 80 % or more
    idle_share: float | None  # share of samples with utilisation below 5 %
    util_mean: float | None  # %
    util_median: float | None  # %
    dips: int | None  # falls to 10-25 %
    dip_share: float | None  # share of samples at 10-25 %
    high_share: float | None  # share of samples with utilisation of 95 % or more
    spin_share: float | None  # share of those that draw less than 40 % of the power limit
    power_median: float | None  # W, over samples with utilisation of 80 % or more; over all where there is none
    power_limit: float | None  # W
    clock_median: float | None  # MHz of the SMs, over the same samples as the power
    clock_max: float | None  # MHz that the board allows
    temperature_max: float | None  # degrees C
    memory_max: float | None  # MiB used at most
    memory_total: float | None  # MiB
    sm_active: float | None  # mean of DCGM's SMACT, 0..1
    width_min: int | None  # PCIe lanes, the fewest seen
    width_max: int | None  # PCIe lanes that the board has
    ref: int


class GpuSample(NamedTuple):
    """Samples of one GPU in one window of time."""

    host: str | None
    gpu: int | None
    file: str
    start: float  # seconds since the epoch, as in `gpu_use`
    seconds: float  # length of the window
    samples: int
    util_mean: float | None  # %
    busy_share: float | None  # share of samples with utilisation of 80 % or more
    power_mean: float | None  # W
    memory_max: float | None  # MiB
    ref: int


class GpuThrottle(NamedTuple):
    """A reason for lower clocks that samples of a GPU show (NVML clock event reasons)."""

    host: str | None
    gpu: int | None
    reason: str  # power-cap, hw-slowdown, sw-thermal, hw-thermal, power-brake
    samples: int  # in which the reason was active
    share: float  # of all samples of the GPU
    ref: int


class ThrottleSpan(NamedTuple):
    """A time over which a reason for lower clocks was active in all samples of a GPU; reasons that come and go often have none."""

    host: str | None
    gpu: int | None
    file: str
    reason: str  # as in `gpu_throttle`
    start: float  # seconds since the epoch, as in `gpu_use`
    end: float  # of the first sample without it; of the last one with it where none follows
    ref: int  # of the first sample of this GPU with the reason


class IdleSpan(NamedTuple):
    """A time over which all samples of a GPU show less than 20 % utilisation; a GPU that comes and goes often has none."""

    host: str | None
    gpu: int | None
    file: str
    start: float  # seconds since the epoch, as in `gpu_use`
    end: float  # of the first sample of 20 % and more; of the last one where none follows
    ref: int  # as in `gpu_use`


class GpuCounter(NamedTuple):
    """A counter of memory errors of a GPU, or a state that has a yes or no."""

    host: str | None
    gpu: int | None
    name: str  # ecc-corrected, ecc-uncorrected, retired-pages, retired-pending, remap-pending, remap-failed, remapped-rows, xid,
    # unreadable; xid-79: how often that Xid came; thermal-events: how often heat lowered the clocks; thermal-violation,
    # power-violation: time at lower clocks, in a unit that depends on the driver
    first: float | None  # value in the first sample; yes = 1
    last: float  # highest value later
    ref: int


class GpuProcess(NamedTuple):
    """A process that used a GPU (pmon, --query-compute-apps, gpustat, -q)."""

    host: str | None
    gpu: int | None
    uuid: str | None
    pid: int
    kind: str | None  # C compute, G graphics
    name: str | None
    memory: float | None  # MiB at most
    sm: float | None  # % of the time in which it ran on the multiprocessors, the mean of all looks (pmon)
    n: int
    first: int  # number of the first look at the host that showed it, and of the last one; from 0 on
    last: int
    ref: int


class ListedGpu(NamedTuple):
    """A GPU in a list of those of a node: `nvidia-smi -L`, `dcgmi discovery -l`, `nvidia-smi mig -lgi`, `rocminfo`."""

    host: str | None
    file: str
    tool: str  # nvidia-smi, dcgmi, nvidia-smi mig, rocminfo
    gpu: int  # its number on the node
    uuid: str | None
    pci: str | None  # 00000000:19:00.0
    model: str | None
    instances: int  # of MIG; 0 for a whole GPU
    profiles: str | None  # 1g.10gb,3g.40gb
    ref: Ref


class PanelSeries(NamedTuple):
    """A series in the CSV of a panel of Grafana that is not known as one of a GPU."""

    file: str
    name: str  # its title: a legend or labels
    host: str | None
    n: int  # values
    mean: float
    least: float
    most: float
    ref: Ref
