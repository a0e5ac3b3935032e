"""What profilers and the flight recorder of PyTorch say, and the summaries of Nsight Systems and nvprof."""

from nccl_doctor.common.named_tuples import NamedTuple


class Trace(NamedTuple):
    """What one GPU did in a trace of torch.profiler (Kineto), of one rank, or in a database of Nsight Systems, of one process."""

    file: str
    host: str | None
    rank: int | None
    world: int | None
    backend: str | None
    device: str | None  # name of the GPU; None where the trace shows the CPU alone
    tool: str | None  # torch.profiler, nsys, rocprof
    accelerator: str | None  # cuda, rocm, mtia, xpu, hpu; None where the trace does not tell
    workload: str | None  # training or inference; None where no operator of PyTorch is in the trace
    gpu: int | None  # as the process counts
    events: int
    span_s: float  # from the first to the last event on the GPU, without a GPU on the CPU
    compute_s: float | None  # GPU time of kernels other than communication
    comm_s: float  # time in which at least one collective ran, on the GPU or, without one, in the process
    exposed_s: float | None  # part of it without any other kernel running
    copy_s: float | None  # GPU time in copies and memset
    idle_s: float | None  # time in which the GPU did nothing
    gap_s: float | None  # the longest such time
    input_s: float | None  # time in which the training thread waited for the next batch
    steps: int | None  # whole profiler steps
    step_s: float | None  # median length of one
    steps_s: float | None  # their sum
    complete: int  # 0 where the file is cut
    ref: int


class TraceOp(NamedTuple):
    """One kind of collective in a trace; a kernel of NCCL also waits for the slowest peer."""

    file: str
    host: str | None
    rank: int | None
    op: str  # all_reduce, all_gather, send, ...
    place: str  # gpu, cpu
    n: int
    total_ms: float
    median_ms: float
    min_ms: float
    max_ms: float
    ref: int  # the longest


class TraceCall(NamedTuple):
    """One collective of one rank, the first 5000 of a trace."""

    file: str
    rank: int | None
    pg: str  # process group; '' where the trace does not say
    op: str
    seq: int  # number in the group where the trace says it, else the place among the calls of this operation
    elements: int | None
    at_ms: float  # since the first event of the trace
    took_ms: float
    ref: int


class Recorder(NamedTuple):
    """One dump of PyTorch's flight recorder: the last collectives of one rank."""

    file: str
    series: str  # the name without the rank: dumps of one moment share it
    rank: int | None  # from the name; the dump itself does not say
    version: str | None
    library: str | None  # version of NCCL
    entries: int
    form: str  # pickle, json
    ref: int


class RecorderGroup(NamedTuple):
    """A process group in a dump."""

    file: str
    rank: int | None
    pg: str
    description: str | None
    ranks: str | None  # comma-separated ranks of the job; None where the dump does not say
    enqueued: int | None  # number of the last collective
    started: int | None
    completed: int | None
    ref: int


class RecorderCall(NamedTuple):
    """An entry of a dump."""

    file: str
    rank: int | None
    pg: str
    seq: int  # number inside the group; of its own for sends and receives
    p2p: int
    op: str  # all_reduce, send 0->1, ...
    sizes: str  # of the inputs
    out_sizes: str
    dtypes: str
    state: str  # scheduled, started, completed
    finished: int  # 1 where it completed or was retired
    created: float | None  # seconds since the epoch
    entry: int  # place in the dump, from 1
    frame: str | None  # innermost line of the program that called it


class ProfileSum(NamedTuple):
    """A row of `nsys stats`, of nvprof's summary or of a table of torch.profiler: communication and copies, of others the 20 longest.

    Also the functions of Python with most time, or with most samples, of their own.
    """

    file: str
    tool: str  # nsys, nvprof, torch.profiler, also `torch.profiler (longest of 3 tables)` of a file with several
    report: str  # kernels, copies, api, ranges, functions, samples
    kind: str  # communication, compute, copy, memset, other
    name: str
    n: int  # calls; samples of a stack
    total_ms: float | None  # None where only samples were counted
    share: float | None  # per cent, as printed
    max_ms: float | None
    ref: int


class ProfileShare(NamedTuple):
    """Sums of all rows of one report by kind."""

    file: str
    tool: str
    report: str
    kind: str
    rows: int
    n: int
    total_ms: float | None  # None where only samples were counted
    ref: int  # the longest row
