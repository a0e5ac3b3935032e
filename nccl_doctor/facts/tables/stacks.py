"""What processes were doing at one moment, as their call stacks show it."""

from nccl_doctor.common.named_tuples import NamedTuple


class Stack(NamedTuple):
    """One thread of a Python process, as py-spy dumps it."""

    host: str | None
    rank: int | None
    pid: int
    parent: int | None  # process id of the rank, for a process that it started (DataLoader worker)
    thread: str | None  # name
    main: int  # 1 for the main thread
    active: int  # 1 where it ran on a processor
    gil: int  # 1 where it held the interpreter's lock
    doing: str  # collective, backward, dataloader, loader-worker, checkpoint, cuda-sync, compiling, rendezvous, other
    frame: str | None  # the frame that says so
    leaf: str | None  # innermost frame of Python code
    frames: int  # depth
    job: str | None  # name of the job, where several run on the node
    ref: int


class RankState(NamedTuple):
    """A rank in one look of the hang monitor; the monitor looks when a job seems to stand still, twice before it speaks."""

    host: str | None
    job: str | None
    rank: int | None
    pid: int
    gpu: int | None
    world: int | None  # ranks of the job
    look: int  # 1 for the first look at this stop
    at: float  # seconds since the epoch
    since: float | None  # when its main thread ran last, seconds since the epoch
    state: str | None  # running, sleeping, disk-sleep, stopped, zombie, ended
    doing: str  # as in `stack`
    op: str | None  # function of the collective in which it waits
    site: str | None  # innermost frame of the program itself: train (train.py:40)
    worker: str | None  # frame of a DataLoader worker that makes a sample
    holder: str | None  # another thread of it that holds the interpreter's lock: uploader at compress (upload.py:12)
    counter: str | None  # local variable that counts its steps
    step: int | None  # value of that variable
    moved: int | None  # 1 where it moved since the look before; None in the first look
    busy: float | None  # % of a processor that it used since the look before
    ref: int


class StuckSocket(NamedTuple):
    """A TCP connection of a rank with data that the other end does not acknowledge."""

    host: str | None
    job: str | None
    rank: int | None
    pid: int
    local: str  # 10.0.0.1:29500
    peer: str
    queued: int  # bytes that are not acknowledged
    retransmits: int
    ref: int
