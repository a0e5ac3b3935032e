"""Software of a node as the task sees it: libraries, packages, settings and what they name, what a scheduler granted, logins."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class SoftwareVersion(NamedTuple):
    """Something installed that a distributed GPU job uses."""

    host: str | None
    name: str  # nvidia-driver, cuda-toolkit, cuda-compat, torch, tensorflow, horovod, openmpi, mpi, gcc, libstdc++, nvidia-nccl-cu12, …
    version: str | None
    cuda: str | None  # CUDA version that it was built for; `none` where it was built without CUDA
    nccl: str | None  # NCCL that it was built for or holds; `none` where it was built without NCCL
    place: str  # path, or folder of the Python package
    origin: str  # proc, file, env (the task's Python), user (~/.local), system, conda, path (first on PATH), command
    ref: Ref


class NcclLibrary(NamedTuple):
    """A file of NCCL on this node."""

    host: str | None
    path: str
    target: str  # the file itself, after links
    version: str | None
    cuda: str | None  # CUDA version that it was built for
    how: str  # LD_PRELOAD, torch (its own search path), LD_LIBRARY_PATH, ld.so.cache, default folder, not searched
    place: int | None  # 1 = what PyTorch, or without it any program, loads; None = nothing loads it
    size: int | None  # bytes
    oldest: int | None  # interface of network plug-ins (N of ncclNetPlugin_vN) that it accepts, the oldest
    newest: int | None  # and the newest; None where the file does not tell
    ref: Ref


class SearchPath(NamedTuple):
    """One entry of LD_LIBRARY_PATH or LD_PRELOAD of the task."""

    host: str | None
    variable: str
    place: int  # 1 = searched first
    path: str
    state: str  # ok, missing, stubs (libcuda without a driver), compat (libcuda of the CUDA compatibility package)
    filesystem: str | None  # type, where it is a network file system: nfs4, lustre, …
    ref: Ref


class CondaChange(NamedTuple):
    """A change of the task's conda environment (conda-meta/history), with the packages of pip that are older than it."""

    host: str | None
    prefix: str
    stamp: float | None
    packages: str  # that conda added or took away, those that matter to GPUs and networks first
    older: str  # packages that pip had installed before, blank-separated; only those that matter
    ref: Ref


class NcclSettingLine(NamedTuple):
    """A line of a settings file of NCCL.

    `problem` is empty or one of blank-in-name, no-setting, quotes, comment, blank-in-value, carriage-return, too-long,
    overridden, not-nccl.
    """

    host: str | None
    file: str
    line: int
    name: str
    value: str
    problem: str
    ref: Ref


class SettingTarget(NamedTuple):
    """What one part of a setting's value names, and which of it this node has."""

    host: str | None
    name: str
    value: str
    part: str  # one entry of the list
    kind: str  # interface, hca, file, gpu, provider; switch, roce: turns such a network off
    exact: int  # 1 where the name must be equal, 0 where it may be the beginning of one
    found: str  # what it names here, blank-separated; empty for nothing
    have: str  # what this node has of the kind, blank-separated
    ref: Ref


class Allocation(NamedTuple):
    """What a scheduler granted to the job on this node, against what the task finds."""

    host: str | None
    scheduler: str  # slurm, pbs, lsf, gridengine, kubernetes
    resource: str  # gpus, cpus, nodes, tasks, tasks-here
    granted: int | None
    found: int | None  # None where it cannot be found out here
    setting: str  # variable that says it
    ref: Ref


class Launch(NamedTuple):
    """How a process of the job is to be started: variables of the task, or arguments of torchrun."""

    host: str | None
    source: str  # environment, torchrun
    world: int | None  # processes of the whole job
    local: int | None  # processes on this node
    rank: int | None
    nodes: int | None
    gpus: int | None  # GPUs of this node that the task sees
    tasks: int | None  # tasks that the scheduler starts in the whole job
    master: str | None  # address of the rendezvous
    port: int | None
    address: str | None  # what `master` resolves to
    loopback: int | None  # 1 where that is 127.* or ::1
    # taken: this node is to hold the rendezvous, and another user's program listens there; taken-own: one of the same user.
    answer: str | None  # accepted, refused, timeout, unresolved, unreachable, taken, taken-own; None where nobody asked
    ref: Ref


class ContainerFact(NamedTuple):
    """Something about containers on this node."""

    host: str | None
    name: str  # toolkit, runtime, cgroup-driver, dev-char-missing, cdi-driver, cdi-gpus
    value: str
    path: str
    ref: Ref


class SshLogin(NamedTuple):
    """One attempt to log in to another node of the job without a password."""

    host: str | None
    peer: str
    outcome: str  # ok, noise, key-changed, key-unknown, denied, timeout, refused, unresolved, closed, failed
    seconds: float
    text: str  # what ssh said
    ref: Ref


class SshSetting(NamedTuple):
    """A setting of sshd, or a file below ~/.ssh, that decides whether logins between nodes work.

    `problem` is empty or one of pubkey-off, user-excluded, root-excluded, few-startups, few-sessions, too-open, no-keys,
    needs-agent.
    """

    host: str | None
    file: str
    name: str  # option of sshd_config in lower case; mode, owner, missing, encrypted for files
    value: str
    user: str | None  # who runs the task
    problem: str
    ref: Ref
