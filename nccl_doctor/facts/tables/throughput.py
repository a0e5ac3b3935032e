"""How fast a job trained: what its step lines say, and what follows from them."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.tables.base import joined_by


class ThroughputRun(NamedTuple):
    """A series of step lines that one program printed in one log.

    A log holds several where ranks print their own, or where the world changes its size between two benchmarks.
    """

    run: int  # number that the other tables use
    file: str
    host: str | None
    rank: int | None  # from the launcher's label
    tool: str  # tf-cnn-benchmarks, fairseq, megatron, deepspeed, torchtitan, tf-official, horovod-synthetic, tqdm, …
    unit: str  # of `rate`: samples/s, tokens/s, steps/s
    scope: str  # what one rate counts: job, gpu or process
    points: int  # lines read; repeated ones of other ranks are left out
    first_step: int | None
    last_step: int | None
    gpus: int | None  # of the job
    gpus_source: str | None  # world-size, arguments, batch, file-name
    batch: int | None  # samples of one step of the whole job
    layers: int | None  # of a transformer
    hidden: int | None
    sequence: int | None  # tokens a sample
    vocabulary: int | None
    pipeline: int | None  # pipeline stages
    microbatches: int | None  # that go through the pipeline in one step
    synthetic: int | None  # 1 = generated input data, 0 = a data set is named
    total: float | None  # rate over everything that the program printed at the end
    local_rank: int | None  # rank on the node, of lines that name no rank in the job
    task: int | None  # srun's number in front of a local rank: which of the nodes
    ref: int


class Step(NamedTuple):
    """One step line of a run, or several neighbours folded into one row (long runs keep some thousand rows)."""

    run: int
    step: int | None
    last_step: int | None
    n: int  # lines folded
    seconds: float | None  # of one step; the faster of two where neighbours differ by more than half, else their mean
    rate: float | None  # in the unit of the run, as printed or computed from seconds and batch
    slowest: float  # how many times longer than the others the slowest line folded here took; `ref` shows it
    slowest_step: int | None
    data: float | None  # seconds of a step that waited for input, the largest folded here
    spent: float | None  # seconds of all lines folded here that tell both, and those of them that waited for input
    waited: float | None
    line: int
    stamp: float | None
    ref: int


class RankTime(NamedTuple):
    """The time that one rank spends in one part of a step, as it printed it: forward pass, data, optimizer, …"""

    file: str
    host: str | None
    rank: int | None  # None: the slowest of all ranks, where a program tells that and the fastest
    name: str  # as printed: forward-compute, fwd, data
    n: int
    seconds: float  # median over steps
    unit: str | None  # s; None where the lines name no unit, which may be ms as well
    least: float | None  # seconds of the fastest rank, median over steps
    slowest: float  # the largest, which `ref` shows
    ref: int


class RunSetting(NamedTuple):
    """How a run divides its work, as its program printed it at the start."""

    run: int
    name: str  # tensor parallel, pipeline parallel, data parallel, …, sequence length, micro batch, global batch, ZeRO stage
    value: str
    ref: int


class Scalar(NamedTuple):
    """A number that a library kept of each step under a name of its own: TensorBoard, Weights & Biases, Hugging Face Trainer."""

    file: str
    name: str  # train/loss, throughput/device/tokens_per_sec, ...
    n: int
    first_step: int | None
    last_step: int | None
    first: float | None
    last: float | None
    lowest: float | None
    highest: float | None
    not_finite: int  # values that are nan or inf
    ref: int  # the first value that is not finite, else the last


class LossScale(NamedTuple):
    """What became of the dynamic loss scale of a run, and of steps that did not count."""

    run: int
    first: float | None
    last: float | None
    lowest: float | None
    halvings: int  # how often it was lowered
    longest_fall: int  # times in a row without being raised in between
    skipped: int  # steps skipped because a gradient was not finite
    nan: int  # iterations or lines whose loss is not a number
    last_step: int | None  # of the last lowering
    ref: int


class TrainingEvent(NamedTuple):
    """A line that explains why a step took long: checkpoint or evaluation."""

    file: str
    line: int
    kind: str  # checkpoint, evaluation
    ref: int


class CommOp(NamedTuple):
    """A collective that DeepSpeed's communication logger or a benchmark other than nccl-tests timed; equal ones of a rank are folded."""

    host: str | None
    rank: int | None
    op: str
    size: int | None  # bytes, as exact as the printed size; None of all gradients of a step (`backward_allreduce`)
    n: int
    milliseconds: float  # median, mean in a table of DeepSpeed
    slowest: float | None  # unknown in such a table
    busbw: float | None  # Gbit/s, median
    ref: int


class MlperfRun(NamedTuple):
    """A run that wrote MLPerf's `:::MLLOG` events."""

    file: str
    benchmark: str | None
    status: str | None  # success or aborted; None where the run did not stop
    init_s: float | None  # from init_start to init_stop or run_start
    seconds: float | None  # from run_start to run_stop
    samples: int | None  # trained until the last event that tells
    epochs: int | None  # that ended; None where no event tells of epochs
    quality: float | None  # last evaluation
    target: float | None  # quality that ends the run
    ref: int


class BenchRun(NamedTuple):
    """One run of an nccl-tests program."""

    run: int
    file: str
    operation: str | None  # all_reduce, …; None where the log does not say
    ranks: int | None
    hosts: int | None
    gpu: str | None  # model, where all have the same
    shared_gpu: int  # 1 where two ranks of a host use the same device
    version: str | None  # of nccl-tests
    nccl: str | None
    rows: int
    avg_busbw: float | None  # GB/s over all sizes and both placements, as printed
    out_of_bounds: int | None
    verdict: str | None  # OK, FAILED = wrong data, SLOW = below NCCL_TESTS_MIN_BW; None = the test does not say
    wrong: int | None  # wrong elements over all rows; None = not checked
    finished: int  # 1 where the summary was printed
    headings: int  # parameter lines in a row before its devices: more than one = several copies print here
    copies: int  # processes that print into this file as if each were the only one; 1 for an ordinary run
    graph_bw: float | None  # GB/s of the ring that NCCL itself computed, from the same log
    ref: int


@joined_by("run, size")
class BenchRow(NamedTuple):
    """One size of an nccl-tests run, one placement.

    Of a run that is as 200 earlier ones of its file, only the sizes that show its plateau, its latency and half of its bandwidth.
    """

    run: int
    size: int  # bytes
    elements: int | None
    type: str | None
    redop: str | None
    root: int | None
    place: str  # out or in
    time_us: float
    algbw: float  # GB/s
    busbw: float
    wrong: int | None  # None = N/A
    error: float | None  # largest deviation, in versions that print it
    ref: int


class BenchSpread(NamedTuple):
    """Single iterations of one size of an nccl-tests run with `-I`."""

    run: int
    size: int  # bytes
    time_us: float  # of all iterations, the mean
    least_us: float
    most_us: float
    ref: int


class BenchMember(NamedTuple):
    """A host that took part in a run of nccl-tests."""

    run: int
    host: str
    ranks: int
    ref: int


class BenchExpected(NamedTuple):
    """What runs of nccl-tests have to reach, as `analyze --expect` says it."""

    operation: str | None  # None: each operation without a number of its own
    busbw: float  # GB/s with large messages
    ref: int


class PrintedNumber(NamedTuple):
    """A rate or a time that a file tells under a name of its own; of files that no other reader knows."""

    file: str
    name: str  # as printed, without numbers of steps
    unit: str  # as printed; empty where the file does not say it
    kind: str | None  # rate, time; None for numbers of a table that are neither by their names
    n: int
    median: float
    last: float
    last_label: str | None  # what it belongs to, such as a host or a size; None where nothing names it
    lowest: float
    lowest_label: str | None
    highest: float
    highest_label: str | None
    worst_ref: int  # the lowest rate, the highest of others
    ref: int  # the last
