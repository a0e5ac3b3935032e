"""Lines of texts in a document, and that texts which are not in it are not searched for without end."""

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs.exports.text_places import Places


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
def test_texts_in_their_order_have_their_lines(texts: list[str]) -> None:
    places = Places("\n".join(texts))
    assert [*range(1, len(texts) + 1)] == [places.of(text) for text in texts]


def test_a_document_is_searched_a_few_times_for_texts_that_it_does_not_hold() -> None:
    document = "one\ntwo\n" * 1000
    places = Places(document)
    assert 2 == places.of("two")
    assert {2} == {places.of("three") for _ in range(1000)}
    assert places.in_vain <= 9 * len(document)
