"""The fact tables: one NamedTuple class a table.

A class docstring says what one row means. The comment beside a column gives its meaning and unit. ``None`` is "not known",
never zero. ``host`` is the host name as the program printed it, ``rank`` the rank in the job (the world communicator or the
launcher's label), ``pid`` the process id inside its own namespace, ``stamp`` seconds since the epoch where the line carried a
time, ``n`` how often the same row was seen, ``ref`` the number of the `Evidence` row that shows it.
"""

from typing import NamedTuple


class Evidence(NamedTuple):
    """One place in an input that proves a fact."""

    id: int  # what `ref` columns point to
    file: str
    line: int  # counted from 1
    text: str  # the line without launcher prefix or control characters


class Input(NamedTuple):
    """One file that was read."""

    path: str
    kind: str  # nccl-log, job-log, facts, …
    bytes: int
    lines: int
    nccl_lines: int  # lines that NCCL, RCCL or a network plug-in wrote
    understood: int  # of those, how many a pattern knows
    note: str | None  # why reading stopped early, if it did


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
    ref: int


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
    phase: str  # start, complete, destroy, abort, finalize, plain (NCCL before 2.4 printed neither)
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
    ref: int


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


class NetDevice(NamedTuple):
    """A network device in the list of `NET/IB : Using`."""

    host: str | None
    rank: int | None
    pid: int | None
    position: int
    name: str
    port: int | None
    link_layer: str | None  # IB or RoCE
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


class Connection(NamedTuple):
    """Channels of one communicator between two of its ranks, as one side printed them."""

    host: str | None
    rank: int | None
    pid: int | None
    tid: int | None
    src: int  # rank inside the communicator
    dst: int
    transport: str  # P2P, SHM, NET, COLLNET
    method: str | None  # IPC, CUMEM, direct pointer, indirect, MNNVL; direct or CE for SHM
    network: str | None  # IB, Socket, AWS Libfabric, …
    device: int | None  # index of the net device
    proxy: int | None  # rank whose proxy sends (PXN)
    gdr: int | None  # 1 = GPUDirect RDMA; None where the transport is not NET
    shared: int
    direction: str | None  # send, receive
    channels: int  # how many different channels
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


class IbError(NamedTuple):
    """A work completion with an error (NCCL src/transport/net_ib*)."""

    host: str | None
    rank: int | None
    pid: int | None
    peer: str | None  # IP<port> of the peer's bootstrap interface
    status: int | None  # ibv_wc_status
    opcode: str | None  # undefined by verbs when the status is an error
    vendor_err: int | None
    request: str | None  # Send, Recv, Flush
    local_gid: str | None
    remote_gid: str | None
    hca: str | None
    n: int
    stamp: float | None
    ref: int


class IbEvent(NamedTuple):
    """An asynchronous event of an HCA or port."""

    host: str | None
    rank: int | None
    pid: int | None
    hca: str | None
    port: int | None
    event: str
    fatal: int | None
    n: int
    stamp: float | None
    ref: int


class VerbsError(NamedTuple):
    """A libibverbs call that failed."""

    host: str | None
    rank: int | None
    pid: int | None
    call: str  # ibv_reg_mr, ibv_modify_qp, …
    error: str | None  # text of errno
    errno: int | None
    hca: str | None
    gid_index: int | None
    local_gid: str | None
    remote_gid: str | None
    n: int
    stamp: float | None
    ref: int


class SocketError(NamedTuple):
    """A TCP call of NCCL that failed."""

    host: str | None
    rank: int | None
    pid: int | None
    call: str  # connect, recv, send, bind, accept, closed (by the peer), magic, type, family, truncated
    peer: str | None  # address as printed, without <port>
    port: int | None
    error: str | None
    retrying: int  # 1 where NCCL says that it tries again
    n: int
    stamp: float | None
    ref: int


class CudaError(NamedTuple):
    """A CUDA call that failed, as NCCL, PyTorch or Horovod print it."""

    host: str | None
    rank: int | None
    pid: int | None
    code: int | None
    text: str
    source: str | None  # file that reports it
    n: int
    stamp: float | None
    ref: int


class Trail(NamedTuple):
    """A step of NCCL's return trail: `file:line -> code`. Only the deepest, first printed, names the fault."""

    host: str | None
    rank: int | None
    pid: int | None
    source: str
    code: int  # 1 CUDA, 2 system, 3 internal, 4 argument, 5 usage, 6 remote
    thread: str | None
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


class Watchdog(NamedTuple):
    """What PyTorch's NCCL watchdog said about one collective."""

    host: str | None
    rank: int | None
    event: str  # timeout, status, dump, heartbeat, fingerprint, remote
    pg: str | None  # process group
    pg_name: str | None
    seq: int | None  # sequence number inside the process group
    op: str | None
    numel_in: int | None
    numel_out: int | None
    shape: str | None
    timeout_ms: int | None
    elapsed_ms: int | None
    enqueued: int | None
    started: int | None
    completed: int | None
    n: int
    stamp: float | None
    ref: int


class Xid(NamedTuple):
    """An NVIDIA driver or NVSwitch error in the kernel log."""

    host: str | None
    kind: str  # xid, sxid
    pci: str | None
    code: int
    pid: int | None
    process: str | None
    text: str
    fatal: int | None  # 1, 0 where the line says Fatal or Nonfatal
    previous: int | None  # code in `caused by previous Xid N`
    n: int
    stamp: float | None
    ref: int


class ProcessEnd(NamedTuple):
    """How a process ended, as somebody reports it."""

    host: str | None
    rank: int | None
    local_rank: int | None
    pid: int | None
    exitcode: int | None  # negative = signal
    signal: str | None  # SIGKILL, …
    reporter: str  # torchelastic, mpirun, horovodrun, srun, slurmstepd, kernel, dataloader, ray
    first: int | None  # 1 where the reporter calls it the first failure
    n: int
    stamp: float | None
    ref: int


class PythonError(NamedTuple):
    """The last line of a Python traceback, or an exception that a framework prints."""

    host: str | None
    rank: int | None
    pid: int | None
    type: str
    text: str
    n: int
    last_line: int
    stamp: float | None
    ref: int


class HorovodStall(NamedTuple):
    """A tensor or rank in a Horovod stall report."""

    tensor: str | None
    rank: int | None
    state: str  # missing, ready
    report: int  # number of the report in the log, from 1
    ref: int


class Progress(NamedTuple):
    """How often, and where last, a rank printed lines of one shape; from the last part of its output."""

    label: str  # rank label as printed
    rank: int | None
    host: str | None
    template: str  # the line with its numbers replaced
    times: int  # how often in that part
    last_value: str | None  # the numbers of the last such line
    position: int  # line number of the last such line
    ref: int


class Job(NamedTuple):
    """The job as a whole: one row, derived."""

    hosts: int | None  # nodes, after containers and equal host names are seen through; None = not known
    multi_node: int | None
    ranks: int | None
    processes: int | None
    nccl: str | None  # smallest NCCL version seen
    nccl_number: int | None  # 22105 for 2.21.5
    has_nccl: int
    has_info: int  # 1 where NCCL_DEBUG=INFO lines are there
    initialised: int  # communicators that came up
    lines: int


class Host(NamedTuple):
    """A host, derived from all that carries its name."""

    name: str
    ranks: int
    processes: int
    gpus: int | None  # different bus ids
    address: str | None  # of its bootstrap interface
    ref: int | None


class Rank(NamedTuple):
    """A rank of the job, derived."""

    rank: int
    host: str | None
    pid: int | None
    bus_id: str | None
    cuda_dev: int | None
    nvml_dev: int | None
    initialised: int | None  # 1 Init COMPLETE was printed, 0 only START
    last_line: int | None
    ref: int | None


class Link(NamedTuple):
    """What carries data between two hosts, or inside one; derived from connections."""

    src_host: str | None
    dst_host: str | None
    same_host: int | None  # None where a host is not known
    transport: str
    method: str | None
    network: str | None
    gdr: int | None
    connections: int
    channels: int
    devices: int | None  # different net devices
    ref: int


class EnvDifference(NamedTuple):
    """A setting that ranks or hosts do not share; derived."""

    name: str
    value: str | None  # None = not set there
    ranks: int  # how many ranks have this value
    of_ranks: int
    hosts: str  # blank-separated
    ref: int | None


class EnvLint(NamedTuple):
    """A setting of a host or rank that deserves a word; derived from `env` and the table of settings."""

    host: str | None
    rank: int | None
    name: str
    value: str
    verdict: str  # unknown, deprecated, removed, no-effect, debug-leftover, dangerous, bad-value
    detail: str  # why, as a clause
    ref: int


TABLES: tuple[type, ...] = (
    Evidence, Input, Message, Process, Communicator, NodeCount, InitTiming, Library, Env, Interface, NetDevice, Network, Plugin,
    Connection, Gdr, Ring, IbError, IbEvent, VerbsError, SocketError, CudaError, Trail, Collective, Watchdog, Xid, ProcessEnd,
    PythonError, HorovodStall, Progress, Job, Host, Rank, Link, EnvDifference, EnvLint,
)  # fmt: skip
