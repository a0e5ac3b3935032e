"""Errors of the other ranks after a failure: closed connections, failed completions, watchdogs."""

from collections.abc import Iterable, Iterator

from nccl_doctor.simulate.cluster import Cluster, Host, Rank
from nccl_doctor.simulate.communicator import destroyed
from nccl_doctor.simulate.failure import job_end, nccl_exception
from nccl_doctor.simulate.nccl_format import info, init_trail, trail, warn
from nccl_doctor.simulate.phase import Phase


def remote_code(v: tuple[int, int, int]) -> int:
    """Returns ncclRemoteError (since 2.13), or the system error that older releases return."""
    return 6 if v >= (2, 13) else 2


def port(cluster: Cluster) -> int:
    """An ephemeral TCP port."""
    return cluster.rng.randrange(32_768, 60_999)


def closed_text(cluster: Cluster, rank: Rank, peer: Host) -> tuple[str, str, str]:
    """Returns (FILE:LINE, function, text) of the WARN for a connection that the peer closed."""
    v = rank.host.version
    if v < (2, 10):
        return "include/socket.h:417", "", "Net : Connection closed by remote peer"
    where = f"{peer.name}<{port(cluster)}>" if v < (2, 23) else f"{peer.address}<{port(cluster)}>"
    if v < (2, 16):
        return "misc/socket.cc:523", "", f"Net : Connection closed by remote peer {where}"
    return "misc/socket.cc:71", "socketProgress", f"socketProgress: Connection closed by remote peer {where}"


def closed(cluster: Cluster, rank: Rank, peer: Host, thread: str = "proxy") -> tuple[list[str], str]:
    """Returns (lines, text of the WARN) of a rank whose peer closed the connection."""
    where, func, text = closed_text(cluster, rank, peer)
    code = remote_code(rank.host.version)
    if thread == "init":
        after = init_trail(
            rank, code, ("misc/socket.cc:800", "ncclSocketRecv"), ("bootstrap.cc:701", "bootstrapAllGather")
        )
    else:
        after = trail(
            rank,
            code,
            ("misc/socket.cc:80", "socketWait"),
            ("transport/net_socket.cc:493", "ncclNetSocketTest"),
            ("transport/net.cc:1298", "recvProxyProgress"),
            ("proxy.cc:698", "progressOps"),
            thread="proxy",
        )
    return [warn(rank, where, text, func, thread), after], text


_NEW_STATUS = {4: "IBV_WC_LOC_PROT_ERR", 5: "IBV_WC_WR_FLUSH_ERR", 12: "IBV_WC_RETRY_EXC_ERR"}


def gid(host: Host, device: int) -> str:
    """The RoCE v2 GID of a host's network device."""
    parts = host.address.split(".")
    return f"::ffff:10.{200 + device}.{parts[2]}.{parts[3]}"


def completion(
    cluster: Cluster,
    rank: Rank,
    peer: Host,
    status: int,
    vendor: int,
    gids: tuple[str, str] | None = None,
    device: int = 0,
) -> tuple[list[str], str]:
    """Returns (lines, text of the WARN) for a failed work request; `gids` = (local, remote), printed for RoCE only."""
    v = rank.host.version
    text = _completion_text(
        cluster, rank, peer, status, vendor, gids or (gid(rank.host, device), gid(peer, device)), device
    )
    file = "transport/net_ib/p2p.cc:421" if v >= (2, 29) else "transport/net_ib.cc:1298"
    lines = [warn(rank, file, text, "ncclIbTest", "proxy")]
    if v >= (2, 30, 7) and cluster.net_debug and status == 12:
        hint = "HINT: In many cases this error occurs when the NCCL_IB_TIMEOUT is set too short."
        lines.append(info(rank, hint, "proxy"))
    steps = (
        ("transport/net.cc:1165", "sendProxyProgress"),
        ("proxy.cc:698", "progressOps"),
        ("proxy.cc:881", "ncclProxyProgress"),
    )
    lines.append(trail(rank, remote_code(v), *steps, thread="proxy"))
    return lines, text


def _completion_text(
    cluster: Cluster, rank: Rank, peer: Host, status: int, vendor: int, gids: tuple[str, str], device: int
) -> str:
    """The text of the WARN in the form of the rank's NCCL version (src/transport/net_ib.cc)."""
    v, hcas = rank.host.version, rank.host.hcas
    garbage = 32_500 + cluster.rng.randrange(250)  # NCCL prints an uninitialised field of the completion
    who = f"{peer.address}<{port(cluster)}>"
    pair = _gid_pair(v, gids) if hcas and hcas[0][2] == "RoCE" else ""
    device_name = hcas[device % len(hcas)][0] if hcas else "mlx5_0"
    if v < (2, 10):
        return f"NET/IB : Got completion with error {status}, opcode 1, len {garbage}, vendor err {vendor}"
    if v < (2, 20):
        text = (
            f"NET/IB : Got completion from peer {who} with error {status}, opcode {garbage}, len 0, vendor err {vendor}"
        )
        return text if v < (2, 18) else f"{text} (Send){pair}"
    if v < (2, 28, 7):
        start, end = ("NET/IB :", "") if v < (2, 22) else ("NET/IB:", f" hca {device_name}")
        return (
            f"{start} Got completion from peer {who} with status={status} opcode={garbage} len=0 "
            f"vendor err {vendor} (Send){pair}{end}"
        )
    size = " reqSize=0" if v < (2, 29) else ""
    request = " req_type=Send" if v < (2, 29) else " "
    return (
        f"NET/IB: Got completion from peer {who} with status={_NEW_STATUS[status]}({status}) "
        f"opcode=IBV_WC_RDMA_WRITE(1){size} vendor_err={vendor}{request}{pair} hca {device_name}"
    )


def _gid_pair(v: tuple[int, int, int], gids: tuple[str, str]) -> str:
    local, remote = gids
    return f" localGid {local} remoteGid {remote}" if v < (2, 20) else f" localGid {local} remoteGids{remote}"


def torch_head(rank: Rank, line: int, severity: str = "E") -> str:
    """Returns the start of a line of PyTorch's C++ logger."""
    v = rank.host.version
    if v < (2, 19):
        return f"[{severity} ProcessGroupNCCL.cpp:{line}] [Rank {rank.number}] "
    head = f"[rank{rank.number}]:[{severity}\x00c ProcessGroupNCCL.cpp:{line}] "
    if v < (2, 20):
        return head + f"[Rank {rank.number}] "
    group = "PG 0" if v < (2, 21) else "PG ID 0 PG GUID 0(default_pg)"
    return f"{head}[{group} Rank {rank.number}] "


def work(v: tuple[int, int, int], sequence: int, operation: str, numel: int, timeout: int) -> str:
    """Returns ``WorkNCCL(…)`` as the PyTorch release of this NCCL prints it."""
    if v < (2, 14):
        shape = f"TensorShape=[{numel}]"
    elif v < (2, 18):
        return f"WorkNCCL(SeqNum={sequence}, OpType={operation}, Timeout(ms)={timeout})"
    else:
        shape = f"NumelIn={numel}, NumelOut={numel * (2 if 'GATHER' in operation else 1)}"
    return f"WorkNCCL(SeqNum={sequence}, OpType={operation}, {shape}, Timeout(ms)={timeout})"


def watchdog(
    cluster: Cluster, rank: Rank, sequence: int, operation: str = "ALLREDUCE", numel: int = 25_165_824
) -> list[str]:
    """Returns the lines of PyTorch's watchdog for a collective that timed out, until the abort."""
    v = rank.host.version
    timeout = 1_800_000 if v < (2, 19) else 600_000
    ran = timeout + cluster.rng.randrange(40, 900)
    description = work(v, sequence, operation, numel, timeout)
    message = (
        f"[Rank {rank.number}] Watchdog caught collective operation timeout: {description} ran for {ran} "
        "milliseconds before timing out."
    )
    head = torch_head(rank, 616)
    plain = head[: head.index("] ") + 2]
    lines = [plain + message]
    if v >= (2, 20):
        lines.append(
            f"{head} failure detected by watchdog at work sequence id: {sequence} PG status: last enqueued work: "
            f"{sequence + 2}, last completed work: {sequence - 1}"
        )
    risk = (
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
        "operations might run on corrupted/incomplete data."
    )
    lines.append(plain + risk)
    if v >= (2, 14):
        lines.append(f"{plain}To avoid data inconsistency, we are taking the entire process down.")
        lines.append(
            "terminate called after throwing an instance of "
            + ("'c10::DistBackendError'" if v >= (2, 19) else "'std::runtime_error'")
            + f"\n  what():  {message}"
        )
    return lines


def hang(
    cluster: Cluster, waiting: Iterable[Rank], sequence: int, operation: str = "ALLREDUCE", numel: int = 25_165_824
) -> Iterator[Phase]:
    """Ranks that wait for a collective until PyTorch's watchdog ends them, then the launcher's report."""
    waiting = list(waiting)
    yield Phase(1800.0 if cluster.v < (2, 19) else 600.0)
    phase = Phase(1.0)
    for rank in waiting:
        phase.add(rank, *watchdog(cluster, rank, sequence, operation, numel))
    yield phase
    yield from job_end(cluster, dict.fromkeys(waiting, -6), waiting[0])


def fail_ranks(
    cluster: Cluster, failures: dict[Rank, tuple[list[str], int, str]], call: str = "allreduce"
) -> Iterator[Phase]:
    """Ranks fail with an NCCL error, rank -> (lines, code, text of the WARN); then exceptions and the end of the job."""
    phase = Phase(2.0)
    for rank, (lines, _, _) in failures.items():
        phase.add(rank, *lines)
    yield phase
    phase = Phase(1.0)
    for rank, (_, code, last) in failures.items():
        phase.add(rank, nccl_exception(cluster, rank, code, last, call), *destroyed(cluster, rank, "Abort"))
    yield phase
    first = next(iter(failures))
    aborts = call != "init" and cluster.spec.framework == "pytorch" and cluster.v >= (2, 14)
    yield from job_end(cluster, dict.fromkeys(failures, -6 if aborts else 1), first)


def neighbours_fail(cluster: Cluster, host: Host) -> Iterator[Phase]:
    """The neighbours of a failed host see failed completions or closed connections, then exit."""
    failures: dict[Rank, tuple[list[str], int, str]] = {}
    for other in cluster.neighbours(host):
        for rank in other.ranks[: 2 if len(other.ranks) > 1 else 1]:
            if other.network == "IB":
                lines, text = completion(cluster, rank, host, 12, 129, device=rank.local)
            else:
                lines, text = closed(cluster, rank, host)
            failures[rank] = (lines, remote_code(rank.host.version), text)
    if failures:
        yield Phase(20.0)
        yield from fail_ranks(cluster, failures)


def exit_early(cluster: Cluster, rank: Rank, text: str) -> Iterator[Phase]:
    """A rank exits before NCCL is used; no peer has a connection to lose."""
    phase = Phase(1.0)
    phase.add(rank, text)
    yield phase
    yield from job_end(cluster, {rank: 1}, rank)


def exit_rank(cluster: Cluster, rank: Rank, code: int, *texts: str) -> Iterator[Phase]:
    """A rank exits after these lines; its launcher ends the node, its peers report errors."""
    phase = Phase(1.0)
    if texts:
        phase.add(rank, *texts)
    yield phase
    if cluster.launcher == "torchrun" and not cluster.one_host:
        yield from job_end(cluster, {rank: code}, rank)
        yield from neighbours_fail(cluster, rank.host)
        return
    phase = Phase(1.0)
    for other in rank.host.ranks[:4]:
        if other is not rank and cluster.v >= (2, 12):
            phase.add(other, info(other, f"[Service thread] Connection closed by localRank {rank.local}", "proxy"))
    yield phase
    yield from job_end(cluster, {rank: code}, rank)
