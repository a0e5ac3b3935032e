"""What NCCL writes about machines and communicators in files of its own: topology and graph XML, RAS reports, the Inspector."""

from nccl_doctor.common.named_tuples import NamedTuple


class TopoFile(NamedTuple):
    """One topology file (NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE)."""

    file: str
    host_hash: str | None
    cpus: int
    gpus: int
    nets: int
    switches: int
    written: int  # 1 for a file that a provider or a person wrote for NCCL_TOPO_FILE, 0 for a dump, which names ranks
    emulated: int  # PCI devices with a link that no real slot has, or that a file invents
    arch: str | None
    ref: int


class TopoGpu(NamedTuple):
    """A GPU in a topology file."""

    file: str
    gpu: int | None  # dev as NCCL counts; None in a hand-written file
    rank: int | None
    bus: str | None
    sm: int | None  # compute capability, 90 for 9.0; None for AMD GPUs
    gdr: int | None
    cpu: int | None  # NUMA node
    speed: float | None  # GT/s a lane, the most that slot and card can do
    width: int | None  # lanes
    nvlinks: int | None  # sum over all targets; None where the file is cut inside the GPU
    xgmi: int | None  # other AMD GPUs that xGMI links it to; None where the file is cut inside the GPU
    c2c: int | None  # MB/s of the link to the CPU on Grace superchips
    nearest: str | None  # path to the nearest network device: PIX, PXB, PHB, SYS; None without one
    ref: int


class TopoNet(NamedTuple):
    """A network device in a topology file."""

    file: str
    name: str | None
    dev: int | None
    bus: str | None
    cpu: int | None
    rate: int | None  # Mb/s
    gdr: int | None
    speed: float | None  # GT/s a lane
    width: int | None  # lanes
    nearest: str | None  # path to the nearest GPU
    ref: int


class TopoGraph(NamedTuple):
    """A graph that NCCL chose (NCCL_GRAPH_DUMP_FILE)."""

    file: str
    graph: int  # 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct
    pattern: int | None
    channels: int
    speed_intra: float | None  # GB/s a channel
    speed_inter: float | None  # GB/s a channel
    type_intra: str | None  # worst path inside a host
    type_inter: str | None
    ref: int


class RasComm(NamedTuple):
    """A communicator in a RAS report."""

    comm: str  # hash
    size: int | None
    answered: int | None  # ranks that sent their state
    missing: int | None
    errors: int  # ranks with an asynchronous or initialisation error
    aborting: int  # ranks whose abort flag is set
    ref: int


class RasGroup(NamedTuple):
    """Communicators of one shape in the text form of a RAS report."""

    host: str | None
    file: str
    number: int  # of the group in its report
    comms: int  # communicators of this shape
    nodes: int  # of one communicator
    per_node: str  # ranks: 8, or 4-8 where nodes differ
    size: int  # ranks of one communicator
    ranks: int  # of all communicators of the group
    status: str  # RUNNING, INIT, FINALIZE, ABORT, NOCOMM; joined by commas where ranks differ
    errors: str  # OK, or INCOMPLETE, ERROR, MISMATCH joined by commas
    ref: int


class RasRank(NamedTuple):
    """A rank in a RAS report that is missing, or behind or ahead of most others."""

    comm: str
    rank: int
    host: str | None
    pid: int | None
    gpu: int | None
    state: str  # missing, dead, behind, ahead, error
    op: str | None  # the collective in which it is behind or ahead
    calls: int | None  # its number of that collective
    majority: int | None  # the number that most ranks have
    ref: int


class InspectorColl(NamedTuple):
    """Collectives of one rank, kind and size, as a profiler plug-in of NCCL measured them: the Inspector, or NCCL's example."""

    host: str | None
    pid: int | None
    comm: str
    comm_name: str | None
    rank: int
    nranks: int | None
    nodes: int | None
    op: str  # AllReduce, ...; Send and Recv to one peer
    size: int  # bytes of the message
    timing: str | None  # kernel_gpu, kernel_cpu, proxy (network transfers), collective_cpu (the launch only)
    n: int
    time_median: float  # us
    time_max: float  # us
    algbw_median: float | None  # GB/s
    busbw_median: float | None  # GB/s; None where the number of ranks is not known
    busbw_min: float | None  # GB/s
    ref: int
