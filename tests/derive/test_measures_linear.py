"""Measures take steps in proportion to what was timed."""

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CommOp
from nccl_doctor.facts.tables.derived.coverage import Measure
from tests.helpers.scaling import TICK, counted


def timed(sizes: int) -> Facts:
    facts = Facts()
    facts.add(
        CommOp(None, None, "all_reduce", size, 1, 1.0, None, float(size), facts.evidence("a.txt", size, f"{size}"))
        for size in range(1, sizes + 1)
    )
    return facts


def test_four_times_the_sizes_of_a_collective_take_four_times_the_steps() -> None:
    steps = []
    for sizes in (1_000, 4_000):
        facts = timed(sizes)
        with counted(facts) as ticks:
            derive_all(facts)
        steps.append(TICK * len(ticks))
        assert [sizes / 8] == [row.value for row in facts.rows(Measure) if row.name == "busbw"]
    assert steps[1] < 5 * steps[0]
