"""Who wrote the lines of a job, from lines that may be damaged."""

from nccl_doctor.log.ranks.rank_map import Membership, RankMap


def test_a_communicator_without_ranks_ends_nothing() -> None:
    members = [Membership("node01", 0, None, 0, 0, 0), Membership("node01", 0, None, 0, 0, 8)]
    assert {("node01", 0): 8} == RankMap(members, []).size
    assert {("node01", 0): 0} == RankMap(members[:1], []).size
