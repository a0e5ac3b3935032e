"""The literal start of regular expressions: never wrong, and long enough to sort the patterns of NCCL by."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.log.line_patterns import load
from nccl_doctor.log.pattern_openings import openings

LENGTH = 8


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("comm ", {"comm "}),
        (r"\[ ?5\] Surprise", {"[ 5] Surp", "[5] Surpr"}),
        ("(?:Init|Destroy) COMPLETE", {"Init COM", "Destroy "}),
        ("(?P<call>ncclComm|ncclGroup)Init", {"ncclComm", "ncclGroup"}),
        ("ab?c", {"abc", "ac"}),
        ("a+b", {"a"}),
        ("a{2}b", {""}),
        (r"x(?=yz)\b(?<!q)w", {"xw"}),
        ("[ab-]x", {"ax", "bx", "-x"}),
        ("[]a]x", {"]x", "ax"}),
        (r"[\]\[]x", {"]x", "[x"}),
        ("[a-c]x", {""}),
        ("[^a]x", {""}),
        (r"a\d", {"a"}),
        (r"a\.b\tc", {"a.b\tc"}),
        ("(?i)ab", {""}),
        ("a(?i:b)", {""}),
        ("(a)?(?(1)b|c)", {"a", ""}),
        ("(?P<q>a)b(?P=q)c", {"ab"}),
        ("", {""}),
    ],
)
def test_openings_of_an_expression(regex: str, expected: set[str]) -> None:
    re.compile(regex)
    cut = {text[:LENGTH] for text in expected}
    assert cut == {text[:LENGTH] for text in openings(regex, LENGTH)}


PARTS = st.sampled_from(
    [
        "a",
        "bc",
        "[de]",
        "[f-h]",
        r"\d",
        r"\.",
        "(?:i|jk)",
        "(l|)",
        "m?",
        "n+",
        "o*",
        "p{2}",
        "q??",
        r"\b",
        "(?!r)",
        ".",
        "^",
    ]
)


@given(st.lists(PARTS, max_size=6).map("".join).flatmap(lambda regex: st.tuples(st.just(regex), st.from_regex(regex))))
def test_every_match_begins_with_an_opening(case: tuple[str, str]) -> None:
    regex, text = case
    match = re.search(regex, text)
    assert match is not None
    assert text[match.start() :].startswith(tuple(openings(regex, LENGTH)))


def test_most_patterns_of_nccl_are_sorted_by_their_first_characters() -> None:
    """A pattern without a known start is tried with every message of its level."""
    nccl = [pattern for pattern in load() if pattern.where == "nccl"]
    assert len(nccl) > 200
    floating = [pattern.name for pattern in nccl if any(len(opening) < 4 for opening in pattern.openings)]
    assert len(floating) < len(nccl) / 8, floating
