"""What came before what, by the clocks of several files; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class Lead(NamedTuple):
    """An event and the first symptom after it that another file shows, or slow steps in any, by clocks that can be compared; derived."""

    event: str  # gpu, link, process, node, storage, slowed (hardware that goes on)
    host: str | None  # on which it happened
    symptom: str  # timeout, rdma, connection, end, slow-step
    shows: str  # the symptom as a sentence names it: `the first watchdog timeout`
    seconds: float | None  # from the event to the symptom; None where the order of the lines of one file tells it
    hours: int | None  # between the two clocks, where one names UTC and the other no zone; else None
    waited: float | None  # seconds that the operation which timed out had run when the event came
    ref: int  # of the event
    symptom_ref: int


class ThrottledSteps(NamedTuple):
    """A GPU whose clocks were held back during the slow steps of a run and hardly otherwise; derived."""

    run: int
    host: str | None
    gpu: int | None
    reason: str  # as in `gpu_throttle`
    slow: int  # slow steps that the samples cover
    slow_held: int  # of those, during which the reason was active
    others: int  # other steps that the samples cover
    others_held: int
    ref: int  # of the first sample with the reason
    step_ref: int  # of the slowest step


class EventSteps(NamedTuple):
    """Errors of hardware that come again and again, and do so in the slow steps of a run and hardly in others; derived."""

    run: int
    event: str  # gpu, link, storage, slowed, as in `lead`
    host: str | None
    slow: int  # slow steps
    slow_held: int  # of those, in which such an error came
    others: int  # other steps
    others_held: int
    ref: int  # of the first error
    step_ref: int  # of the slowest step


class IdleCause(NamedTuple):
    """Times in which a GPU did nothing, and what the log of the job shows at the same times; derived."""

    host: str | None
    gpu: int | None
    cause: str  # data = steps that waited for input, checkpoint, evaluation
    run: int | None  # of the steps
    events: int  # steps that waited, or checkpoints, while the GPU was sampled
    followed: int  # of those, in which the GPU was idle
    others: int | None  # other steps that the samples cover
    others_idle: int | None
    lag: float | None  # median seconds from the line of a checkpoint to the idle GPU
    seconds: float  # that the GPU was idle in them
    share: float  # of the time of the samples
    ref: int  # of the GPU
    event_ref: int  # the step that waited longest, or the first checkpoint


class Restart(NamedTuple):
    """A place in a log at which ranks that had ended begin again as new processes; derived."""

    file: str
    line: int  # of the first line of the new processes
    ref: int


class Undated(NamedTuple):
    """A kernel event whose file holds no line of the job, and that no clock places before, in or after the job; derived."""

    host: str | None
    why: str  # as a clause says it: `its line counts seconds since boot`
    ref: int
