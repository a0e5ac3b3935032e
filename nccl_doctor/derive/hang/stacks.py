"""Compares what the ranks were doing, by the main threads of one stack dump."""

from collections import Counter
from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import Stack

WAITING = ("collective", "backward", "cuda-sync")


@derivation(fills=[RankDoing], needs=[Stack])
def what_ranks_do(facts: Facts) -> Iterator[RankDoing]:
    """What the main thread of each dumped process was doing."""
    stacks = facts.rows(Stack)
    tops = [stack for stack in stacks if stack.main and stack.parent is None]
    counts = Counter(stack.doing for stack in tops)
    waiting = sum(counts[kind] for kind in WAITING)
    for top in tops:
        workers = [
            stack.leaf for stack in stacks
            if stack.main and stack.parent == top.pid and stack.host == top.host and stack.doing == "loader-worker"
        ]  # fmt: skip
        others = waiting - (top.doing in WAITING)
        yield RankDoing(
            host=top.host, rank=top.rank, pid=top.pid, doing=top.doing, frame=top.frame, leaf=top.leaf,
            ranks=len(tops), same=counts[top.doing], waiting=others, worker=workers[0] if workers else None,
            ref=top.ref,
        )  # fmt: skip
