"""Texts that an expression needs are in each text that it matches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.log.groups.required_texts import required_texts
from nccl_doctor.log.line_patterns import load

EXPRESSIONS = sorted({pattern.regex for pattern in load() if pattern.regex})


@pytest.mark.parametrize(
    ("regex", "needed"),
    [
        (r"(?:Failed|Unable) to open \S+ twice", {("Failed to open ", " twice"), ("Unable to open ", " twice")}),
        (r"rank (?P<rank>\d+)(?: of \d+)? joined", {("rank ", " joined")}),
        (r"a(?:bc)+d", {("abc", "d")}),
        (r"ab?c", {("a", "c")}),
        (r"x(?!y)z\b", {("xz",)}),
        (r"[ab]c|", {("c",), ()}),
        (r"(?i)failed", {()}),
        (r"(.)x\1", {("x",)}),
    ],
)
def test_needed(regex: str, needed: set[tuple[str, ...]]) -> None:
    assert needed == set(required_texts(regex))


def test_too_many_alternatives_tell_nothing() -> None:
    assert ((),) == required_texts("(?:ab|cd)" * 8 + "e")


def test_samples_hold_what_their_patterns_need() -> None:
    for pattern in load():
        for sample in pattern.sample if pattern.regex else ():
            found = pattern.compiled.search(sample)
            assert found is None or any(
                all(part in found[0] for part in parts) for parts in required_texts(pattern.regex)
            ), sample


@given(st.data())
def test_what_is_matched_holds_what_is_needed(data: st.DataObject) -> None:
    regex = data.draw(st.sampled_from(EXPRESSIONS))
    text = data.draw(st.from_regex(regex))
    found = re.search(regex, text)
    assert found is not None
    parts = text[found.start() :]  # what is looked at ahead may lie behind
    assert any(all(part in parts for part in parts_) for parts_ in required_texts(regex))
