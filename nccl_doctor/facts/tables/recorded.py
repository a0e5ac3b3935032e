"""What `nccl-doctor record` kept beside the output of a job."""

from nccl_doctor.common.named_tuples import NamedTuple


class RecordedRun(NamedTuple):
    """One recorder: the command that it ran, and how that ended."""

    host: str | None
    file: str
    command: str | None  # empty where it watched jobs that ran already; None where only the end is known
    status: int | None  # exit status, 128 + signal; None where the recorder did not live to see it
    signal: str | None  # SIGKILL, …
    started: float | None  # seconds since the epoch
    ended: float | None
    running: int | None  # 1 where this recorder still runs here, 0 where not; None on another machine
    sent: str | None  # signals that the recorder was sent and passed on to the job: SIGTERM
    sent_by: int | None  # process id of the first sender; 0 for the kernel or another PID namespace
    sent_after: float | None  # seconds from the start to the first of them
    lost: int | None  # bytes of the output that could not be kept
    lost_why: str | None
    ref: int


class PortUse(NamedTuple):
    """One network port over a recording."""

    host: str | None
    port: str  # mlx5_0/1, eth0
    kind: str  # ib, roce, efa, ethernet
    speed: float | None  # Gb/s
    samples: int
    first: float | None  # seconds since the epoch
    seconds: float | None
    rx_mean: float | None  # Gb/s received
    tx_mean: float | None  # Gb/s sent
    rx_max: float | None  # Gb/s over one interval
    tx_max: float | None
    downs: int  # samples in which the port was not active, after it had been
    last_state: str | None
    ref: int


class PortError(NamedTuple):
    """An error counter of a port that grew during a recording."""

    host: str | None
    port: str
    kind: str
    name: str  # symbol_error, link_downed, rx_dropped, …
    growth: int
    first: float | None  # when it grew for the first time
    ref: int


class HostUse(NamedTuple):
    """A host over a recording."""

    host: str | None
    samples: int
    first: float | None
    seconds: float | None
    cpus: int | None
    cpu_mean: float | None  # % of all processors
    cpu_high_share: float | None  # share of samples with 95 % or more
    cpu_wait: float | None  # % of the time in which processors were idle and waited for input and output
    memory_max: float | None  # MiB
    memory_total: float | None  # MiB
    swap_max: float | None  # MiB
    shm_max: float | None  # MiB in /dev/shm
    shm_total: float | None  # MiB
    tcp_sent: int | None  # segments
    tcp_repeated: int | None  # of these, retransmissions
    ref: int


class RankUse(NamedTuple):
    """A rank's process over a recording."""

    host: str | None
    rank: int
    pid: int
    job: str | None
    samples: int
    first: float | None
    last: float | None
    cpu_mean: float | None  # % of one processor
    memory_max: float | None  # MiB
    cpus: str | None  # processors on which it may run, folded
    blocked: int  # samples in state D: in the kernel, mostly for storage or a driver
    starved: float | None  # share of the worst 10 s in which the main thread was ready and waited for a processor
    starved_others: float | None  # the median of the other ranks of the host in these 10 s
    ref: int


class Spinning(NamedTuple):
    """A node whose GPUs look busy, draw little and move nothing: kernels that wait in a collective."""

    host: str | None
    spinning: int  # GPUs
    gpus: int  # of the node; those that do not spin are idle
    power_share: float  # the highest share of the power limit that a GPU drew
    seconds: float
    ref: int
