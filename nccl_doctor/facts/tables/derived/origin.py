"""Whose rows are whose: host names, rows without one, and kernel lines from before the job; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class HostAlias(NamedTuple):
    """A name that a source prints and another one that is used for the same host everywhere; derived."""

    name: str  # as printed
    host: str  # the name that readers of the facts see
    why: str  # full-name (the short name is printed elsewhere), torn (part of the name is missing or too much)
    ref: int | None


class InferredHost(NamedTuple):
    """Rows of one table that name no host, and the host that they are about; derived."""

    rows_of: str  # table
    file: str | None  # all rows from this file; None where `pci` tells
    pci: str | None  # all rows about this GPU, as the kernel prints its address
    host: str
    why: str  # path (the file is named after the host), only-host (the job has no other), gpu (no other host has it)


class Earlier(NamedTuple):
    """A line of the kernel from long before the job or its end: no rule takes it for a cause; derived."""

    kind: str  # xid, sxid, or the name of the pattern
    host: str | None
    text: str
    hours: float  # before the job's first dated line, or before its end
    relation: str  # start or end: what it came long before
    n: int
    ref: int
