"""How far each rank came in each communicator, by the opCount that NCCL prints for every collective.

The counter belongs to one communicator of one process, so only ranks of one communicator are compared: they share its commId
(NCCL 2.16 and newer, when the lines of its initialisation are in the log). Older logs have none; there the communicators of one
size are one group only if no process has two of that size.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collective, Communicator, OpCensus

_LARGEST = 1 << 40  # no job enqueues more; uninitialised counters are larger
_JUMP = 1000  # a value that grows this many times faster than lines are printed is garbage, not a counter
_P2P = ("Send", "Recv", "SendRecv")  # not every rank of the communicator takes part

_Key = tuple[str | None, int | None, str | None]  # host, pid and pointer of a communicator


class _Member(NamedTuple):
    group: str
    rank: int | None
    comm_rank: int | None
    nranks: int | None
    ref: int


@derivation(fills=[OpCensus], needs=[Collective], reads=[Communicator])
def op_counts(facts: Facts) -> Iterator[OpCensus]:
    """How far each rank came in each communicator."""
    members = _members(facts)
    calls: dict[str, dict[_Key, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for call in facts.rows(Collective):
        if call.function in _P2P:
            continue
        key = (call.host, call.pid, call.comm)
        known = members.get(key)
        group = known.group if known else f"{call.host}:{call.pid}:{call.comm}"
        calls[group][key].append(call)
    silent: dict[str, list[tuple[_Key, _Member]]] = defaultdict(list)  # members that enqueued nothing
    for key, member in members.items():
        if key not in calls.get(member.group, ()):
            silent[member.group].append((key, member))
    for group, ranks in calls.items():
        yield from _group(group, ranks, members, silent[group])


def _members(facts: Facts) -> dict[_Key, _Member]:
    """Host, pid and pointer of a communicator -> the group that it is part of."""
    rows = facts.query(
        "SELECT host, pid, comm, comm_id, rank, comm_rank, nranks, ref FROM communicator WHERE comm IS NOT NULL"
        " AND phase IN ('start', 'complete', 'plain') ORDER BY ref"
    )
    pointers = {(host, pid, comm, nranks) for host, pid, comm, _, _, _, nranks, _ in rows}
    sizes = Counter((host, pid, nranks) for host, pid, _, nranks in pointers)
    several = {nranks for (_, _, nranks), n in sizes.items() if n > 1}
    members: dict[_Key, _Member] = {}
    for host, pid, comm, comm_id, rank, comm_rank, nranks, ref in rows:
        group = comm_id
        if group is None and nranks and nranks not in several:
            group = f"the {nranks} ranks"
        if group is not None:  # a pointer is reused when its communicator is gone: the last one counts
            members[host, pid, comm] = _Member(group, rank, comm_rank, nranks, ref)
    return members


def _group(
    group: str,
    ranks: dict[_Key, list[Collective]],
    members: dict[_Key, _Member],
    silent: list[tuple[_Key, _Member]],
) -> Iterator[OpCensus]:
    sane = {key: mine for key, mine in ranks.items() if not _garbage(mine)}
    most = max((call.last_op for mine in sane.values() for call in mine), default=0)
    last = Counter(call.function for mine in sane.values() for call in mine if call.last_op == most)
    function = last.most_common(1)[0][0] if last else None
    for key, mine in ranks.items():
        known = members.get(key)
        yield OpCensus(
            comm=group, nranks=mine[0].nranks or (known.nranks if known else None),
            comm_rank=known.comm_rank if known else None, rank=mine[0].rank, host=key[0], pid=key[1],
            calls=sum(call.n for call in mine), first_op=min(call.first_op for call in mine),
            last_op=max(call.last_op for call in mine), most=most, function=function, garbage=int(key not in sane),
            ref=max(mine, key=lambda call: call.last_op).ref,
        )  # fmt: skip
    if len(sane) < 2:
        return
    for (host, pid, _), known in silent:
        yield OpCensus(
            comm=group, nranks=known.nranks, comm_rank=known.comm_rank, rank=known.rank, host=host, pid=pid,
            calls=0, first_op=None, last_op=None, most=most, function=function, garbage=0, ref=known.ref,
        )  # fmt: skip


def _garbage(mine: list[Collective]) -> bool:
    low, high, n = min(c.first_op for c in mine), max(c.last_op for c in mine), sum(c.n for c in mine)
    return high > _LARGEST or high - low > _JUMP * (n + 10)
