"""What each rank was doing, beside the others: from the main threads of one dump of stacks."""

from collections import Counter
from collections.abc import Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.stacks import RankDoing, Stack

WAITING = ("collective", "backward", "cuda-sync")


def derive_stacks(facts: Facts) -> None:
    """Fill `rank_doing` where stacks were read."""
    stacks = facts.rows(Stack) if "stack" in facts.looked() else []
    if stacks:
        facts.add(_ranks(stacks))


def _ranks(stacks: list[Stack]) -> Iterator[RankDoing]:
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
            top.host, top.rank, top.pid, top.doing, top.frame, top.leaf, len(tops), counts[top.doing], others,
            workers[0] if workers else None, top.ref,
        )  # fmt: skip
