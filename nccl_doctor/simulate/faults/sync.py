"""Faults where ranks do not issue the same collectives, or one of them never arrives."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.failure import TRAIN_FRAMES, job_end, python_error
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import exit_rank, hang, torch_head, watchdog

_TORCH = Needs(gpus=2, since="2.10.3", frameworks=("pytorch",))
_SITE = "/opt/conda/lib/python3.10/site-packages"
_STALL = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to submit different "
    "tensors or that only subset of ranks is submitting tensors, which will cause deadlock. "
)


def _sequence(cluster: Cluster) -> int:
    return cluster.rng.randrange(300, 9_000)


@fault(
    "collective-desync",
    "One rank issues another collective than the rest.",
    r"OpType=_ALLGATHER_BASE",
    _TORCH,
)
def _desync(cluster: Cluster) -> Break:
    odd, sequence = cluster.victim, _sequence(cluster)

    def phases() -> Iterator[Phase]:
        yield Phase(1800.0 if cluster.v < (2, 19) else 600.0)
        phase = Phase(1.0)
        for rank in cluster.ranks:
            if rank is odd:
                phase.add(rank, *watchdog(cluster, rank, sequence, "_ALLGATHER_BASE", 1_048_576))
            else:
                phase.add(rank, *watchdog(cluster, rank, sequence))
        yield phase
        yield from job_end(cluster, dict.fromkeys(cluster.ranks, -6), cluster.ranks[0])

    return Break("train", phases)


def _fingerprint(sequence: int, operation: str, shape: str) -> str:
    return (
        f"CollectiveFingerPrint(SequenceNumber={sequence}, OpType={operation}, TensorShape=[{shape}], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
    )


@fault(
    "collective-shape-mismatch",
    "One rank passes a tensor of another shape to the same collective.",
    r"Detected mismatch between collectives on ranks",
    _TORCH,
)
def _shape(cluster: Cluster) -> Break:
    odd, sequence = cluster.victim, _sequence(cluster)
    other = cluster.ranks[0] if odd is not cluster.ranks[0] else cluster.ranks[1]

    def phases() -> Iterator[Phase]:
        frames = [
            *TRAIN_FRAMES,
            (
                f"{_SITE}/torch/distributed/distributed_c10d.py",
                2806,
                "all_reduce",
                "work = group.allreduce([tensor], opts)",
            ),
        ]
        error = (
            f"RuntimeError: Detected mismatch between collectives on ranks. Rank {{}} is running collective: "
            f"{_fingerprint(sequence, 'ALLREDUCE', '4096, 1024')}, but Rank {{}} is running collective: "
            f"{_fingerprint(sequence, 'ALLREDUCE', '4096, 1000')}."
        )
        extra = "Collectives differ in the following aspects: \t Tensor Tensor shapes: 4096, 1024vs 4096, 1000"
        phase = Phase(1.0)
        phase.add(other, python_error(other, frames, error.format(other.number, odd.number) + extra))
        yield phase
        yield from exit_rank(cluster, other, 1)

    return Break("train", phases)


@fault(
    "ddp-unused-parameters",
    "Some parameters got no gradient, so DistributedDataParallel waits for them.",
    r"Expected to have finished reduction in the prior iteration",
    Needs(frameworks=("pytorch",)),
)
def _unused(cluster: Cluster) -> Break:
    frames = [
        *TRAIN_FRAMES,
        (
            f"{_SITE}/torch/nn/parallel/distributed.py",
            1148,
            "forward",
            "inputs, kwargs = self._pre_forward(*inputs, **kwargs)",
        ),
    ]

    def error(rank: Rank) -> str:
        text = (
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
            "indicates that your module has parameters that were not used in producing loss. You can enable unused parameter "
            "detection by passing the keyword argument `find_unused_parameters=True` to "
            "`torch.nn.parallel.DistributedDataParallel`, and by \n"
            "making sure all `forward` function outputs participate in calculating loss. \n"
            "If you already have done the above, then the distributed data parallel module wasn't able to locate the output "
            "tensors in the return value of your module's `forward` function. Please include the loss function and the "
            "structure of the return value of `forward` of your module when reporting this issue (e.g. list, dict, iterable).\n"
            f"Parameter indices which did not receive grad for rank {rank.number}: 86 87 88 89\n"
            " In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out "
            "information about which particular parameters did not receive gradient on this rank as part of this error"
        )
        return python_error(rank, frames, text)

    def phases() -> Iterator[Phase]:
        phase = Phase(1.0)
        for rank in cluster.ranks:
            phase.add(rank, error(rank))
        yield phase
        yield from job_end(cluster, dict.fromkeys(cluster.ranks, 1), cluster.ranks[0])

    return Break("complete" if cluster.v < (2, 22) else "connected", phases)


@fault(
    "missing-rank-in-collective",
    "All ranks but one wait in a collective.",
    r"Watchdog caught collective operation timeout",
    _TORCH,
)
def _missing(cluster: Cluster) -> Break:
    waiting = [rank for rank in cluster.ranks if rank is not cluster.victim]
    return Break("train", lambda: hang(cluster, waiting, _sequence(cluster)))


@fault(
    "unknown-collective-timeout",
    "All ranks wait in the same collective and the log does not say why.",
    r"Watchdog caught collective operation timeout",
    _TORCH,
)
def _all_wait(cluster: Cluster) -> Break:
    return Break("train", lambda: hang(cluster, cluster.ranks, _sequence(cluster)))


@fault(
    "watchdog-heartbeat-stuck",
    "A blocked call keeps PyTorch's watchdog thread of one rank from working.",
    r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds",
    Needs(since="2.19.3", frameworks=("pytorch",)),
)
def _heartbeat(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        yield Phase(480.0)
        head = torch_head(rank, 1375)
        stuck = (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
            "collectives. This typically indicates a NCCL/CUDA API hang blocking the watchdog, and could be triggered by "
            "another thread holding the GIL inside a CUDA api, or other deadlock-prone behaviors.If you suspect the watchdog "
            "is not actually stuck and a longer timeout would help, you can either increase the timeout "
            "(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) to a larger value or disable the heartbeat monitor "
            "(TORCH_NCCL_ENABLE_MONITORING=0).If either of aforementioned helps, feel free to file an issue to PyTorch about "
            "the short timeout or false positive abort; otherwise, please attempt to debug the hang. "
        )
        yield from exit_rank(
            cluster,
            rank,
            -6,
            f"{head}First PG on this rank that detected no heartbeat of its watchdog.",
            f"{head}Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3",
            torch_head(rank, 1224, "F") + stuck,
        )

    return Break("train", phases)


@fault(
    "horovod-stall-missing-ranks",
    "One rank does not submit the tensors that the others wait for.",
    r"missing ranks: \d+\]|^(\S*:)?\d+!?: \[DistributedOptimizer",
    Needs(gpus=2, frameworks=("horovod",)),
)
def _stall(cluster: Cluster) -> Break:
    missing = cluster.victim.number
    first = cluster.ranks[0]

    def phases() -> Iterator[Phase]:
        for repeat in range(3):
            yield Phase(60.0)
            phase = Phase(0.01)
            phase.add(first, _stall_report(cluster.v, missing, last=repeat == 2))
            yield phase
        if cluster.v >= (2, 10):
            yield from exit_rank(cluster, first, 1, _SHUT_DOWN)

    return Break("train", phases)


_SHUT_DOWN = (
    "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception "
    "on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
    "finished execution. If the shutdown was caused by an exception, you should see the exception in the log "
    "before the first shutdown message."
)


def _stall_report(v: tuple[int, int, int], missing: int, last: bool) -> str:
    """The report of Horovod's stall inspector; the last one announces the shutdown."""
    names = [f"DistributedOptimizer.grad.layer{n}" for n in range(9)]
    if v < (2, 10):
        source = "horovod/common/operations.cc:588"
        listed = "\n".join(f"[\x00f: W {source}] {name} [missing ranks: {missing}]" for name in names[1:])
        return f"[\x00f: W {source}] {_STALL}\nStalled ops:{names[0]} [missing ranks: {missing}]\n{listed}"
    level, mark, line = ("E", "!", 105) if last else ("W", "", 107)
    shutdown = (
        '\nOne or more rank (marked by "!") is stalled for longer than 180 seconds. Will shutdown.' if last else ""
    )
    return (
        f"[\x00f: {level} /tmp/pip-install/horovod/horovod/common/stall_inspector.cc:{line}] {_STALL}\n"
        f"Missing ranks:\n{missing}{mark}: [{', '.join(names[:6])} ...]{shutdown}"
    )


@fault(
    "dataloader-deadlock",
    "The workers of one rank's DataLoader do not deliver, so the other ranks wait.",
    r"_try_get_data",
    _TORCH,
)
def _loader(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        yield Phase(900.0)
        phase = Phase(1.0)
        lines = [
            f"Current thread 0x00007f{cluster.rng.getrandbits(36):09x}0 (most recent call first):",
            '  File "/opt/conda/lib/python3.10/selectors.py", line 416 in select',
            '  File "/opt/conda/lib/python3.10/multiprocessing/connection.py", line 931 in wait',
            '  File "/opt/conda/lib/python3.10/multiprocessing/queues.py", line 113 in get',
            f'  File "{_SITE}/torch/utils/data/dataloader.py", line 1133 in _try_get_data',
            f'  File "{_SITE}/torch/utils/data/dataloader.py", line 1295 in _get_data',
            f'  File "{_SITE}/torch/utils/data/dataloader.py", line 1329 in _next_data',
            f'  File "{_SITE}/torch/utils/data/dataloader.py", line 631 in __next__',
            '  File "/workspace/train.py", line 196 in train',
        ]
        phase.add(rank, "Timeout (0:15:00)!\n" + "\n".join(lines))
        yield phase
        yield from hang(cluster, [other for other in cluster.ranks if other is not rank], _sequence(cluster))

    return Break("train", phases)


@fault("hang-after-init", "All ranks finish the initialisation and nothing follows.", r"Init COMPLETE")
def _silence(cluster: Cluster) -> Break:
    return Break("complete", lambda: iter(()))
