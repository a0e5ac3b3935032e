"""Numbers of keys are those of a dictionary, whatever came in which block."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.log.groups.known_keys import KnownKeys

BLOCKS = st.lists(st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 9)), max_size=6)


@given(BLOCKS)
def test_a_key_has_the_number_that_it_got_first(blocks: list[set[int]]) -> None:
    known, numbers = KnownKeys(), dict[int, int]()
    for block in blocks:
        keys = np.array(sorted(block), np.uint64)
        asked: list[int] = []

        def new(places: np.ndarray, keys: np.ndarray = keys, asked: list[int] = asked) -> list[int]:
            asked += keys[places].tolist()
            return [len(numbers) + at for at in range(len(places))]

        found = known.learn(keys, new)
        assert sorted(block - numbers.keys()) == asked
        numbers.update({key: len(numbers) + at for at, key in enumerate(asked)})
        assert [numbers[key] for key in sorted(block)] == found.tolist()
        assert len(numbers) == len(known)
    every = np.array(list(numbers), np.uint64)
    assert list(numbers.values()) == known.of(every).tolist()
