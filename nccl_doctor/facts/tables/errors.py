"""What NCCL, the frameworks, the launchers and the kernel say when something breaks."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref
from nccl_doctor.facts.tables.base import joined_by


class IbError(NamedTuple):
    """A work completion with an error (NCCL src/transport/net_ib*)."""

    host: str | None
    rank: int | None
    pid: int | None
    peer: str | None  # IP<port> of the peer's bootstrap interface
    status: int | None  # ibv_wc_status
    opcode: str | None  # undefined by verbs when the status is an error
    vendor_err: int | None
    request: str | None  # Send, Recv, Flush
    local_gid: str | None
    remote_gid: str | None
    hca: str | None
    n: int
    stamp: float | None
    ref: int


class IbEvent(NamedTuple):
    """An asynchronous event of an HCA or port."""

    host: str | None
    rank: int | None
    pid: int | None
    hca: str | None
    port: int | None
    event: str
    fatal: int | None
    n: int
    stamp: float | None
    ref: int


class VerbsError(NamedTuple):
    """A libibverbs call that failed."""

    host: str | None
    rank: int | None
    pid: int | None
    call: str  # ibv_reg_mr, ibv_modify_qp, …
    error: str | None  # text of errno
    errno: int | None
    hca: str | None
    gid_index: int | None
    local_gid: str | None
    remote_gid: str | None
    n: int
    stamp: float | None
    ref: int


class SocketError(NamedTuple):
    """A TCP call of NCCL that failed."""

    host: str | None
    rank: int | None
    pid: int | None
    call: str  # connect, recv, send, bind, accept, closed (by the peer), magic, type, family, truncated
    peer: str | None  # address as printed, without <port>
    port: int | None
    error: str | None
    retrying: int  # 1 where NCCL says that it tries again
    n: int
    stamp: float | None
    ref: int


class CudaError(NamedTuple):
    """A CUDA call that failed, as NCCL, PyTorch or Horovod print it."""

    host: str | None
    rank: int | None
    pid: int | None
    code: int | None
    text: str
    source: str | None  # file that reports it
    n: int
    stamp: float | None
    ref: int


class Trail(NamedTuple):
    """A step of NCCL's return trail: `file:line -> code`. Only the deepest, first printed, names the fault."""

    host: str | None
    rank: int | None
    pid: int | None
    source: str
    code: int  # 1 CUDA, 2 system, 3 internal, 4 argument, 5 usage, 6 remote
    thread: str | None
    n: int
    ref: int


@joined_by("rank")
class Watchdog(NamedTuple):
    """What PyTorch's NCCL watchdog said about one collective."""

    host: str | None
    rank: int | None
    event: str  # timeout, status, dump, heartbeat, fingerprint, remote
    pg: str | None  # process group
    pg_name: str | None
    seq: int | None  # sequence number inside the process group
    op: str | None
    numel_in: int | None
    numel_out: int | None
    shape: str | None
    timeout_ms: int | None
    elapsed_ms: int | None
    enqueued: int | None
    started: int | None
    completed: int | None
    n: int
    stamp: float | None
    ref: int


class Xid(NamedTuple):
    """An NVIDIA driver or NVSwitch error in the kernel log."""

    host: str | None
    kind: str  # xid, sxid
    pci: str | None
    code: int
    pid: int | None
    process: str | None
    text: str
    fatal: int | None  # 1, 0 where the line says Fatal or Nonfatal
    previous: int | None  # code in `caused by previous Xid N`
    n: int
    stamp: float | None
    ref: Ref


@joined_by("pid")
class ProcessEnd(NamedTuple):
    """How a process ended, as somebody reports it."""

    host: str | None
    rank: int | None
    local_rank: int | None
    pid: int | None
    exitcode: int | None  # negative = signal
    signal: str | None  # SIGKILL, …
    reporter: str  # torchelastic, mpirun, horovodrun, srun, slurmstepd, kernel, dataloader, ray, kubernetes, scontrol, sacct, seff, wandb …
    first: int | None  # 1 where the reporter calls it the first failure
    job: str | None  # its id in the accounting of a scheduler, which may list several
    n: int
    stamp: float | None
    ref: int


class PythonError(NamedTuple):
    """The last line of a Python traceback, or an exception that a framework prints."""

    host: str | None
    rank: int | None
    pid: int | None
    type: str
    text: str
    n: int
    last_line: int
    stamp: float | None
    ref: int
