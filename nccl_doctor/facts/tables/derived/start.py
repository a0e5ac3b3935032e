"""How a job starts: who came to a meeting, and values that cannot be; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class RollCall(NamedTuple):
    """Who came of those that were announced for a meeting, as one source says or shows it; derived."""

    # announced (lines in which ranks say who they are), store, store-barrier, agents, jax, nccl-init, nccl-bootstrap, xla,
    # monitored-barrier, pods (a list of Kubernetes), tensorflow, replicas and jobset (what operators count), gang (Volcano,
    # coscheduling), srun (states of tasks), srun-nodes, horovod-slots, ray (GPUs of bundles)
    source: str
    unit: str  # what is counted: process, node, agent, thread, pod, replica, job, slot, gpu, task
    phase: str  # start, or run for a meeting later on
    scope: str | None  # name of the barrier, the key, the set of pods or the job
    size: int | None  # how many were announced
    came: int | None  # how many different ones came
    absent: str | None  # the numbers of the others, `2,5-7`; None where it does not follow who they are
    doubled: str | None  # numbers that two or more took
    seconds: int | None  # how long the others waited
    certain: int  # 1 where the source itself says that some did not come, or that one came twice
    ref: int
    refs: str  # the evidence, comma-separated


class ImpossibleValue(NamedTuple):
    """A value that a program printed or was given and that nothing of its kind can have; derived."""

    host: str | None
    rank: int | None
    subject: str  # address, name, port, rank, size, gpu, links
    value: str  # as printed
    why: str  # as a clause
    limit_: int | None  # the largest value that is possible, where it is a number
    certain: int  # 0 where the value is only improbable
    ref: int


class GpuSharing(NamedTuple):
    """A GPU that several processes of a host use, as one source shows it; derived."""

    source: str  # communicator (several ranks print its address), processes (a list of those on GPUs), out-of-memory
    host: str | None
    rank: int | None  # the lowest of them, or the rank that ran out of memory
    gpu: str  # address, index or UUID as printed
    # ranks, contexts (processes that work elsewhere and hold little here), program (others that hold much), programs (the same
    # with the one that ran out among them)
    kind: str
    others: str  # ranks or process ids, `101,102`
    processes: int  # how many others
    memory: float | None  # MiB that the others hold together
    ref: int
    refs: str  # the evidence, comma-separated
