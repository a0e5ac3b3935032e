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
    for stack in facts.rows(Stack):
        jobs[stack.job].append(stack)
    looks = {(one.host, one.pid): one for one in facts.rows(RankState)}
    for stacks in jobs.values():
        yield from _of_job(stacks, looks)


def _of_job(stacks: list[Stack], looks: dict[tuple[str | None, int], RankState]) -> Iterator[RankDoing]:
    tops = [stack for stack in stacks if stack.main and stack.parent is None]
    seen = {(stack.host, stack.pid): looks.get((stack.host, stack.pid)) for stack in tops}
    tops = [
        stack._replace(doing=look.doing) if (look := seen[stack.host, stack.pid]) is not None else stack
        for stack in tops
    ]
    counts = Counter(stack.doing for stack in tops)
    waiting = sum(counts[kind] for kind in WAITS)
    for top in tops:
        workers = [
            stack.leaf for stack in stacks
            if stack.main and stack.parent == top.pid and stack.host == top.host and stack.doing == "loader-worker"
        ]  # fmt: skip
        others = waiting - (top.doing in WAITS)
        look = seen[top.host, top.pid]
        yield RankDoing(
            host=top.host, rank=top.rank, pid=top.pid, doing=top.doing, frame=top.frame, leaf=top.leaf,
            ranks=len(tops), same=counts[top.doing], waiting=others, worker=workers[0] if workers else None,
            moved=look.moved if look is not None else None,
            ref=top.ref,
        )  # fmt: skip
