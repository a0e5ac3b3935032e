"""What is asked of a live node, and what is expected of it."""

from nccl_doctor.common.named_tuples import NamedTuple
from nccl_doctor.facts.evidence import Ref


class Collection(NamedTuple):
    """How one collector fared on a node."""

    host: str | None
    source: str  # gpu, infiniband, host, …
    outcome: str  # ok, partial (something may not be read), absent (no such subsystem), hung, failed
    seconds: float
    note: str | None  # why, where it is not ok
    ref: Ref


class Expected(NamedTuple):
    """A value that this node should have: of its GPU model, its machine type, or the site's own file."""

    host: str | None
    subject: str  # gpu, nvlink, nic, memlock, mount, …
    name: str  # count, model, links, width, rate, …
    value: str
    source: str  # where the expectation comes from: model, memory (the last good check), machine, file
    ref: Ref


class ActiveTest(NamedTuple):
    """A result of a program that tests the hardware: run by `preflight --deep`, or captured in a file (`dcgmi diag`, `dcgmi health`)."""

    host: str | None
    tool: str  # dcgm, ib_write_bw, nvbandwidth, nccl-tests; perftest, iperf3, fio, osu, hpl, serving and more for output in a file
    test: str  # as the program names it
    device: str | None  # GPUs, a network card, `ADDRESS to ADDRESS` or the number of a run; None for the whole node
    outcome: str  # pass, fail, warn, skip, or other where the program did not say
    value: float | None
    unit: str | None
    text: str | None  # what the program says of it
    ref: Ref
