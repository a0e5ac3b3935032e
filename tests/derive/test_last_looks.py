"""Dumps of processes whose numbers are equal, as in containers: which of them are of one process."""

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.derive.hang import stacks
from nccl_doctor.facts.tables.stacks import Stack

DUMPS = st.lists(
    st.tuples(
        st.sampled_from([None, "node01"]),
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([7, 4000]),
        st.frozensets(st.sampled_from("123456"), max_size=4),
        st.sampled_from([None, None, 3]),  # a line that was seen before
    ),
    max_size=24,
)
Dump = tuple[str | None, int | None, int, frozenset[str], int | None]


def tops_of(dumps: list[Dump]) -> tuple[list[Stack], dict[int, frozenset[str]]]:
    tops = [
        Stack(host, rank, pid, None, None, 1, 0, 0, "other", None, f"leaf{at % 3}", 1, None, line or at + 10)
        for at, (host, rank, pid, _, line) in enumerate(dumps)
    ]
    return tops, {top.ref: dump[3] for top, dump in zip(tops, dumps, strict=True)}


@given(DUMPS)
def test_each_dump_belongs_to_the_first_process_that_it_may_be_of(dumps: list[Dump]) -> None:
    tops, threads = tops_of(dumps)
    last: list[Stack] = []
    for top in tops:
        same = next(
            (
                at
                for at, one in enumerate(last)
                if one[:1] + one[2:3] == top[:1] + top[2:3] and stacks._same_process(one, top, threads)
            ),
            None,
        )
        if same is None:
            last.append(top)
        else:
            last[same] = top if top.rank is not None else top._replace(rank=last[same].rank)
    assert last == stacks._last_looks(tops, threads)[0]


def test_dumps_of_many_containers_are_not_compared_with_each_other() -> None:
    tops, threads = tops_of([(None, rank, 7, frozenset("89"), None) for rank in range(500)])
    places = stacks._Places(threads)
    for at, top in enumerate(tops):
        assert [] == places.candidates(top)
        places.put(top, at)
