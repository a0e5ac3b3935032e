"""The numbers that a report shows whatever it finds: step times, throughput, bus bandwidth, shares of time, start-up."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.summary import SOURCES
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    BenchLimit,
    BenchRow,
    BenchRun,
    GpuUse,
    InitTiming,
    Measure,
    RecordedRun,
    Scaling,
    Steady,
    Step,
    ThroughputRun,
    Timeline,
    Trace,
)  # fmt: skip

# Each query yields the columns of `measure` in their order. Numbers that the inputs do not hold yield no row.
QUERIES = (
    # training logs: medians of the steady part (derive/speed/throughput.py)
    "SELECT 'step_time', s.seconds, 's', 'run', t.tool, s.ref FROM steady s JOIN throughput_run t USING (run)"
    " WHERE s.seconds IS NOT NULL",
    "SELECT 'steps', sum(points), 'steps', 'run', tool, min(ref) FROM throughput_run GROUP BY tool HAVING sum(points)",
    "SELECT 'step_spread', mad(p.seconds), 's', 'run', t.tool, t.ref FROM step p JOIN throughput_run t USING (run)"
    " WHERE p.seconds IS NOT NULL GROUP BY run HAVING count(*) > 2",
    "SELECT 'throughput', coalesce(s.job_rate, s.rate), t.unit, 'run', t.tool, s.ref FROM steady s"
    " JOIN throughput_run t USING (run) WHERE coalesce(s.job_rate, s.rate) IS NOT NULL",
    "SELECT 'data_wait', 100 * s.data, '%', 'run', t.tool, s.ref FROM steady s JOIN throughput_run t USING (run)"
    " WHERE s.data IS NOT NULL",
    "SELECT 'scaling_efficiency', 100 * efficiency, '%', 'run', gpus || ' GPUs', ref FROM scaling",
    # nccl-tests: bus bandwidth is that of the three largest sizes (derive/speed/nccl_tests.py)
    "SELECT 'busbw', l.plateau, 'GB/s', 'run', coalesce(b.operation, 'collective'), l.ref FROM bench_limit l"
    " JOIN bench_run b USING (run) WHERE l.plateau IS NOT NULL",
    "SELECT 'busbw_peak', max(r.busbw), 'GB/s', 'run', coalesce(b.operation, 'collective'), r.ref FROM bench_row r"
    " JOIN bench_run b USING (run) GROUP BY r.run",
    "SELECT 'latency', l.floor_us, 'us', 'run', coalesce(b.operation, 'collective'), l.ref FROM bench_limit l"
    " JOIN bench_run b USING (run) WHERE l.floor_us IS NOT NULL",
    # Horovod timelines: shares of the run
    "SELECT 'negotiate', 100 * negotiate_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    "SELECT 'collective', 100 * collective_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    "SELECT 'idle', 100 * idle_s / length_s, '%', 'run', file, ref FROM timeline WHERE length_s > 0",
    # traces of torch.profiler: shares of the span on the GPU
    "SELECT 'exposed_communication', 100 * exposed_s / span_s, '%', 'rank', coalesce(rank, file), ref FROM trace"
    " WHERE span_s > 0 AND exposed_s IS NOT NULL",
    "SELECT 'communication', 100 * comm_s / span_s, '%', 'rank', coalesce(rank, file), ref FROM trace"
    " WHERE span_s > 0 AND comm_s IS NOT NULL",
    "SELECT 'step_time', step_s, 's', 'rank', coalesce(rank, file), ref FROM trace WHERE step_s > 0",
    # samples of GPUs
    "SELECT 'gpu_busy', 100 * busy_share, '%', 'gpu', coalesce(host || ' ', '') || 'GPU ' || gpu, ref FROM gpu_use"
    " WHERE busy_share IS NOT NULL",
    "SELECT 'gpu_power', power_median, 'W', 'gpu', coalesce(host || ' ', '') || 'GPU ' || gpu, ref FROM gpu_use"
    " WHERE power_median IS NOT NULL",
    # NCCL's own timing of a communicator's start, the slowest rank of the largest communicator
    "SELECT 'startup', max(total), 's', 'job', '', ref FROM init_timing"
    " WHERE nranks IS (SELECT max(nranks) FROM init_timing) HAVING max(total) IS NOT NULL",
    "SELECT 'duration', ended - started, 's', 'job', '', ref FROM recorded_run WHERE ended > started",
)


@derivation(
    fills=[Measure],
    needs=SOURCES,
    reads=[
        Steady, ThroughputRun, Step, Scaling, BenchLimit, BenchRun, BenchRow, Timeline, Trace, GpuUse, InitTiming, RecordedRun,
    ],
)  # fmt: skip
def measures(facts: Facts) -> Iterator[Measure]:
    """The numbers with their units, in the order of `QUERIES`."""
    for query in QUERIES:
        for name, value, unit, scope, of, ref in facts.query(query):
            yield Measure(name, value, unit, scope, str(of), ref)
