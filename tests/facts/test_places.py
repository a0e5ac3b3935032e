"""A column of places answers as a dictionary of them does."""

from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.places import DensePlaces, Places, places_for

LINES = st.lists(st.integers(-2, 60), max_size=8)


@examples(80)
@given(st.lists(st.one_of(LINES, st.integers(-2, 60)), max_size=12))
def test_dense_places_are_those_of_a_dictionary(steps: list[list[int] | int]) -> None:
    some, dense, number = Places(), DensePlaces(40), 1
    for step in steps:
        if isinstance(step, int):
            if step not in some:
                some[step] = dense[step] = number
        elif not dense.add_new(step, number):  # also where lines lie behind those that were expected
            for line in step:
                if line not in some:
                    some[line] = dense[line] = number
                    number += 1
        elif step:
            assert some.add_new(step, number)
        number += len(step) if isinstance(step, list) else 1
    lines = range(-3, 62)
    assert [some.get(line) for line in lines] == [dense.get(line) for line in lines]
    assert [line in some for line in lines] == [line in dense for line in lines]
    assert len(some) == len(dense)


def test_lines_that_are_known_or_there_twice_are_not_numbered_together() -> None:
    for places in (Places(), DensePlaces(9)):
        assert places.add_new([3, 1], 5)
        assert not places.add_new([4, 3], 7)
        assert not places.add_new([6, 6], 7)
        assert {1: 6, 3: 5, 4: None, 6: None} == {line: places.get(line) for line in (1, 3, 4, 6)}


def test_a_column_is_made_where_many_lines_are_evidence() -> None:
    import numpy as np  # makes a column possible

    assert np.uint32(1)
    assert isinstance(places_for(1_000, 500), DensePlaces)
    assert not isinstance(places_for(1_000_000, 500), DensePlaces)
