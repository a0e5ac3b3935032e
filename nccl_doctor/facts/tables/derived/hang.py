"""Who holds up a job that hangs; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


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


class HorovodStall(NamedTuple):
    """A rank and a tensor in the stall reports of Horovod (stall_inspector.cc, before 0.18 operations.cc)."""

    tensor: str
    rank: int
    state: str  # missing: did not submit it; ready: submitted it and waits
    told: int  # 1 where the list names the rank, 0 where it follows from the others
    doomed: int  # 1 where `!` marks the rank for which Horovod shuts down
    report: int  # number of the first report that says so, from 1; 0 where no head of a report is in the log
    last_line: int  # where it is said for the last time
    ref: int


class RankDoing(NamedTuple):
    """What the main thread of a rank was doing, beside the others of the same dump; derived."""

    host: str | None
    rank: int | None
    pid: int
    doing: str
    frame: str | None
    leaf: str | None
    ranks: int  # processes that were dumped
    same: int  # of those, how many did the same
    waiting: int  # how many others were in a collective, the backward pass or the start of the process group
    worker: str | None  # leaf of a DataLoader worker of it that was not waiting for an index
    moved: int | None  # 1 where it moved between two looks; None where there was only one
    ref: int


class JobStop(NamedTuple):
    """A job that stood still in two looks of the hang monitor, one row for each rank that is suspected; derived.

    `rank` and `pid` are None in the only row of a job in which no rank is suspected.
    """

    job: str | None
    state: str  # stopped: nobody moves; waiting: the ranks wait for one that moves
    kind: str  # outside, dataloader, checkpoint, compiling, rendezvous, gil, suspended, ended, kernel, apart, network, unseen
    host: str | None
    rank: int | None
    pid: int | None
    gpu: int | None
    words: str | None  # what the suspected rank does: is in load (data.py:8)
    operation: str | None  # in which the others wait
    waiting: int
    ranks: int
    seconds: float  # from the last move to the last look
    headline: str
    ref: int
    refs: str


class RecorderMismatch(NamedTuple):
    """Derived: the first collective of a group in which its ranks part."""

    pg: str
    description: str | None
    seq: int
    kind: str  # type, size, dtype, missing, stuck, absent (no dump), elsewhere (missing, waits in another group), p2p, p2p-busy (likewise)
    ranks: str  # those that differ, are missing or wait, comma-separated
    rank: int | None  # where it is one
    what: str  # in words
    op: str | None
    waiting: int  # ranks that wait in this collective
    frame: str | None  # line of the program
    ref: int
    refs: str  # a place in the dumps of both sides


class LoneWork(NamedTuple):
    """Work that one rank does while others wait for it: a progress bar that had not ended when a wait began to fail; derived."""

    host: str | None
    rank: int | None
    label: str  # as the bar prints it
    percent: int  # the furthest that the log shows
    elapsed: int  # seconds that the bar had run by then
    limit_: int | None  # seconds after which the others gave up; None where the log does not say
    sign: str  # what shows that others waited: timeout, barrier
    ref: int
    refs: str  # the evidence, comma-separated
