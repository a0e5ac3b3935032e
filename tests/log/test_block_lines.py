"""The lines behind a place of a block, with those that were noted as without them."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.log.block_lines import BlockLines, around
from nccl_doctor.log.multiline import line_behind

TEXTS = st.lists(
    st.sampled_from(["", "a", "[rank1]: b", "node01:1:2 [0] NCCL INFO c", "x" * 30]), min_size=1, max_size=8
)


@given(TEXTS, st.booleans(), st.integers(1, 80), st.sets(st.integers(0, 7)))
def test_lines_that_were_noted_are_the_lines_of_the_block(
    texts: list[str], ended: bool, ahead: int, noted: set[int]
) -> None:
    block = "\n".join(texts).encode() + b"\n" * ended
    plain, known = BlockLines(block, ahead), BlockLines(block, ahead)
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text) + 1)
    for at in noted:
        if at < len(texts):
            known.note(starts[at], starts[at + 1] - 1, line_behind(texts[at]))
    for at in range(len(texts)):
        stop = around(block, starts[at])[3] if texts[at] or starts[at] < len(block) else len(block)
        behind = list(islice(plain.behind(stop), 20))
        assert behind == list(islice(known.behind(stop), 20))
        assert behind == [line_behind(text) for text in plain.after(stop)(20)]
