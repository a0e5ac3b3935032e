"""Faults of local resources: locked memory, files, shared memory and GPU memory."""

from collections.abc import Iterator

from nccl_doctor.simulate.cluster import Cluster, Rank
from nccl_doctor.simulate.failure import TRAIN_FRAMES, python_error
from nccl_doctor.simulate.faults.registry import Break, Needs, fault
from nccl_doctor.simulate.nccl_format import info, init_trail, warn
from nccl_doctor.simulate.phase import Phase
from nccl_doctor.simulate.secondary_errors import closed, exit_rank, fail_ranks, remote_code

Failures = dict[Rank, tuple[list[str], int, str]]

_SITE = "/opt/conda/lib/python3.10/site-packages"
_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def with_neighbours(cluster: Cluster, culprits: Failures) -> Failures:
    """Returns the failed ranks, and one rank of each neighbour host whose connection is closed."""
    failures = dict(culprits)
    first = next(iter(culprits))
    for host in cluster.neighbours(first.host):
        rank = host.ranks[0]
        lines, text = closed(cluster, rank, first.host, "init")
        failures[rank] = (lines, remote_code(rank.host.version), text)
    return failures


@fault(
    "memlock-limit",
    "The limit of locked memory is too small to register buffers with the network card.",
    r"ibv_reg_mr\w* failed.*Cannot allocate memory",
    Needs(nodes=2, networks=("ib", "roce")),
)
def _memlock(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        v = cluster.v
        call = "ibv_reg_mr" if v < (2, 10) else "ibv_reg_mr_iova2"
        errno = " errno 12" if v >= (2, 19) else ""
        text = f"Call to {call} failed with error Cannot allocate memory{errno}"
        failures: Failures = {}
        for rank in cluster.victim.host.ranks:
            steps = (("transport/net_ib.cc:1117", "ncclIbRegMr"), ("transport/net.cc:745", "sendProxyConnect"))
            lines = [warn(rank, "misc/ibvwrap.cc:278", text, f"wrap_{call}", "proxy"), init_trail(rank, 2, *steps)]
            failures[rank] = (lines, 2, text)
        yield from fail_ranks(cluster, with_neighbours(cluster, failures), "init")

    return Break("connect", phases)


@fault("nofile-limit", "A process has used up its file descriptors.", r"Too many open files")
def _nofile(cluster: Cluster) -> Break:
    def phases() -> Iterator[Phase]:
        v, rank = cluster.v, cluster.victim
        if v < (2, 18):
            where, func, text = "misc/socket.cc:409", "", "Call to accept failed : Too many open files"
        elif v < (2, 29):
            where, func = "misc/socket.cc:455", "socketTryAccept"
            text = "socketTryAccept: Accept failed: Too many open files"
        else:
            where, func = "os/linux.cc:540", "ncclOsSocketTryAccept"
            text = "ncclOsSocketTryAccept: Accept failed: Too many open files"
        steps = (("misc/socket.cc:720", "ncclSocketAccept"), ("transport/net_socket.cc:403", "ncclNetSocketAccept"))
        lines = [warn(rank, where, text, func, "proxy"), init_trail(rank, 2, *steps)]
        yield from fail_ranks(cluster, with_neighbours(cluster, {rank: (lines, 2, text)}), "init")

    return Break("connect", phases)


@fault(
    "stale-graph-or-topo-file",
    "NCCL_GRAPH_FILE holds the graph of another kind of machine.",
    r"NCCL_GRAPH_FILE set by environment",
    Needs(since="2.7.8"),
)
def _graph_file(cluster: Cluster) -> Break:
    for rank in cluster.ranks:
        cluster.add_after(
            "start", rank, info(rank, "NCCL_GRAPH_FILE set by environment to /opt/microsoft/ncv4/graph.xml")
        )

    def phases() -> Iterator[Phase]:
        failures: Failures = {}
        for rank in cluster.ranks[:16]:
            text = f"XML Import Channel : dev {4 + rank.local % 4} not found."
            steps = (("graph/search.cc:707", "ncclTopoGetChannelFromXml"), ("graph/search.cc:854", "ncclTopoCompute"))
            lines = [warn(rank, "graph/search.cc:640", text, "ncclTopoGetChannelFromXml"), init_trail(rank, 2, *steps)]
            failures[rank] = (lines, 2, text)
        yield from fail_ranks(cluster, failures, "init")

    return Break("start", phases)


def _segment(cluster: Cluster) -> str:
    return "/dev/shm/nccl-" + "".join(cluster.rng.choice(_CHARS) for _ in range(6))


def _shm_errors(cluster: Cluster, rank: Rank, size: int) -> tuple[list[str], str]:
    """(WARN records, last text) of a segment that does not fit into /dev/shm."""
    v, name = rank.host.version, _segment(cluster)
    full = "No space left on device"
    if v < (2, 12):
        old = f"nccl-shm-recv-{cluster.comm_id:x}-{rank.local}-{rank.local + 1}-0"
        last = f"Error while creating shared memory segment {old} (size {size})"
        return [
            warn(rank, "include/shm.h:28", f"Call to posix_fallocate failed : {full}"),
            info(rank, "include/shm.h:41 -> 2"),
            warn(rank, "include/shm.h:48", last),
        ], last
    file = "os/linux.cc" if v >= (2, 30) else "misc/shmutils.cc"
    if v < (2, 18):
        last = f"Error while creating shared memory segment {name} (size {size})"
        return [
            warn(rank, f"{file}:66", f"Call to posix_fallocate failed : {full}"),
            warn(rank, f"{file}:110", last),
        ], last
    errno = f", error: {full} (28)" if v >= (2, 22) else ""
    last = f"Error while creating shared memory segment {name} (size {size}){errno}"
    records = [
        warn(rank, f"{file}:87", f"Error: failed to extend {name} to {size + 4} bytes{errno}", "ncclShmOpen"),
        warn(rank, f"{file}:129", last, "ncclShmOpen"),
    ]
    return records, last


@fault(
    "dev-shm-full",
    "/dev/shm is too small, as with the 64 MB that Docker gives by default.",
    r"No space left on device|failed to extend /dev/shm|Bus error\. It is possible",
)
def _shm_full(cluster: Cluster) -> Break:
    rank = cluster.victim
    if cluster.spec.framework == "pytorch" and cluster.spec.seed % 2:
        return _loader_shm(cluster)

    def phases() -> Iterator[Phase]:
        failures: Failures = {}
        for own in rank.host.ranks[:4]:
            lines, last = _shm_errors(cluster, own, 9_637_888 if cluster.v < (2, 22) else 33_030_528)
            steps = (("transport/shm.cc:114", "shmSendSetup"), ("transport.cc:33", "selectTransport"))
            failures[own] = ([*lines, init_trail(own, 2, *steps)], 2, last)
        yield from fail_ranks(cluster, with_neighbours(cluster, failures), "init")

    rank.host.p2p = False
    return Break("connect", phases)


def _loader_shm(cluster: Cluster) -> Break:
    """The same limit met by the workers of a DataLoader."""
    rank = cluster.victim
    worker = rank.pid + 400
    frames = [
        *TRAIN_FRAMES,
        (
            f"{_SITE}/torch/utils/data/dataloader.py",
            1145,
            "_try_get_data",
            "raise RuntimeError(f'DataLoader worker exited')",
        ),
    ]
    text = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n "
    error = (
        f"RuntimeError: DataLoader worker (pid {worker}) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit."
    )
    return Break("train", lambda: exit_rank(cluster, rank, 1, text, python_error(rank, frames, error)))


@fault(
    "cuda-hostregister-failed",
    "A shared memory segment was made but CUDA cannot pin it.",
    r"Cuda failure (\d+ )?'invalid argument'",
)
def _host_register(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        v = cluster.v
        old = v < (2, 12)
        number = "1 " if v >= (2, 19) else ""
        where = "include/shm.h:42" if old else "misc/shmutils.cc:103"
        name = f"nccl-shm-recv-{cluster.comm_id:x}-0-1-0" if old else _segment(cluster)
        errno = ", error: Success (0)" if v >= (2, 22) else ""
        last = f"Error while creating shared memory segment {name} (size 9637888){errno}"
        lines = [
            warn(rank, where, f"Cuda failure {number}'invalid argument'", "ncclShmOpen"),
            warn(rank, where.replace("42", "48").replace("103", "129"), last, "ncclShmOpen"),
            init_trail(rank, 1, ("transport/shm.cc:114", "shmSendSetup"), ("transport.cc:33", "selectTransport")),
        ]
        yield from fail_ranks(cluster, with_neighbours(cluster, {rank: (lines, 1, last)}), "init")

    rank.host.p2p = False
    return Break("connect", phases)


@fault(
    "cumem-host-asymmetric",
    "Ranks of one node use different kinds of host memory, so one attaches to a segment without a name.",
    r"attaching to shared memory segment /dev/shm/nccl- ",
    Needs(gpus=2, since="2.25.1"),
)
def _asymmetric(cluster: Cluster) -> Break:
    rank = cluster.victim
    peer = rank.host.ranks[(rank.local + 1) % len(rank.host.ranks)]
    rank.host.p2p = False
    if cluster.v >= (2, 26, 3):
        text = (
            "cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation. "
            "This could be due to the container runtime disabling NUMA support. To disable this warning, set "
            "NCCL_CUMEM_HOST_ENABLE=0"
        )
        cluster.add_after("start", rank, info(rank, text))

    def phases() -> Iterator[Phase]:
        file = "os/linux.cc" if cluster.v >= (2, 30) else "misc/shmutils.cc"
        last = (
            "Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), "
            "error: No such file or directory (2)"
        )
        steps = (
            ("transport/shm.cc:597", "ncclShmImportShareableBuffer"),
            ("transport.cc:187", "ncclTransportP2pSetup"),
        )
        lines = [warn(peer, f"{file}:132", last, "ncclShmOpen"), init_trail(peer, 2, *steps)]
        yield from fail_ranks(cluster, with_neighbours(cluster, {peer: (lines, 2, last)}), "init")

    return Break("connect", phases)


@fault("cuda-oom-in-nccl", "NCCL's own buffers do not fit into the GPU memory.", r"Cuda failure (\d )?'out of memory'")
def _nccl_memory(cluster: Cluster) -> Break:
    rank = cluster.victim

    def phases() -> Iterator[Phase]:
        number = "2 " if cluster.v >= (2, 19) else ""
        steps = (
            ("transport/p2p.cc:204", "ncclP2pAllocateShareableBuffer"),
            ("transport/p2p.cc:605", "p2pSendProxySetup"),
        )
        lines = [
            warn(rank, "include/alloc.h:178", f"Cuda failure {number}'out of memory'", "ncclCudaCallocDebug", "proxy"),
            warn(rank, "include/alloc.h:185", "Failed to CUDA calloc 6291456 bytes", "ncclCudaCallocDebug", "proxy"),
            init_trail(rank, 1, *steps),
        ]
        last = "Failed to CUDA calloc 6291456 bytes"
        yield from fail_ranks(cluster, with_neighbours(cluster, {rank: (lines, 1, last)}), "init")

    return Break("connect", phases)


@fault(
    "cuda-oom",
    "The model of one rank does not fit into its GPU memory.",
    r"CUDA out of memory\. Tried to allocate",
    Needs(frameworks=("pytorch", "horovod")),
)
def _torch_memory(cluster: Cluster) -> Break:
    rank = cluster.victim
    frames = [*TRAIN_FRAMES, ("/workspace/train.py", 204, "train", "loss.backward()")]
    if cluster.v < (2, 18):
        error = (
            f"RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU {rank.local}; 79.15 GiB total capacity; "
            "75.31 GiB already allocated; 1.12 GiB free; 76.80 GiB reserved in total by PyTorch) If reserved memory is >> "
            "allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management "
            "and PYTORCH_CUDA_ALLOC_CONF"
        )
    else:
        error = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {rank.local} has a total capacity "
            f"of 79.11 GiB of which 1.02 GiB is free. Process {rank.pid} has 78.08 GiB memory in use. Of the allocated memory "
            "74.93 GiB is allocated by PyTorch, and 1.48 GiB is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )
    return Break("train", lambda: exit_rank(cluster, rank, 1, python_error(rank, frames, error)))
