"""Failures that were over before the end; derived."""

from nccl_doctor.common.named_tuples import NamedTuple


class Recovered(NamedTuple):
    """A failure after which the same thing worked: it is no cause of a later end; derived."""

    kind: str  # connection, rendezvous, file-system, link, port, step, placement, pod, exception
    host: str | None
    rank: int | None
    what: str  # peer, server, interface, port, pod, type of the exception
    back: str  # what shows that it worked, as a clause
    ref: int  # of the failure, as in the table that holds it
    back_ref: int
    refs: str  # the evidence, comma-separated


class FellBack(NamedTuple):
    """Something that could not be used, and what the same process used instead; its communicator came up with it; derived."""

    host: str | None
    rank: int | None
    wanted: str  # plug-in, libfabric, InfiniBand, DMA-BUF
    used: str  # IB, Socket, …; for DMA-BUF `peer memory or host memory`
    ref: int  # of the failure, as in the table that holds it
    back_ref: int
    refs: str  # the evidence, comma-separated
