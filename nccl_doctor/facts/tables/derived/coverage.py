"""What a report says of the job itself: facts for its job lines, measures with units, and how much of the job was visible."""

from nccl_doctor.common.named_tuples import NamedTuple


class JobFact(NamedTuple):
    """One thing known about the job as a whole; derived."""

    # hosts, ranks, gpu, gpus, launcher, framework, program, cuda, driver, cuda_driver, plugin, inside, between, gpudirect,
    # nics, channels, end
    name: str
    value: str
    ref: int | None


class Captured(NamedTuple):
    """What one kind of capture other than a log shows, as a clause; derived."""

    kind: str  # timeline, trace, flight-recorder, stacks, gpu-samples, topology, nccl-state, node-command, profile
    shows: str  # `Horovod timeline of 4 ranks: 6 tensors over 7.1 s`
    ref: int | None


class Measure(NamedTuple):
    """One number with its unit that an input holds or that follows from it; derived."""

    name: str  # step_time, throughput, busbw, latency, exposed_communication, gpu_busy, startup, …
    value: float
    unit: str  # s, us, GB/s, samples/s, %, …
    scope: str  # what it is measured on: job, run, host, pair, gpu, rank, step, batch-job, link, collective
    of: str  # which of them, as a person names it; empty for the job
    ref: int | None


class Coverage(NamedTuple):
    """How much of one aspect of the job the inputs show; derived. One row an aspect."""

    aspect: str  # start-up, transports, network, settings, versions, collectives, progress, end, gpus, nodes
    seen: str  # seen, partly, not
    shows: str | None  # what is seen, as a clause: `16 of 16 ranks came up`
    capture: str  # how to capture what is missing
    ref: int | None
