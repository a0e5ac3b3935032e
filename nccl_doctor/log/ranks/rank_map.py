"""The rank and host of each process, from the communicator lines, never from the bracket of a line.

The rank of a process is its rank in the largest communicator it took part in (the world), else what the launcher's prefix
says. One process may drive several GPUs; then the thread or the CUDA device of the line decides.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from nccl_doctor.log.nccl_header import NcclHeader


class Membership(NamedTuple):
    """A thread of a process took this rank of a communicator."""

    host: str | None
    pid: int | None
    tid: int | None
    cuda_dev: int | None
    comm_rank: int
    nranks: int


def clean_hosts(heads: Iterable[NcclHeader]) -> dict[str, str]:
    """Host names with the end of another process's torn line in front -> the name itself.

    A name counts as whole when it was seen at the start of a line or behind a known prefix.
    """
    heads = list(heads)
    whole: dict[str, set[int | None]] = defaultdict(set)
    for head in heads:
        if head.host and head.clean:
            whole[head.host].add(head.pid)
    lengths = sorted({len(name) for name in whole}, reverse=True)
    repaired = {}
    for head in heads:
        name = head.host
        if not name or (head.clean and len(whole[name]) > 1):
            continue
        for end in (name[-length:] for length in lengths if length < len(name)):
            if end in whole and head.pid in whole[end]:
                repaired[name] = end
                break
    return repaired


def aliases(heads: Iterable[NcclHeader], hosts: dict[str, str]) -> dict[str, str]:
    """Names that prefixes give a host (a pod, a service, an address) -> the name that NCCL prints behind them.

    A prefix in front of lines of several hosts names none of them.
    """
    behind: dict[str, set[str]] = defaultdict(set)
    own = set()
    for head in heads:
        if head.host and head.tid is not None:
            name = hosts.get(head.host, head.host)
            own.add(name)
            if head.label.host:
                behind[head.label.host].add(name)
    return {label: next(iter(names)) for label, names in behind.items() if len(names) == 1 and label not in own}


def is_no_rank(heads: Iterable[NcclHeader]) -> bool:
    """Whether the one number that prefixes give is that of a task and not of a rank: it is in front of lines of several hosts."""
    numbers: set[int] = set()
    hosts: set[str] = set()
    for head in heads:
        if head.label.rank is not None and head.host and head.clean and head.tid is not None:
            numbers.add(head.label.rank)
            hosts.add(head.host)
            if len(numbers) > 1:
                return False
    return len(hosts) > 1


class RankMap:
    """Gives the rank and host of the header of a line."""

    def __init__(self, members: Iterable[Membership], heads: Iterable[NcclHeader]) -> None:
        heads = list(heads)
        self.hosts = clean_hosts(heads)
        self.hosts |= aliases(heads, self.hosts)
        world = max((m.nranks for m in members), default=0)
        self.size: dict[tuple[str | None, int | None], int] = {}
        by_process: dict[tuple[str | None, int | None], list[Membership]] = defaultdict(list)
        for member in members:
            process = (self.host(member.host), member.pid)
            if member.nranks > self.size.get(process, -1):  # damaged lines may say 0
                self.size[process] = member.nranks
                by_process[process] = []
            if member.nranks == self.size[process]:
                by_process[process].append(member)
        self._single: dict[tuple[str | None, int | None], int] = {}
        self._thread: dict[tuple[str | None, int | None, int | None], int] = {}
        self._device: dict[tuple[str | None, int | None, int | None], int] = {}
        for process, group in by_process.items():
            if self.size[process] < world and world > 1:
                continue  # only a part of the job: its numbers are not ranks of the job
            if len({m.comm_rank for m in group}) == 1:
                self._single[process] = group[0].comm_rank
            for m in group:  # the first of several ranks of a thread: the world is made before other groups
                self._thread.setdefault((*process, m.tid), m.comm_rank)
                if m.cuda_dev is not None:
                    self._device.setdefault((*process, m.cuda_dev), m.comm_rank)
        self._by_label: dict[int, str] = {}
        self._by_pid: dict[int, tuple[str | None, int | None]] = {}
        self._no_rank = is_no_rank(heads)
        for head in heads:
            host = self.host(head.host)
            rank = self._of_process(head)
            number = rank if rank is not None else self._labelled(head)
            if host and number is not None:
                self._by_label.setdefault(number, host)
            if head.pid is not None and head.tid is not None:
                self._by_pid.setdefault(head.pid, (host, rank))

    def host(self, name: str | None) -> str | None:
        """The host name without torn text in front, or the host that a launcher calls by this name."""
        return self.hosts.get(name, name) if name else name

    def _of_process(self, head: NcclHeader) -> int | None:
        process = (self.host(head.host), head.pid)
        if process in self._single:
            return self._single[process]
        rank = self._device.get((*process, head.dev)) if head.pid is not None else None
        return rank if rank is not None else self._thread.get((*process, head.tid))

    def rank(self, head: NcclHeader) -> int | None:
        """The rank in the job of the process that wrote a line."""
        if head.tid is None and head.pid is not None and head.pid in self._by_pid:  # Ray and others name only the pid
            found = self._by_pid[head.pid][1]
            if found is not None:
                return found
        rank = self._of_process(head)
        return rank if rank is not None else self._labelled(head)

    def _labelled(self, head: NcclHeader) -> int | None:
        """What the launcher's prefix says."""
        return None if self._no_rank else head.label.rank

    def place(self, head: NcclHeader) -> str | None:
        """The host that wrote a line; by rank where the line does not name it."""
        if head.tid is None and head.pid is not None and head.pid in self._by_pid:
            return self._by_pid[head.pid][0]
        host = self.host(head.host)
        if host is None and (rank := self.rank(head)) is not None:
            host = self._by_label.get(rank)
        return host

    def host_of_rank(self, rank: int) -> str | None:
        """Host of a rank of the job."""
        return self._by_label.get(rank)
