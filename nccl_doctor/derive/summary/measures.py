"""The numbers that a report shows whatever it finds: step times, throughput, bus bandwidth, shares of time, start-up."""

from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.speed.throughput import TIMES_ONE_STEP
from nccl_doctor.derive.summary import SOURCES, gpu_measures, listed, topology_measures
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    AccountedJob,
    ActiveTest,
    BenchHost,
    BenchLimit,
    BenchLink,
    BenchRow,
    BenchRun,
    C2cState,
    CommOp,
    CopyRate,
    CopySlow,
    CopyTest,
    GpuProcess,
    GpuUse,
    HostNumber,
    HostUse,
    IbPort,
    InitTiming,
    InspectorColl,
    LinkCounter,
    LinkQuality,
    ListedNumber,
    LossScale,
    Measure,
    Message,
    MlperfRun,
    NodeGpu,
    NvlinkState,
    PanelSeries,
    PrintedNumber,
    ProfileShare,
    RecordedRun,
    Scalar,
    Scaling,
    Steady,
    Step,
    StepNumber,
    ThroughputRun,
    Timeline,
    TopoGpu,
    TopoGraph,
    TopoNet,
    Trace,
)  # fmt: skip

# scope and name of what a trace shows: a rank, or a GPU of a process that has none
_TRACED = (
    "CASE WHEN tool IS 'nsys' THEN 'gpu' ELSE 'rank' END,"
    " CASE WHEN tool IS 'nsys' THEN file || ' GPU ' || gpu ELSE coalesce(rank, file) END"
)
# Bandwidths of copies to or from the host, and both numbers of each pair of GPUs, for both GPUs of it.
_COPIES = """
SELECT r.host, r.gpu, t.kind, r.value, r.ref FROM copy_rate r JOIN copy_test t ON t.number = r.test
WHERE t.measure = 'bandwidth' AND t.kind IN ('host', 'pair') AND r.value IS NOT NULL AND t.test NOT LIKE '%P2P=Disabled%'
UNION ALL
SELECT r.peer_host, r.peer, t.kind, r.value, r.ref FROM copy_rate r JOIN copy_test t ON t.number = r.test
WHERE t.measure = 'bandwidth' AND t.kind = 'pair' AND r.value IS NOT NULL AND t.test NOT LIKE '%P2P=Disabled%'
"""
# Each query yields the columns of `measure` in their order. Numbers that the inputs do not hold yield no row.
QUERIES = (
    "SELECT 'scaling_efficiency', 100 * efficiency, '%', 'run', gpus || ' GPUs', ref FROM scaling",
    # steps that did not count (formats/training/steps/loss_scale.py)
    "SELECT 'skipped_steps', l.skipped, 'steps', 'run', t.tool, l.ref FROM loss_scale l JOIN throughput_run t USING (run)",
    "SELECT 'nan_steps', l.nan, 'steps', 'run', t.tool, l.ref FROM loss_scale l JOIN throughput_run t USING (run) WHERE l.nan > 0",
    # what step lines tell of the use of GPUs (derive/speed/step_numbers.py)
    "SELECT n.name, iif(n.name = 'gpu_memory', max(n.highest), median(n.median)), n.unit, 'run', t.tool, n.ref FROM step_number n"
    " JOIN throughput_run t USING (run) GROUP BY t.file, n.name, n.unit",
    "SELECT 'gpu_memory', max(CAST(field(fields, 'max_reserved') AS REAL)) / 1024, 'GiB', 'run', 'megatron', ref FROM message"
    " WHERE kind = 'megatron-memory' GROUP BY kind",
    # the losses that TensorBoard, Weights & Biases and the Hugging Face Trainer keep
    "SELECT 'loss', last, '', 'run', name, ref FROM scalar WHERE last IS NOT NULL"
    " AND name REGEXP '(?i)(^|[/_.-])loss(_(step|epoch))?$' LIMIT 8",
    # nccl-tests: what small messages take (derive/speed/nccl_tests.py), and the average that the program prints
    "SELECT 'latency', min(l.floor_us), 'us', 'run', coalesce(b.operation, ''), l.ref FROM bench_limit l"
    " JOIN bench_run b USING (run) WHERE l.floor_us IS NOT NULL AND b.ranks IS NOT 1 AND (b.ranks > 1 OR b.copies = 1)"
    " GROUP BY b.file, b.operation, b.ranks",
    "SELECT 'busbw_average', avg_busbw, 'GB/s', 'run', coalesce(operation, ''), ref FROM bench_run"
    " WHERE avg_busbw IS NOT NULL AND ranks IS NOT 1"
    " AND (ranks > 1 OR copies = 1) AND rows > 3",
    "SELECT 'half_bandwidth_size', max(l.half_size), 'B', 'run', coalesce(b.operation, ''), l.ref FROM bench_limit l"
    " JOIN bench_run b USING (run) WHERE l.half_size IS NOT NULL GROUP BY b.file, b.operation, b.ranks",
    # runs of nccl-tests on different hosts, compared (derive/speed/pairs.py)
    "SELECT 'busbw', busbw, 'GB/s', 'host', host, ref FROM bench_host",
    "SELECT 'busbw_of_usual', 100 * ratio, '%', 'host', host, ref FROM bench_host",
    "SELECT 'slow_runs', slow, 'runs', 'host', host, ref FROM bench_host",
    "SELECT 'runs', runs, 'runs', 'host', host, ref FROM bench_host",
    "SELECT 'busbw', busbw, 'GB/s', 'pair', src_host || ' ' || dst_host, ref FROM bench_link",
    "SELECT 'busbw_of_usual', 100 * ratio, '%', 'pair', src_host || ' ' || dst_host, ref FROM bench_link",
    "SELECT 'busbw_spread', 100 * spread, '%', 'pair', src_host || ' ' || dst_host, ref FROM bench_link"
    " WHERE spread IS NOT NULL",
    # copies between GPUs and host memory (derive/speed/copies.py)
    "SELECT iif(t.measure = 'latency', 'copy_latency', 'copy_bandwidth'), median(r.value), t.unit, 'run', t.test, min(r.ref)"
    " FROM copy_test t JOIN copy_rate r ON r.test = t.number WHERE r.value IS NOT NULL GROUP BY t.tool, t.test ORDER BY min(t.number)",
    "SELECT iif(kind = 'host', 'host_copy', 'peer_copy'), median(value), 'GB/s', 'gpu', coalesce(host || ' ', '') || 'GPU ' || gpu,"
    f" min(ref) FROM ({_COPIES}) GROUP BY host, gpu, kind",
    "SELECT 'copy_bandwidth', value, unit, 'pair', coalesce(host || ' ', '') || 'GPU ' || gpu || ' and '"
    " || coalesce(peer_host || ' ', '') || 'GPU ' || peer, ref FROM copy_slow WHERE what = 'pair' AND unit = 'GB/s'",
    # perftest between two cards
    "SELECT iif(unit = 'us', 'rdma_latency', 'rdma_bandwidth'), value, unit, 'link',"
    " coalesce(host || ' ', '') || coalesce(device || ' ', '') || test, ref FROM active_test"
    " WHERE tool = 'perftest' AND value IS NOT NULL LIMIT 2000",
    # iperf3 and netperf between two hosts, fio on a file system
    "SELECT iif(tool = 'fio', 'storage', test) || iif(unit = 'us', '_latency', '_bandwidth'), value, unit,"
    " iif(tool = 'fio', 'host', 'link'),"
    " coalesce(host || ' ', '') || coalesce(device, test), ref FROM active_test"
    " WHERE tool IN ('iperf3', 'netperf', 'fio') AND value IS NOT NULL LIMIT 2000",
    # OSU micro-benchmarks, Linpack, servers of language models under load
    "SELECT CASE WHEN tool IN ('osu', 'imb') THEN iif(unit = 'us', 'mpi_latency', 'mpi_bandwidth')"
    " WHEN tool IN ('ucx', 'fabtests', 'deepep') THEN iif(unit = 'us', 'message_latency', 'message_bandwidth')"
    " WHEN tool = 'hpl' THEN 'linpack' WHEN tool = 'gpu-burn' THEN 'gpu_burn'"
    " WHEN tool = 'ior' OR tool = 'elbencho' AND unit = 'MiB/s' THEN 'storage_bandwidth'"
    " WHEN tool IN ('stream', 'babelstream') THEN 'memory_bandwidth'"
    " WHEN tool IN ('mdtest', 'elbencho') OR tool = 'io500' AND unit = 'ops/s' THEN 'storage_operations'"
    " WHEN tool = 'io500' THEN iif(unit = 'MB/s', 'storage_bandwidth', 'io500_score')"
    " WHEN tool = 'dlio' THEN CASE unit WHEN '%' THEN 'accelerators_busy' WHEN 'MB/s' THEN 'storage_bandwidth' ELSE 'storage_samples' END"
    " WHEN tool = 'hpcg' THEN 'hpcg' ELSE 'serving' END,"
    " value, coalesce(unit, ''), iif(tool = 'gpu-burn', 'gpu', 'run'),"
    " iif(tool = 'hpl', coalesce(text, ''),"
    " coalesce(host || ' ', '') || coalesce(iif(tool = 'gpu-burn', 'GPU ', '') || device || ' ', '') || test), ref"
    " FROM active_test WHERE tool IN ('osu', 'imb', 'ucx', 'fabtests', 'deepep', 'hpl', 'gpu-burn',"
    " 'ior', 'stream', 'babelstream', 'hpcg', 'mdtest', 'io500', 'dlio', 'elbencho', 'serving')"
    " AND value IS NOT NULL LIMIT 2000",
    # NVLink-C2C between GPU and CPU
    "SELECT 'c2c_bandwidth', total, 'GB/s', 'gpu', coalesce(host || ' ', '') || 'GPU ' || gpu, ref FROM c2c_state",
    "SELECT 'c2c_bandwidth', c2c / 1000.0, 'GB/s', 'gpu', file || ' GPU ' || coalesce(gpu, bus, ''), ref FROM topo_gpu WHERE c2c > 0",
    # Horovod timelines: shares of the run
    "SELECT 'negotiate', 100 * negotiate_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    "SELECT 'collective', 100 * collective_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    "SELECT 'idle', 100 * idle_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    # traces of torch.profiler: shares of the span on the GPU
    f"SELECT 'exposed_communication', 100 * exposed_s / span_s, '%', {_TRACED}, ref FROM trace"
    " WHERE span_s > 0 AND exposed_s IS NOT NULL",
    f"SELECT 'communication', 100 * comm_s / span_s, '%', {_TRACED}, ref FROM trace"
    " WHERE span_s > 0 AND comm_s IS NOT NULL",
    f"SELECT 'gpu_idle', 100 * idle_s / span_s, '%', {_TRACED}, ref FROM trace WHERE span_s > 0 AND idle_s IS NOT NULL",
    f"SELECT 'step_time', step_s, 's', {_TRACED}, ref FROM trace WHERE step_s > 0",
    # summaries of profilers: kernels of one process, or functions of Python
    "SELECT 'communication', 100 * sum(iif(kind = 'communication', total_ms, 0)) / sum(total_ms), '%', 'run', tool || ' ' || file, min(ref)"
    " FROM profile_share WHERE report IN ('kernels', 'functions') GROUP BY file, tool, report HAVING sum(total_ms) > 0",
    "SELECT replace(kind, ' ', '_'), 100.0 * n / sum(n) OVER (PARTITION BY file), '%', 'run', file, ref FROM profile_share"
    " WHERE report = 'samples'",
    "SELECT 'profiled', sum(total_ms) / 1000, 's', 'run', tool || ' ' || file, min(ref) FROM profile_share"
    " WHERE report IN ('kernels', 'functions') GROUP BY file, tool, report",
    # profiler plug-ins of NCCL: the kinds and sizes that took most time
    *(
        f"SELECT '{name}', median({column}), '{unit}', 'collective', op || ' of ' || size || ' B', min(ref) FROM inspector_coll"
        f" WHERE {column} IS NOT NULL AND timing IS NOT 'collective_cpu' GROUP BY op, size ORDER BY sum(n * time_median) DESC LIMIT 20"
        for name, column, unit in (
            ("collective_time", "time_median", "us"),
            ("algbw", "algbw_median", "GB/s"),
            ("busbw", "busbw_median", "GB/s"),
        )
    ),
    # MLPerf: from run_start to run_stop
    "SELECT 'time_to_train', seconds, 's', 'run', coalesce(benchmark, ''), ref FROM mlperf_run WHERE seconds > 0",
    "SELECT 'quality', quality, '', 'run', coalesce(benchmark, ''), ref FROM mlperf_run WHERE quality IS NOT NULL",
    "SELECT 'epochs', epochs, 'epochs', 'run', coalesce(benchmark, ''), ref FROM mlperf_run WHERE epochs > 1",
    # a library that keeps values of steps, without times
    "SELECT 'steps', max(last_step) + coalesce(min(iif(name LIKE 'eval%' OR name IN ('epoch', 'step'), NULL, first_step)) = 0, 0), 'steps',"
    " 'run', file, max(ref) FROM scalar WHERE last_step > first_step"
    " AND NOT EXISTS (SELECT 1 FROM throughput_run) GROUP BY file",
    # tables with a row an epoch (Keras, timm)
    "SELECT 'epochs', n, 'epochs', 'run', file, ref FROM scalar WHERE name = 'epoch' AND first_step IS NULL"
    " AND last - first = n - 1 AND n > 1",
    *gpu_measures.QUERIES,
    *topology_measures.QUERIES,
    *listed.QUERIES,
    "SELECT 'cpu_busy', max(cpu_mean), '%', 'host', coalesce(host, ''), ref FROM host_use WHERE cpu_mean IS NOT NULL GROUP BY host",
    # series of dashboards whose quantity is not known
    "SELECT 'panel_mean', mean, '', iif(host IS NULL, 'run', 'host'), name, ref FROM panel_series LIMIT 2000",
    # links: what mlxlink measured, and errors that commands counted
    "SELECT 'effective_ber', effective_ber, '', 'link', coalesce(host || ' ', '') || link, ref FROM link_quality"
    " WHERE effective_ber IS NOT NULL",
    "SELECT 'link_errors', sum(value), 'errors', 'link', coalesce(host || ' ', '') || link, min(ref)"
    " FROM (SELECT host, link, max(value) AS value, max(ref) AS ref FROM link_counter WHERE value > 0"
    " AND name NOT IN ('port_xmit_wait', 'pci_write_stalled_percent') AND name NOT GLOB '*_pause' GROUP BY file, host, link, name)"
    " GROUP BY host, link",
    # names of anybody's own (formats/printed)
    "SELECT 'printed_' || coalesce(kind, 'number'), median, unit, 'run', name, ref FROM printed_number LIMIT 200",
    # Slurm's accounting
    "SELECT 'elapsed', elapsed_s, 's', 'batch-job', job, ref FROM accounted_job WHERE elapsed_s IS NOT NULL",
    "SELECT 'waited', waited_s, 's', 'batch-job', job, ref FROM accounted_job WHERE waited_s IS NOT NULL LIMIT 2000",
    "SELECT 'max_rss', max_rss, 'MiB', 'batch-job', job, ref FROM accounted_job WHERE max_rss IS NOT NULL",
    "SELECT 'cpu_efficiency', 100 * cpu_efficiency, '%', 'batch-job', job, ref FROM accounted_job WHERE cpu_efficiency IS NOT NULL",
    "SELECT 'memory_efficiency', 100 * memory_efficiency, '%', 'batch-job', job, ref FROM accounted_job"
    " WHERE memory_efficiency IS NOT NULL",
    # NCCL's own timing of a communicator's start, the slowest rank of the largest communicator
    "SELECT 'startup', max(total), 's', 'job', '', ref FROM init_timing"
    " WHERE nranks IS (SELECT max(nranks) FROM init_timing) GROUP BY NULL HAVING max(total) IS NOT NULL",
    "SELECT 'duration', ended - started, 's', 'job', '', ref FROM recorded_run WHERE ended > started",
)


_FEW = 3  # steps of which one may be the warm-up
_EPOCHS = "epochs/s"  # unit of runs of which only epochs are known
_SUMMARIES = ("hf-trainer", "lightning")  # tools that print one line at the end, not a line a step
_UNCOUNTED = (
    "composer",
    "olmo",
    "mindspore",
    "mlperf",
    "dllogger-summary",
)  # tools whose lines name no step, and are not one a step


@derivation(
    fills=[Measure],
    needs=SOURCES,
    reads=[
        Steady, ThroughputRun, Step, StepNumber, Scaling, BenchLimit, BenchHost, BenchLink, BenchRun, BenchRow, CommOp, MlperfRun,
        AccountedJob, Timeline, Trace, GpuProcess, GpuUse, NodeGpu, InitTiming, InspectorColl, LossScale, RecordedRun,
        Scalar, LinkCounter, LinkQuality, CopyTest, CopyRate, CopySlow, C2cState, TopoGpu, TopoGraph, TopoNet, ActiveTest, HostUse,
        HostNumber, PrintedNumber, PanelSeries, Message, ProfileShare, ListedNumber, NvlinkState, IbPort,
    ],
)  # fmt: skip
def measures(facts: Facts) -> Iterator[Measure]:
    """The numbers with their units: training, benchmarks, then what `QUERIES` find."""
    yield from _training(facts)
    yield from _plateaus(facts)
    for query in QUERIES:
        for name, value, unit, scope, of, ref in facts.query(query):
            yield Measure(name, value, unit, scope, str(of), ref)


def _training(facts: Facts) -> Iterator[Measure]:
    """Medians of the steady part of the runs that show the job best (derive/speed/throughput.py)."""
    steady = {row.run: row for row in facts.rows(Steady)}
    spreads = dict(
        facts.query("SELECT run, mad(seconds) FROM step WHERE seconds IS NOT NULL GROUP BY run HAVING count(*) > 2")
    )
    means = dict(
        facts.query(
            "SELECT run, sum(seconds * (n - 1 + slowest) * w) / sum(n * w) FROM (SELECT s.*, iif(t.tool = 'tqdm' AND n = 1, max(1, step"
            " - lag(s.last_step) OVER (PARTITION BY s.run ORDER BY line, step)), 1) AS w FROM step s JOIN throughput_run t USING (run)"
            " WHERE seconds IS NOT NULL) GROUP BY run HAVING count(*) > 2"  # a bar tells the mean since it was drawn before
        )
    )
    strides = dict(
        facts.query(
            "SELECT run, min(gap) FROM (SELECT run, step - lag(last_step) OVER (PARTITION BY run ORDER BY line, step) AS gap FROM step)"
            " WHERE gap > 0 GROUP BY run"
        )
    )
    counts: dict[tuple[str, str], int] = defaultdict(int)
    before: dict[tuple[str, str], ThroughputRun] = {}
    runs = _principal(facts.rows(ThroughputRun), steady)
    for run in runs:
        of, steps = (run.file, f"{run.rank} {run.local_rank} {run.task}"), _steps(run, strides.get(run.run))
        if (other := before.get(of)) is not None and other.host != run.host and _overlap(other, run):
            counts[of] = max(counts[of], steps)  # of another pod, beside it
        else:
            counts[of] += steps
        before[of] = run
        speed = steady.get(run.run)
        if speed is None:
            continue
        numbers = (
            {
                "epoch_time": (speed.seconds, "s"),
            }
            if run.unit == _EPOCHS
            else {
                "step_time": (speed.seconds, "s"),
                "step_spread": (spreads.get(run.run), "s"),
                "step_mean": (means.get(run.run) if run.tool not in TIMES_ONE_STEP else None, "s"),
                "throughput": _rate(run, speed),
                "data_wait": (100 * speed.data if speed.data is not None else None, "%"),
            }
        )
        for name, (value, unit) in numbers.items():
            if value is not None:
                yield Measure(name, value, unit, "run", run.tool, speed.ref)
        if run.tool == "deepspeed-timers" and speed.seconds:
            for milliseconds, ref in facts.query(_LONGEST_ALL_REDUCE, (run.rank or 0, run.rank or 0)):
                yield Measure("allreduce_share", milliseconds / speed.seconds / 10, "%", "run", run.tool, ref)
    yield from _rates_beside(facts.rows(ThroughputRun), runs, steady)
    if most := max(counts.values(), default=0):
        what = "epochs" if all(run.unit == _EPOCHS for run in runs) else "steps"
        yield Measure(what, most, what, "job", "", runs[0].ref)


def _rates_beside(
    every: list[ThroughputRun], shown: list[ThroughputRun], steady: dict[int, Steady]
) -> Iterator[Measure]:
    """The rates that other lines of a file print beside those that time its steps, such as metrics beside a progress bar."""
    timed = {run.file for run in shown} - {run.file for run in shown if run.unit != "steps/s"}
    best: dict[str, list[ThroughputRun]] = defaultdict(list)
    for run in every:
        if run.file in timed and run.unit != "steps/s" and run.tool not in _SUMMARIES and run.run in steady:
            best[run.file].append(run)
    for runs in best.values():
        tool = max(runs, key=lambda run: run.points).tool
        for run in runs:
            speed = steady[run.run]
            rate, unit = _rate(run, speed)
            if run.tool == tool and rate is not None:
                yield Measure("throughput", rate, unit, "run", run.tool, speed.ref)


def _rate(run: ThroughputRun, speed: Steady) -> tuple[float | None, str]:
    """The rate of the job and its unit; that of one GPU or process where nothing tells how many there are."""
    if run.total and run.points <= _FEW and run.scope == "job":
        return run.total, run.unit  # the program's own mean says more than single steps
    if speed.job_rate is not None:
        return speed.job_rate, run.unit
    of = {"gpu": " a GPU", "process": " a process"}.get(run.scope, "") if run.unit != "steps/s" else ""
    return speed.rate, run.unit + of


_LONGEST_ALL_REDUCE = """
SELECT milliseconds, ref FROM comm_op
WHERE op = 'backward_allreduce' AND coalesce(rank, ?) = ? AND n > 0 AND milliseconds IS NOT NULL
ORDER BY milliseconds DESC LIMIT 1
"""


def _principal(runs: list[ThroughputRun], steady: dict[int, Steady]) -> list[ThroughputRun]:
    """The runs of one tool a file: several print the same steps, in units of their own. Step lines with seconds say most."""
    by_tool: dict[str, dict[str, list[ThroughputRun]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        by_tool[run.file][run.tool].append(run)

    def worth(tool: str, own: list[ThroughputRun]) -> tuple[bool, bool, int]:
        timed = any(run.run in steady and steady[run.run].seconds for run in own)
        return tool not in (*_SUMMARIES, "epochs"), timed, sum(run.points for run in own)

    best = [max(tools.items(), key=lambda item: worth(*item))[1] for tools in by_tool.values()]
    return [run for own in best for run in own]


def _overlap(one: ThroughputRun, other: ThroughputRun) -> bool:
    """Whether both print steps of one range, as two jobs at a time do; one that goes on elsewhere does not."""
    if one.first_step is None or one.last_step is None or other.first_step is None or other.last_step is None:
        return True
    return one.first_step < other.last_step and other.first_step < one.last_step


def _steps(run: ThroughputRun, least: int | None) -> int:
    """Steps that a run went through; a program may print every tenth only, and the last of an epoch besides; `least` apart."""
    if run.first_step is None or run.last_step is None or run.last_step <= run.first_step:
        return (run.last_step or 0) if run.tool in (*_SUMMARIES, *_UNCOUNTED) else run.points
    if run.points < 2:
        return run.last_step - run.first_step + 1
    stride = (run.last_step - run.first_step) / (run.points - 1)
    if least is not None and run.first_step == 0:
        stride = min(stride, least)
    steps = round(run.last_step - run.first_step + stride)
    return min(steps, run.last_step) if run.tool == "tqdm" or run.first_step == 1 else steps  # a bar counts from 1


def _plateaus(facts: Facts) -> Iterator[Measure]:
    """Bus bandwidth at the largest size; runs of one operation in a file, such as one a size, count together.

    Of a run of one rank the bandwidth of its own memory (algbw out of place): between GPUs nothing moves, and busbw is printed as 0.
    """
    sizes: dict[tuple[str, int | None, str], dict[int, list[tuple[float, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    runs = {run.run: run for run in facts.rows(BenchRun)}
    operations: dict[tuple[str, int | None], set[str]] = defaultdict(set)
    for run in runs.values():
        if run.operation:
            operations[run.file, run.ranks].add(run.operation)
    for number, size, place, algbw, busbw, ref in facts.each(
        "SELECT run, size, place, algbw, busbw, ref FROM bench_row r JOIN (SELECT run, max(size) AS size FROM bench_row GROUP BY run)"
        " USING (run, size) ORDER BY r.rowid"
    ):
        run = runs[number]
        if run.ranks in (None, 1) and run.copies > 1:
            continue  # which of them a row belongs to is not known
        if run.ranks == 1:
            if place == "out":
                yield Measure("algbw_alone", algbw, "GB/s", "run", run.operation or "", ref)
            continue
        known = operations[run.file, run.ranks]
        operation = run.operation or (next(iter(known)) if len(known) == 1 else "")
        sizes[run.file, run.ranks, operation][size].append((busbw, ref))
    for (_, _, operation), by_size in sizes.items():
        largest = max(by_size)
        ref = by_size[largest][-1][1]
        yield Measure("busbw", median(busbw for busbw, _ in by_size[largest]), "GB/s", "run", operation, ref)
        yield Measure("busbw_size", largest, "B", "run", operation, ref)
    if not runs and not facts.query("SELECT 1 FROM throughput_run LIMIT 1"):
        for operation, size, busbw, ref in facts.query(
            "SELECT op, size, median(busbw), min(ref) FROM comm_op JOIN (SELECT op, max(size) AS size FROM comm_op GROUP BY op)"
            " USING (op, size) WHERE busbw IS NOT NULL GROUP BY op, size"
        ):
            yield Measure("busbw", busbw / 8, "GB/s", "run", operation, ref)
            yield Measure("busbw_size", size, "B", "run", operation, ref)
