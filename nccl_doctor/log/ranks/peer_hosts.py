"""On which host the ranks of a communicator are, for lines that name a peer by its rank alone."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nccl_doctor.log.channel_counts import Origin


class Member(NamedTuple):
    """A process that took a rank of a communicator."""

    host: str | None
    pid: int | None
    comm_id: str | None
    comm_rank: int
    nranks: int


class PeerHosts:
    """Which rank is on which host, as the communicators of a process say."""

    def __init__(self, members: Iterable[Member]) -> None:
        """Without a commId the communicators of one size are taken for one."""
        members = list(members)
        of_communicator: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
        for one in members:
            if one.host:
                of_communicator[one.comm_id or "", one.nranks].setdefault(one.comm_rank, one.host)
        distinct: dict[frozenset[tuple[int, str]], dict[int, str]] = {}  # those of the same ranks are asked once
        for key, hosts in of_communicator.items():
            of_communicator[key] = distinct.setdefault(frozenset(hosts.items()), hosts)
        self._of: dict[tuple[str | None, int | None], dict[int, dict[int, str]]] = defaultdict(dict)
        for one in members:
            hosts = of_communicator[one.comm_id or "", one.nranks]
            self._of[one.host, one.pid][id(hosts)] = hosts

    def of(self, process: Origin) -> Callable[[int], str | None]:
        """Gives the host of a rank, where the communicators of the process that have the rank agree on it."""
        known = list(self._of.get((process.host, process.pid), {}).values())
        if len(known) == 1:
            return known[0].get
        return lambda rank: _agreed(known, rank)


def _agreed(communicators: Sequence[dict[int, str]], rank: int) -> str | None:
    found = {hosts[rank] for hosts in communicators if rank in hosts}
    return found.pop() if len(found) == 1 else None
