"""What NCCL and its surroundings say while a job starts and runs."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref
from nccl_doctor.facts.tables.base import joined_by


class Message(NamedTuple):
    """A line whose pattern has no table of its own, and every NCCL WARN line; equal lines of one process are folded."""

    kind: str  # name of the pattern; `warn` for a WARN line that no pattern knows
    level: str | None  # INFO, WARN, … for NCCL lines; None for other lines
    host: str | None
    rank: int | None
    pid: int | None
    source: str | None  # source file that an NCCL WARN names, without its line number
    text: str
    fields: str  # JSON object: the pattern's named groups; read with field(fields, 'name')
    n: int
    last_line: int  # line of the last of them
    stamp: float | None
    ref: Ref


class KnownMessage(NamedTuple):
    """A line that the message catalogue knows (`nccl_doctor/knowledge/messages`); equal lines of one process are folded."""

    program: str  # nccl, rccl, ofi-nccl, slurm, …
    message: str  # name of the message in the catalogue of its program
    kind: str  # its class: local-resource, hardware, driver, configuration, version, mismatch, peer, timeout, internal, harmless
    fault: str | None  # name of the rule that reports it; None: the one of its class
    role: str  # origin: what it reports began here; echo: something else failed first
    severity: str  # how bad it is where the program did not go on
    confidence: str  # that a fault of this class is there
    title: str  # the program as people call it
    means: str
    causes: str | None  # likely ones first, each with what decides
    command: str  # what to do next
    level: str | None  # WARN, INFO, … for NCCL lines
    host: str | None
    rank: int | None
    pid: int | None
    text: str
    fields: str  # JSON object: what stands in the gaps of the message; read with field(fields, 'name')
    n: int
    last_line: int
    stamp: float | None
    ref: Ref


class Process(NamedTuple):
    """A process that wrote lines."""

    host: str | None
    pid: int | None
    rank: int | None
    nranks: int | None  # size of its largest communicator
    lines: int
    first_line: int
    last_line: int
    stamp: float | None  # of its last stamped line
    ref: int


class Communicator(NamedTuple):
    """One step in the life of a communicator on one rank (NCCL src/init.cc)."""

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    call: str | None  # ncclCommInitRank, ncclCommSplit, …
    phase: str  # start (where no complete follows), complete, destroy, abort, finalize, plain (NCCL before 2.4 printed neither)
    comm: str | None  # pointer, unique in one process only
    comm_id: str | None  # equal on all ranks (NCCL 2.16 and newer)
    comm_rank: int | None  # rank inside this communicator
    nranks: int | None
    cuda_dev: int | None  # ordinal inside the process
    nvml_dev: int | None  # what nvidia-smi shows in that container
    bus_id: str | None  # hexadecimal, leading zeros dropped
    parent: str | None
    color: int | None
    n: int
    stamp: float | None
    ref: int


class NodeCount(NamedTuple):
    """What NCCL itself counted: `comm … nRanks … nNodes … localRanks …` (NCCL 2.20 and newer)."""

    host: str | None
    rank: int | None
    comm: str | None
    comm_rank: int | None
    nranks: int | None
    nodes: int | None
    local_ranks: int | None
    local_rank: int | None
    mnnvl: int | None
    ref: int


class InitTiming(NamedTuple):
    """How long a communicator took to come up, in seconds (NCCL 2.22 and newer)."""

    host: str | None
    rank: int | None
    comm_rank: int | None
    nranks: int | None
    total: float | None
    bootstrap: float | None
    topo: float | None
    graphs: float | None
    connections: float | None
    ref: int


class Library(NamedTuple):
    """A version that something stated about itself."""

    host: str | None
    rank: int | None
    pid: int | None
    name: str  # nccl, rccl, cuda-driver, aws-ofi-nccl, libfabric, pytorch, horovod, hip, rocm, gdrcopy
    version: str
    built_for: str | None  # CUDA version that NCCL was built with
    n: int
    ref: int


class Env(NamedTuple):
    """A setting that a log, or a captured environment, shows."""

    host: str | None
    rank: int | None
    pid: int | None
    name: str
    value: str
    n: int
    ref: Ref


class Interface(NamedTuple):
    """An IP interface that NCCL uses or offers."""

    host: str | None
    rank: int | None
    pid: int | None
    purpose: str  # bootstrap, socket (NET/Socket), oob (beside NET/IB), sideband (2.3)
    position: int | None
    name: str
    address: str
    n: int
    ref: int


@joined_by("host, pid, name, port, link_layer, ref")  # counted by host and name without a look at its rows
class NetDevice(NamedTuple):
    """A network device in the list of `NET/IB : Using`."""

    host: str | None
    rank: int | None
    pid: int | None
    position: int
    name: str
    port: int | None
    link_layer: str | None  # IB or RoCE
    rate: int | None  # Mb/s, as NCCL 2.27 and newer print it with subsystem NET
    n: int
    ref: int


class Network(NamedTuple):
    """`Using network X`: the network a rank chose between nodes."""

    host: str | None
    rank: int | None
    pid: int | None
    name: str  # IB, Socket, AWS Libfabric, IBext_v8, …
    n: int
    ref: int


class Plugin(NamedTuple):
    """A plug-in that NCCL looked for."""

    host: str | None
    rank: int | None
    pid: int | None
    kind: str  # NET, TUNER, PROFILER, ENV, COLLNET, GIN
    name: str | None  # library or plug-in name
    outcome: str  # loaded, missing, failed (found, dlopen refused it), rejected (interface version), symbol (one version not exported)
    detail: str | None
    n: int
    ref: int


@joined_by("host, device, transport")
class Connection(NamedTuple):
    """What one rank of a communicator says of its connections with the ranks of another host over one medium.

    Inside a host each peer has a row of its own.
    """

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    own: int  # its rank inside the communicator
    own_gpu: str | None  # its GPU as NCCL prints it: a bus id, an index in older releases
    peer_host: str | None  # None where the communicators of the process do not tell it
    peers: str  # their ranks inside the communicator, and GPUs where these are printed: `8[1b000],9[1c000]`
    transport: str  # P2P, SHM, NET, COLLNET
    method: str | None  # IPC, CUMEM, direct pointer, indirect, MNNVL; direct or CE for SHM
    network: str | None  # IB, Socket, AWS Libfabric, …
    device: int | None  # index of the net device
    proxy: int | None  # rank whose proxy sends (PXN)
    gdr: int | None  # 1 = GPUDirect RDMA; None where the transport is not NET
    shared: int
    direction: str | None  # send, receive: the peers send
    connections: int  # how many peers
    channels: int  # how many different channels, added up over the peers
    n: int
    ref: int


class Gdr(NamedTuple):
    """A statement about GPUDirect RDMA."""

    host: str | None
    rank: int | None
    pid: int | None
    network: str | None
    device: str | None  # HCA index or name
    gpu: str | None
    enabled: int
    distance: int | None
    limit_: int | None
    reason: str | None  # `no module`, `not supported by GPU`, …
    n: int
    ref: int


class Ring(NamedTuple):
    """The order of the ranks on one channel, printed by communicator rank 0."""

    host: str | None
    rank: int | None
    channel: int
    channels: int | None
    order_: str  # ranks, blank-separated
    cut: int  # 1 where NCCL printed only the head of the list
    n: int
    ref: int


class Collective(NamedTuple):
    """Collectives of one kind that a rank enqueued (subsystem COLL)."""

    host: str | None
    rank: int | None
    pid: int | None
    comm: str | None
    function: str
    elements: int | None
    datatype: int | None
    op: int | None
    root: int | None
    nranks: int | None
    first_op: int  # opCount of the first of them
    last_op: int
    n: int
    ref: int


class Progress(NamedTuple):
    """How often, and where last, a rank printed lines of one shape; from the last part of its output.

    Of more than 64 hosts whose lines name no rank, shapes that came once are left out but for the first and the last line of each.
    """

    label: str  # rank label as printed
    rank: int | None
    host: str | None
    template: str  # the line with its numbers replaced
    times: int  # how often in that part
    last_value: str | None  # the numbers of the last such line
    position: int  # line number of the last such line
    ref: int
