"""Who holds up a job that hangs, and what happened before the job was there."""

from typing import NamedTuple


class OpCensus(NamedTuple):
    """How far one rank came in one communicator, by NCCL's own counter of collectives (subsystem COLL); derived."""

    comm: str  # commId; `host:pid:pointer` of the group that has none
    nranks: int | None
    comm_rank: int | None
    rank: int | None
    host: str | None
    pid: int | None
    calls: int  # lines of collectives; sends and receives are left out
    first_op: int | None  # opCount; None where the rank enqueued nothing there
    last_op: int | None
    most: int  # the last opCount of the rank that is furthest
    function: str | None  # what the furthest ranks enqueued last
    garbage: int  # 1 where the counter cannot be one: it is left out of every comparison
    ref: int


class Hang(NamedTuple):
    """What one source says about one rank of a job in which ranks wait for each other; derived."""

    source: str  # watchdog, opcount, horovod, ras, flight-recorder, stacks, progress
    scope: str  # process group, communicator or stall report: ranks are compared inside one only
    rank: int | None
    host: str | None
    state: str  # ahead, waiting, behind (later than the others), missing (nothing of it where others wait)
    what: str  # the collective, tensor or line in question
    own: int | None  # how far it is: sequence number, opCount, number of operations, step
    others: int | None  # how far the ranks are that wait
    waiting: int | None  # how many of them
    certain: int  # 1 where the source itself names the rank
    ref: int
    refs: str  # the evidence, comma-separated


class Earlier(NamedTuple):
    """A line of the kernel from long before the job: no rule takes it for a cause; derived."""

    kind: str  # xid, sxid, or the name of the pattern
    host: str | None
    text: str
    hours: float  # before the job's first dated line
    n: int
    ref: int
