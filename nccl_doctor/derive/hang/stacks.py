"""Compares what the ranks were doing, by the main threads of one stack dump."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import RankState, Stack

WAITING = ("collective", "backward", "cuda-sync")
WAITS = (*WAITING, "rendezvous")  # for other ranks


@derivation(fills=[RankDoing], needs=[Stack], reads=[RankState])
def what_ranks_do(facts: Facts) -> Iterator[RankDoing]:
    """What the main thread of each dumped process was doing, beside the other ranks of its job."""
    jobs: dict[str | None, list[Stack]] = defaultdict(list)
    for stack in map(Stack._make, facts.query("SELECT * FROM stack WHERE main = 1")):
        jobs[stack.job].append(stack)
    looks = {(one.host, one.pid): one for one in facts.rows(RankState)}
    for stacks in jobs.values():
        yield from _of_job(stacks, looks)


def _of_job(stacks: list[Stack], looks: dict[tuple[str | None, int], RankState]) -> Iterator[RankDoing]:
    """Those of one job, from the main threads of its ranks and of the processes that these started."""
    tops = [stack for stack in stacks if stack.parent is None]
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
            moved=look.moved if look is not None else None,
            ref=top.ref,
        )  # fmt: skip
