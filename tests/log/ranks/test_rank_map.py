"""Who wrote the lines of a job, from lines that may be damaged."""

import pytest

from nccl_doctor.log.nccl_header import NO_LABEL, NcclHeader
from nccl_doctor.log.ranks.rank_map import Membership, RankMap

NO_HEAD = NcclHeader(None, None, None, None, None, NO_LABEL, False)


def test_a_communicator_without_ranks_ends_nothing() -> None:
    members = [Membership("node01", 0, None, 0, 0, 0), Membership("node01", 0, None, 0, 0, 8)]
    assert {("node01", 0): 8} == RankMap(members, []).size
    assert {("node01", 0): 0} == RankMap(members[:1], []).size


@pytest.mark.parametrize(
    ("labels", "expected"), [((0, 0), [None, None]), ((0, 1), [0, 1])], ids=["one task of two hosts", "two tasks"]
)
def test_the_number_of_a_task_in_front_of_several_hosts_is_no_rank(
    labels: tuple[int, int], expected: list[int | None]
) -> None:
    heads = [
        NO_HEAD._replace(host=f"node0{at}", pid=at, tid=at, clean=True, label=NO_LABEL._replace(rank=label))
        for at, label in enumerate(labels, 1)
    ]
    ranks = RankMap([], heads)
    assert expected == [ranks.rank(head) for head in heads]
