"""Who took part in the job, what connects them, and how their settings compare; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class Job(NamedTuple):
    """The job as a whole: one row, derived."""

    hosts: int | None  # physical nodes, containers and equal host names resolved; None = not known
    multi_node: int | None
    ranks: int | None
    processes: int | None
    nccl: str | None  # smallest NCCL version seen
    nccl_number: int | None  # 22105 for 2.21.5
    has_nccl: int
    has_info: int  # 1 where NCCL_DEBUG=INFO lines are there
    initialised: int  # communicators that came up
    lines: int


class Host(NamedTuple):
    """A host, derived from all that carries its name."""

    name: str
    ranks: int
    processes: int
    gpus: int | None  # different bus ids
    address: str | None  # of its bootstrap interface
    ref: int | None


class Rank(NamedTuple):
    """A rank of the job, derived."""

    rank: int
    host: str | None
    pid: int | None
    bus_id: str | None
    cuda_dev: int | None
    nvml_dev: int | None
    initialised: int | None  # 1 Init COMPLETE was printed, 0 only START
    last_line: int | None
    ref: int | None


class Link(NamedTuple):
    """What carries data between two hosts, or inside one; derived from connections."""

    src_host: str | None
    dst_host: str | None
    same_host: int | None  # None where a host is not known
    transport: str
    method: str | None
    network: str | None
    gdr: int | None
    connections: int
    channels: int
    devices: int | None  # different net devices
    ref: int


class EnvDifference(NamedTuple):
    """A setting that ranks or hosts do not share; derived."""

    name: str
    value: str | None  # None = not set there
    ranks: int  # how many ranks have this value
    of_ranks: int
    hosts: str  # blank-separated
    ref: int | None


class EnvLint(NamedTuple):
    """A setting of a host or rank that is misspelt, obsolete, harmful or left over; derived from `env` and the table of settings."""

    host: str | None
    rank: int | None
    name: str
    value: str
    verdict: str  # unknown, deprecated, removed, no-effect, debug-leftover, dangerous, bad-value
    detail: str  # why, as a clause
    ref: int


class LoadFailure(NamedTuple):
    """A library that the dynamic loader could not load or bind; derived from what programs print."""

    host: str | None
    rank: int | None
    kind: str  # symbol-version-missing, undefined-symbol, shared-library-missing, static-tls-exhausted
    fields: str  # of the message, JSON
    fatal: int  # 1 where it ended the program; programs also try libraries that they can do without
    ref: int
