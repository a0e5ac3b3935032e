"""File systems of a node."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class Mount(NamedTuple):
    """A file system that matters to jobs: shared ones, automounters, and local disks."""

    host: str | None
    path: str
    fstype: str
    source: str
    kind: str  # shared, local, autofs
    read_only: int
    turned: int  # 1 where it was mounted for writing and the kernel made it read-only
    options: str
    ref: Ref


class MountWanted(NamedTuple):
    """A shared file system that /etc/fstab mounts at boot."""

    host: str | None
    path: str
    fstype: str
    source: str
    read_only: int
    ref: Ref


class MountProbe(NamedTuple):
    """A trial of a file system in a process of its own, with a deadline."""

    host: str | None
    path: str
    operation: str  # stat, write
    outcome: str  # ok, hung, or the name of the error: ESTALE, EIO, EROFS, EACCES, ENOSPC, EDQUOT, ENOENT
    seconds: float
    size: int | None  # bytes
    free: int | None  # bytes that users may fill
    files: int | None  # inodes
    files_free: int | None
    wanted: int  # 1 where the site's own file names it
    uid: int | None  # user who tried
    ref: Ref


class LustreTarget(NamedTuple):
    """A connection of the Lustre client to a server, or the state of the client itself."""

    host: str | None
    kind: str  # osc, mdc, mgc, lnet, health
    name: str
    state: str  # FULL, IDLE, DISCONN, EVICTED, CONNECTING, …; healthy
    active: int | None  # 0 where an administrator took it out
    age: float | None  # seconds in this state
    ref: Ref


class NfsMount(NamedTuple):
    """An NFS mount as the client counts it, since it was mounted."""

    host: str | None
    path: str
    server: str
    operations: int
    repeats: int  # transmissions beyond one an operation
    timeouts: int  # operations that ran into a major timeout
    rtt: float | None  # ms, mean of all operations
    ref: Ref
