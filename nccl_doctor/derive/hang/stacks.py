"""Compares what the ranks were doing, by the main threads of one stack dump."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import RankState, Stack

_OF_HOST = 1000  # process ids from here on are those of a host; a container counts from 1
_ANY = "any"  # rank
WAITING = ("collective", "backward", "cuda-sync")
WAITS = (*WAITING, "rendezvous")  # for other ranks


@derivation(fills=[RankDoing], needs=[Stack], reads=[RankState])
def what_ranks_do(facts: Facts) -> Iterator[RankDoing]:
    """What the main thread of each dumped process was doing, beside the other ranks of its job."""
    jobs: dict[str | None, list[Stack]] = defaultdict(list)
    for stack in map(Stack._make, facts.query("SELECT * FROM stack WHERE main = 1")):
        jobs[stack.job].append(stack)
    threads = _threads(facts) if any(_repeated(stacks) for stacks in jobs.values()) else {}
    looks = {(one.host, one.pid): one for one in facts.rows(RankState)}
    for stacks in jobs.values():
        yield from _of_job(stacks, looks, threads)


def _of_job(
    stacks: list[Stack], looks: dict[tuple[str | None, int], RankState], threads: dict[int, frozenset[str]]
) -> Iterator[RankDoing]:
    """Those of one job, from the main threads of its ranks and of the processes that these started."""
    tops, moved = _last_looks([stack for stack in stacks if stack.parent is None], threads)
    seen = {(stack.host, stack.pid): looks.get((stack.host, stack.pid)) for stack in tops}
    tops = [
        stack._replace(doing=look.doing) if (look := seen[stack.host, stack.pid]) is not None else stack
        for stack in tops
    ]
    counts = Counter(stack.doing for stack in tops)
    waiting = sum(counts[kind] for kind in WAITS)
    workers: dict[tuple[str | None, int | None], str | None] = {}  # of a host and a parent, the first
    for stack in stacks:
        if stack.doing == "loader-worker":
            workers.setdefault((stack.host, stack.parent), stack.leaf)
    for top in tops:
        others = waiting - (top.doing in WAITS)
        look = seen[top.host, top.pid]
        yield RankDoing(
            host=top.host, rank=top.rank, pid=top.pid, doing=top.doing, frame=top.frame, leaf=top.leaf,
            ranks=len(tops), same=counts[top.doing], waiting=others, worker=workers.get((top.host, top.pid)),
            moved=look.moved if look is not None else moved.get(top.ref),
            ref=top.ref,
        )  # fmt: skip


def _repeated(stacks: list[Stack]) -> bool:
    tops = [(stack.host, stack.pid) for stack in stacks if stack.parent is None]
    return len(set(tops)) < len(tops)


def _threads(facts: Facts) -> dict[int, frozenset[str]]:
    """Evidence of a main thread -> the numbers of the other threads of its dump, by which equal process ids of two containers differ."""
    found: dict[int, frozenset[str]] = {}
    mains: list[int] = []
    others: set[str] = set()
    place: tuple[str, int] | None = None
    for file, pid, main, ref, text in facts.query(
        "SELECT e.file, s.pid, s.main, s.ref, e.text FROM stack s JOIN evidence e ON e.id = s.ref ORDER BY s.rowid"
    ):
        if (file, pid) != place:
            found.update(dict.fromkeys(mains, frozenset(others)))
            place, mains, others = (file, pid), [], set()
        if main:
            mains.append(ref)
        else:
            others.add(text.split(" ", 2)[1])
    found.update(dict.fromkeys(mains, frozenset(others)))
    return found


def _last_looks(tops: list[Stack], threads: dict[int, frozenset[str]]) -> tuple[list[Stack], dict[int, int]]:
    """Each process once, as the last dump shows it, and by its evidence whether it moved since the one before.

    A process that is dumped again has the same host, process id and rank, and threads with the same numbers.
    """
    last: list[Stack] = []
    moved: dict[int, int] = {}
    places = _Places(threads)
    for top in tops:
        same = next((at for at in places.candidates(top) if _same_process(last[at], top, threads)), None)
        if same is None:
            places.put(top, len(last))
            last.append(top)
            continue
        before = last[same]
        moved[top.ref] = int((before.doing, before.leaf, before.frames) != (top.doing, top.leaf, top.frames))
        last[same] = top if top.rank is not None else top._replace(rank=before.rank)
        places.drop(before, same)
        places.put(last[same], same)
    return last, moved


class _Places:
    """Where the last dumps of processes are that another dump may be of, so that it is not compared with those of all containers."""

    def __init__(self, threads: dict[int, frozenset[str]]) -> None:
        self._threads = threads
        self._places: dict[tuple[Any, ...], set[int]] = defaultdict(set)

    def candidates(self, top: Stack) -> list[int]:
        """In ascending order."""
        ranks = (_ANY,) if top.rank is None else (top.rank, None)
        return sorted(set().union(*(self._places.get(key, ()) for rank in ranks for key in self._keys(top, rank))))

    def put(self, top: Stack, place: int) -> None:
        """The last dump of a process is at this place."""
        for key in (*self._keys(top, top.rank), *self._keys(top, _ANY)):
            self._places[key].add(place)

    def drop(self, top: Stack, place: int) -> None:
        """The last dump of a process is no longer this one."""
        for key in (*self._keys(top, top.rank), *self._keys(top, _ANY)):
            self._places[key].discard(place)

    def _keys(self, top: Stack, rank: int | str | None) -> Iterator[tuple[Any, ...]]:
        """What two dumps of one process share, at least in part: its line, or threads, or that it has no others."""
        for part in (top.ref, *(self._threads.get(top.ref) or ("",))):
            yield top.host, top.pid, rank, part


def _same_process(one: Stack, other: Stack, threads: dict[int, frozenset[str]]) -> bool:
    if one.rank is not None and other.rank is not None and one.rank != other.rank:
        return False
    if one.ref == other.ref:  # the same line of one file
        return True
    first, second = threads.get(one.ref, frozenset()), threads.get(other.ref, frozenset())
    if not first and not second:
        return one.host is not None or one.pid >= _OF_HOST
    return 2 * len(first & second) >= max(len(first), len(second), 1)
