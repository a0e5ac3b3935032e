"""Steady rates, stalls, scaling, stragglers, and what links allow; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class Steady(NamedTuple):
    """What the steps of a run amount to once it has warmed up; derived by change points, never by a mean."""

    run: int
    warmup: int  # lines left out at the start
    first_step: int | None  # of the steady part
    last_step: int | None
    points: int
    seconds: float | None  # median of a step in the steady part
    rate: float | None  # median, unit of the run
    mad: float | None  # median distance from the median, of the rate
    job_rate: float | None  # rate of the whole job: rate times GPUs or processes where it counts one of them
    drift: float | None  # relative change of the rate from the first to the last step (Theil-Sen); None = no trend
    regimes: int  # stretches of different speed after the warm-up
    lost: float | None  # share of the time after the warm-up above the median step (stalls)
    data: float | None  # share of the step time that waited for input
    ref: int


class RunWriter(NamedTuple):
    """Who printed the step lines of a run; no row where nothing says it. Derived from the lines and the ranks of the job."""

    run: int
    host: str | None
    rank: int | None  # in the job; computed from the rank on the node where the ranks of its host are known
    who: str  # as shown: `node01 rank 3`, `node01 local rank 3`, `local rank 3 of task 1`
    ref: int


class StepNumber(NamedTuple):
    """What the step lines of a run tell of the use of GPUs beside times and rates; derived from the lines that are kept."""

    run: int
    name: str  # mfu (model FLOPs utilisation), tflops, gpu_memory
    median: float
    highest: float
    n: int  # lines that were looked at and tell it
    unit: str  # %, TFLOP/s, TFLOP/s a GPU, GiB
    ref: int  # of the line with the highest


class Regime(NamedTuple):
    """A stretch of a run with one speed, between two change points; derived."""

    run: int
    position: int  # 0 = first after the warm-up
    first_step: int | None
    last_step: int | None
    points: int
    rate: float  # median
    seconds: float | None
    ratio: float  # rate over that of the fastest stretch
    ref: int  # its first line


class Stall(NamedTuple):
    """A step that took far longer than its neighbours; derived."""

    run: int
    step: int | None
    seconds: float
    times: float  # over the steady median
    steps: int  # whose mean `seconds` is
    event: str | None  # checkpoint or evaluation between this line and the one before it
    ref: int


class DipPeriod(NamedTuple):
    """Slow steps that come at a fixed distance; derived by autocorrelation."""

    run: int
    period: int  # steps
    dips: int  # how many follow it
    share: float  # of all slow steps
    times: float  # median length of a slow step over the steady median
    cost: float  # share of the run's time
    event: str | None  # event printed beside most of them: checkpoint, evaluation
    ref: int


class Scaling(NamedTuple):
    """Runs of one program at different GPU counts, against the smallest; derived."""

    series: str  # runs with the same one are compared: tool and unit
    run: int
    gpus: int
    gpus_source: str
    rate: float  # of the whole job, steady
    per_gpu: float
    speedup: float  # rate over that of the smallest
    ideal: float  # GPUs over those of the smallest
    efficiency: float  # speedup / ideal; of the work in floating point operations where the model differs
    basis: str  # rate, or work where the models differ in size
    serial: float | None  # share that does not run in parallel, fitted over 3 runs or more (Amdahl), not by work
    model: str | None
    ref: int


class InputShare(NamedTuple):
    """A run with real data beside one with synthetic data at the same GPU count; derived."""

    run: int  # with real data
    synthetic_run: int
    gpus: int
    rate: float
    synthetic_rate: float
    share: float  # of the time of a step that the input pipeline costs
    ref: int


class BenchLimit(NamedTuple):
    """What a run of nccl-tests reached and what its links allow; derived."""

    run: int
    plateau: float | None  # GB/s bus bandwidth: median of the three largest sizes, from 32 MiB
    plateau_size: int | None  # the smallest of these sizes
    floor_us: float | None  # median time of the sizes up to 4 KiB
    half_size: int | None  # bytes at which half of the plateau is reached, between two sizes that were run
    limit_: float | None  # GB/s that the slowest link on the way allows
    basis: str | None  # where the limit comes from: nvlink, pcie, network, or graph = NCCL's own ring
    why: str | None  # a clause
    known: int  # 1 where the path is proved by the log, 0 where it is assumed
    ref: int


class BenchHost(NamedTuple):
    """What a host reached in runs of nccl-tests that others took the place of it in; derived from the runs of many hosts."""

    host: str
    runs: int
    partners: int  # sets of other hosts that it ran with
    slow: int  # runs that were slow
    busbw: float  # GB/s at large sizes: the median of its runs
    usual: float  # GB/s: the same of the usual host
    ratio: float  # of its better half of the runs to the usual
    factor: float | None  # what is left of the bandwidth where the host itself is slow; None where it is not
    ref: int


class BenchLink(NamedTuple):
    """What two hosts reached together in runs of nccl-tests, beside what other pairs reached; derived."""

    src_host: str
    dst_host: str
    runs: int
    busbw: float  # GB/s at large sizes: the median of the runs
    usual: float  # GB/s: the same of the usual host
    ratio: float
    spread: float | None  # between the fastest and the slowest run of an operation, as a share of the fastest
    culprit: str | None  # why it is slow: src, dst or both = that host, link = the path, unclear; None where it is not
    ref: int


class TraceArrival(NamedTuple):
    """Derived: how long one rank waited in collectives that other ranks shared; who comes last waits least."""

    rank: int
    host: str | None
    calls: int  # that all traces of the group show
    shortest: int  # in which it waited least of all by a clear distance
    took_ms: float  # median time of its calls
    waited_s: float  # time beyond that of the rank that waited least
    caused_s: float  # mean waiting of the others in the calls in which it came last
    span_s: float
    ref: int


class GpuPeer(NamedTuple):
    """How one GPU compares with the others that were sampled at the same time; derived."""

    host: str | None
    gpu: int | None
    metric: str  # utilisation, SM activity, power, clock
    value: float
    median: float  # of the other GPUs
    mad: float  # median distance of the others from their median
    score: float  # distance from the median in scaled MADs, negative = lower
    ratio: float  # value to median
    peers: int  # other GPUs
    samples: int | None  # of this GPU; None for means that another program made
    ref: int


class CopySlow(NamedTuple):
    """A GPU, a pair of GPUs or a host whose copies are slow beside the others of the same matrix; derived.

    A GPU that is cut off can copy to no other one, where the others can.
    """

    what: str  # host-link (GPU and host memory), local (inside a GPU), gpu (to all others), gpu-far (to other hosts), pair, host, cut-off
    host: str | None
    gpu: int | None
    peer_host: str | None
    peer: int | None  # of a pair
    tests: int  # in which it is slow
    test: str  # where it is slowest
    unit: str
    value: float | None
    usual: float
    ratio: float  # of the bandwidth that is usual; for a latency, of the usual by that of the culprit
    alone: int  # 1 where few enough are slow that the others prove it
    ref: int
