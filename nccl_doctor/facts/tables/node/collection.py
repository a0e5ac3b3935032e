"""What is asked of a live node, and what is expected of it."""

from typing import NamedTuple

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


class NodeOdd(NamedTuple):
    """A node that differs from the majority of the nodes that were asked together, or from the only other one; derived."""

    host: str | None
    subject: str  # driver, nccl, kernel, gpus, firmware, gid, mtu, plugin, mount, setting, clock
    name: str  # what of it: a mount's path, a variable; else the subject again
    value: str  # of this node
    common: str  # of most others
    same: int  # nodes that have the common value
    nodes: int  # nodes that were compared
    ref: int
