"""What a Horovod timeline says: who waited for whom, and where the time of the collectives went."""

from nccl_doctor.common.named_tuples import NamedTuple


class Timeline(NamedTuple):
    """One run of Horovod in a timeline file. An elastic restart or a file that was appended to gives several."""

    file: str
    segment: int  # from 0
    started: float | None  # seconds since the epoch; None before Horovod 0.20
    start_s: float  # first collective after the broadcasts of the start, on the clock of the file
    length_s: float  # from there to the last event
    events: int
    tensors: int
    ranks: int | None  # that ticked at least once
    ticked: int  # negotiations that show which rank came when; few where the response cache hides them
    negotiations: int  # all that ended, broadcasts left out
    cycles: int | None  # None without HOROVOD_TIMELINE_MARK_CYCLES
    cycle_ms: float | None  # median length of a cycle in which nothing happened
    negotiate_s: float  # time in which at least one tensor was being negotiated
    negotiate_ms: float | None  # median of one negotiation
    collective_s: float  # time in which at least one collective ran or queued
    idle_s: float  # time in which no tensor was pending on any rank
    gaps: int  # idle stretches of 10 ms or more
    gap_ms: float | None  # their median
    batches: int  # allreduces as executed: one fusion buffer, or one tensor
    batch_tensors: float | None  # median tensors in one
    batch_bytes: float | None  # median size of one, where all sizes are known
    split_batches: int  # whose tensors were all ready when the batch before them started
    open: int  # activities without an end
    pending: int  # tensors that still were negotiated when the file ended
    ready: str | None  # ranks that were ready for one of those
    device: int | None  # 1 where tensors lie on a GPU
    ref: int


class TimelineActivity(NamedTuple):
    """Time in one activity: NEGOTIATE_ALLREDUCE, QUEUE, WAIT_FOR_DATA, NCCL_ALLREDUCE, ..."""

    file: str
    segment: int
    activity: str
    kind: str  # negotiate, collective (the whole operation), wait, memory, transfer, other
    n: int
    total_ms: float  # added up over tensors: fused ones count each
    busy_ms: float  # time in which at least one tensor was in it
    median_ms: float
    max_ms: float
    ref: int  # the longest one


class TimelineTensor(NamedTuple):
    """Time of one tensor in one activity; the 100 tensors with the most time."""

    file: str
    segment: int
    tensor: str
    bytes: int | None
    activity: str
    n: int
    total_ms: float
    ref: int


class TimelineRank(NamedTuple):
    """When one rank was ready, over the negotiations that show it; broadcasts are left out."""

    file: str
    segment: int
    rank: int
    n: int
    last: int  # negotiations in which it came last
    late_ms: float  # median of the time from the first rank to this one
    ref: int  # where it was latest


class TimelineWindow(NamedTuple):
    """One of 60 to 120 equal pieces of the run."""

    file: str
    segment: int
    window: int
    at_s: float  # on the clock of the file
    length_s: float
    negotiate_s: float
    allreduce_s: float
    ref: int


class TimelineGap(NamedTuple):
    """An idle stretch: no tensor was pending on any rank; the 100 longest."""

    file: str
    segment: int
    at_s: float
    length_ms: float
    ref: int
