"""Output of the framework in a healthy job."""

from collections.abc import Iterator, Sequence

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.phase import Phase

TABLE_HEAD = (
    "#                                                              out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
)
_GPU_NAMES = {"V100": "Tesla V100-SXM2-32GB", "A100": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"}


def launch(cluster: Cluster) -> Iterator[Phase]:
    """The output before the first NCCL line."""
    phase = Phase(2.0)
    framework = cluster.spec.framework
    if framework == "nccl-tests":
        phase.add(cluster.ranks[0], *test_head(cluster, cluster.ranks, 8, 1 << 32))
    elif framework == "horovod":
        for rank in cluster.ranks:
            phase.add(rank, f"Horovod rank {rank.number} of {len(cluster.ranks)}, local rank {rank.local}")
    else:
        if cluster.launcher == "torchrun":
            for host in cluster.hosts:
                phase.add(
                    host,
                    f"W\x00e {host.agent_pid} torch/distributed/run.py:793] \n"
                    f"W\x00e {host.agent_pid} torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable "
                    "for each process to be 1 in default, to avoid your system being overloaded, please further tune the "
                    "variable for optimal performance in your application as needed. ",
                )
        phase.add(
            cluster.ranks[0],
            f"using world size: {len(cluster.ranks)}, data-parallel size: {len(cluster.ranks)}, "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1",
        )
    yield phase


def steps(cluster: Cluster, first: int, last: int) -> Iterator[Phase]:
    """Training lines number `first` to `last` (counted from 0, last excluded)."""
    if cluster.spec.framework == "nccl-tests":
        yield _table(cluster, first, last)
        return
    rng = cluster.rng
    rank = cluster.ranks[-1 if cluster.spec.framework == "pytorch" else 0]
    batch = 8 * len(cluster.ranks)
    if cluster.spec.framework == "horovod" and first == 0:
        phase = Phase(1.0)
        phase.add(rank, "Step\tImg/sec\ttotal_loss")
        yield phase
    for step in range(first, last):
        seconds = 0.42 * cluster.slow * rng.uniform(0.99, 1.02)
        phase = Phase(seconds * 10)
        loss = 2.1 + 8.0 / (step + 1.2) + rng.uniform(-0.03, 0.03)
        if cluster.spec.framework == "horovod":
            rate = 64 * len(cluster.ranks) / seconds
            text = f"{(step + 1) * 10}\timages/sec: {rate:.1f} +/- {rate * 0.004:.1f} (jitter = {rate * 0.006:.1f})\t{loss:.3f}"
        else:
            text = (
                f" [\x00t] iteration {(step + 1) * 10:8d}/{cluster.spec.steps * 10:8d} | "
                f"consumed samples: {(step + 1) * 10 * batch:12d} | elapsed time per iteration (ms): {seconds * 1000:.1f} | "
                f"learning rate: 3.000E-04 | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | "
                f"grad norm: {rng.uniform(0.6, 1.6):.3f} | number of skipped iterations:   0 | "
                "number of nan iterations:   0 |"
            )
        phase.add(rank, text)
        yield phase


def _table(cluster: Cluster, first: int, last: int) -> Phase:
    phase = Phase(20.0)
    rank = cluster.ranks[0]
    if first == 0:
        phase.add(rank, *TABLE_HEAD)
    limit = 180.0 / cluster.slow
    for step in range(first, last):
        size = 8 << step
        micros = [32.0 + size / (limit * 1000) * cluster.rng.uniform(0.98, 1.05) for _ in range(2)]
        phase.add(rank, table_row(size, micros, len(cluster.ranks)))
    return phase


def test_head(cluster: Cluster, ranks: Sequence[Rank], smallest: int, largest: int) -> list[str]:
    """What a program of nccl-tests prints before its table."""
    devices = [
        f"#  Rank {number:2d} Group  0 Pid {rank.pid:6d} on {rank.host.name:>10} device {rank.local:2d} "
        f"[0x{rank.bus >> 12:02x}] {_GPU_NAMES[cluster.gpu]}"
        for number, rank in enumerate(ranks)
    ]
    return [
        f"# nThread 1 nGpus 1 minBytes {smallest} maxBytes {largest} step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *devices,
        "#",
    ]


def table_row(size: int, micros: Sequence[float], ranks: int) -> str:
    """One size of an all-reduce, with the times out of place and in place."""
    cells = []
    for time_us in micros:
        algorithm = size / time_us / 1000
        time = f"{time_us:7.2f}" if time_us < 100 else f"{time_us:7.1f}" if time_us < 10000 else f"{time_us:7.0f}"
        cells.append(f"  {time} {algorithm:7.2f} {algorithm * 2 * (ranks - 1) / ranks:7.2f}      0")
    return f"{size:12d}  {size // 4:12d}     float     sum      -1{''.join(cells)}"


def end(cluster: Cluster) -> Iterator[Phase]:
    """The output of a job at its normal end."""
    phase = Phase(1.0)
    rank = cluster.ranks[0]
    if cluster.spec.framework == "nccl-tests":
        phase.add(
            rank,
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {61.0 / cluster.slow:.4f} ",
            "#",
        )
    elif cluster.spec.framework == "horovod":
        total = 64 * len(cluster.ranks) / 0.42 / cluster.slow
        ruler = "-" * 64
        phase.add(rank, f"{ruler}\ntotal images/sec: {total:.2f}\n{ruler}")
    else:
        phase.add(rank, "[after training is done] datetime: \x00t ")
    yield phase
