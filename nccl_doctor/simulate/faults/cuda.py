"""Faults of the CUDA driver, its libraries and the mapping of ranks to GPUs."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.failure import TRAIN_FRAMES, python_error
from nccl_doctor.simulate.faults.memory import Failures, with_neighbours
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import info, init_trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import exit_early, exit_rank, fail_ranks


def cuda_warn(rank: Rank, where: str, code: int, text: str, func: str, thread: str = "init") -> str:
    """Returns the WARN of a failed CUDA call; newer releases also print the number for driver calls."""
    number = f"{code} " if rank.host.version >= (2, 19) and not where.startswith("enqueue") else ""
    return warn(rank, where, f"Cuda failure {number}'{text}'", func, thread)


@fault(
    "p2p-disabled-by-env",
    "NCCL_P2P_DISABLE=1 makes GPUs of one node communicate through host memory.",
    r"NCCL_P2P_DISABLE set by environment to 1\.|NCCL_P2P_LEVEL set by environment to LOC",
    Needs(gpus=2),
)
def _p2p_env(cluster: Cluster) -> None:
    for host in cluster.hosts:
        host.env["NCCL_P2P_DISABLE"] = "1"
        host.p2p = False
    for rank in cluster.ranks:
        modern = (2, 11) <= cluster.v < (2, 19)
        text = "NCCL_P2P_LEVEL set by environment to LOC" if modern else "NCCL_P2P_DISABLE set by environment to 1."
        cluster.add_after("start", rank, info(rank, text))
    cluster.slow = 2.5


@fault(
    "cuda-ipc-peer-failed",
    "A rank cannot open the memory of another GPU, as in containers that see one GPU each.",
    r"failed to open CUDA IPC handle|cudaIpcGetMemHandle failed|failed to peer with device",
    Needs(gpus=2),
)
def _ipc(cluster: Cluster) -> Break:
    rank = cluster.victim
    peer = rank.host.ranks[(rank.local + 1) % len(rank.host.ranks)]

    def phases() -> Iterator[Phase]:
        why = "peer access is not supported between these two devices"
        if cluster.v < (2, 8):
            where, text = "transport/p2p.cc:548", f"failed to open CUDA IPC handle : 217 {why}"
        else:
            where = "transport/p2p.cc:275"
            text = f"failed to peer with device {peer.local}(={peer.bus:x}): 217 {why}"
        lines = [
            warn(rank, where, text, "p2pMap"),
            init_trail(rank, 3, ("transport/p2p.cc:352", "p2pMap"), ("transport/p2p.cc:462", "p2pSendConnect")),
        ]
        yield from fail_ranks(cluster, with_neighbours(cluster, {rank: (lines, 3, text)}), "init")

    return Break("connect", phases)


@fault(
    "duplicate-gpu",
    "Two ranks of one node use the same GPU.",
    r"Duplicate GPU detected|Multiple [rR]anks (detected using the same GPU|are using the same GPU)",
    Needs(gpus=2, since="2.7.8"),
)
def _duplicate(cluster: Cluster) -> Break:
    host = cluster.victim.host
    first, second = host.ranks[0], host.ranks[1]
    second.bus, second.nvml, second.device = first.bus, first.nvml, first.device
    second.settle()

    def phases() -> Iterator[Phase]:
        failures: Failures = {}
        for rank, other in ((first, second), (second, first)):
            if cluster.v >= (2, 30, 7):
                text = (
                    "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable "
                    "this configuration."
                )
            else:
                text = f"Duplicate GPU detected : rank {rank.number} and rank {other.number} both on CUDA device {rank.bus:x}"
            trail_lines = init_trail(rank, 5, ("init.cc:1010", "initTransportsRank"))
            failures[rank] = ([warn(rank, "init.cc:943", text, "fillInfo"), trail_lines], 5, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("start", phases)


@fault(
    "too-many-ranks-for-gpus",
    "A node runs more ranks than it has GPUs.",
    r"invalid device ordinal",
)
def _ordinal(cluster: Cluster) -> Break:
    rank = cluster.victim.host.ranks[-1]
    if cluster.spec.framework == "nccl-tests":
        text = (
            f"{rank.host.name}: Test CUDA failure common.cu:941 'invalid device ordinal'\n"
            f" .. {rank.host.name} pid {rank.pid}: Test failure common.cu:891"
        )
    else:
        frames = [*TRAIN_FRAMES[:1], ("/workspace/train.py", 251, "main", "torch.cuda.set_device(local_rank)")]
        text = python_error(
            rank,
            frames,
            "RuntimeError: CUDA error: invalid device ordinal\n"
            "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
            "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        )
    return Break("launch", lambda: exit_early(cluster, rank, text))


def _all_fail(cluster: Cluster, ranks: list[Rank], where: str, code: int, text: str, func: str) -> Iterator[Phase]:
    failures: Failures = {}
    for rank in ranks:
        lines = [
            cuda_warn(rank, where, code, text, func),
            init_trail(rank, 1, ("init.cc:1351", "ncclCommInitRankFunc")),
        ]
        failures[rank] = (lines, 1, f"Cuda failure '{text}'")
    yield from fail_ranks(cluster, failures, "init")


@fault(
    "nccl-arch-mismatch",
    "This NCCL library has no code for the GPUs.",
    r"named symbol not found|invalid device function",
)
def _arch(cluster: Cluster) -> Break:
    old = cluster.v < (2, 12)
    code, text = (98, "invalid device function") if old else (500, "named symbol not found")
    ranks = cluster.ranks[:16]
    return Break("start", lambda: _all_fail(cluster, ranks, "enqueue.cc:47", code, text, "ncclInitKernelsForDevice"))


@fault(
    "driver-too-old",
    "The NVIDIA driver of a node is older than the CUDA runtime needs.",
    r"CUDA driver version is insufficient for CUDA runtime version",
)
def _driver(cluster: Cluster) -> Break:
    ranks = cluster.victim.host.ranks
    text = "CUDA driver version is insufficient for CUDA runtime version"
    where = "misc/cudawrap.cc:279" if cluster.v >= (2, 19) else "enqueue.cc:100"
    return Break("bootstrap", lambda: _all_fail(cluster, ranks, where, 35, text, "initOnceFunc"))


@fault(
    "cuda-stub-library",
    "The stub libcuda.so of the CUDA toolkit was loaded instead of the driver's library.",
    r"CUDA driver is a stub library",
)
def _stub(cluster: Cluster) -> Break:
    ranks = cluster.victim.host.ranks
    where = "misc/cudawrap.cc:188"
    return Break(
        "bootstrap", lambda: _all_fail(cluster, ranks, where, 34, "CUDA driver is a stub library", "initOnceFunc")
    )


@fault(
    "cuda-illegal-access",
    "A kernel of one rank accessed memory that it does not own.",
    r"an illegal memory access was encountered",
)
def _illegal(cluster: Cluster) -> Break:
    rank = cluster.victim
    if cluster.spec.framework == "nccl-tests":
        text = f"{rank.host.name}: Test CUDA failure common.cu:583 'an illegal memory access was encountered'"
        return Break("train", lambda: exit_rank(cluster, rank, 1, text))
    frames = [*TRAIN_FRAMES, ("/workspace/train.py", 211, "train", "torch.cuda.synchronize()")]
    error = (
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    )
    return Break("train", lambda: exit_rank(cluster, rank, 1, python_error(rank, frames, error)))
