"""What processes were doing at one moment, as their call stacks show it."""

from typing import NamedTuple


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
    ref: int
