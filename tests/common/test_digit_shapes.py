"""What is true of one text is true of all texts of its shape."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common.digit_shapes import shape_of, tells_digits_apart, zeroed
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_rules import RULES
from nccl_doctor.knowledge import catalogue, templates
from nccl_doctor.log.line_patterns import grammar, load

SAMPLES = [(pattern, text) for pattern in load() if pattern.where == "text" for text in pattern.sample + pattern.miss]


def varied(text: str, seed: int) -> str:
    """Another text of the same shape."""
    chance = random.Random(seed)

    def number(match: re.Match[str]) -> str:
        first = "0" if match[0][0] == "0" else chance.choice("123456789")
        return first + "".join(chance.choice("0123456789") for _ in match[0][1:])

    return "mlx5".join(re.sub("[0-9]+", number, part) for part in text.split("mlx5"))


def test_digits_are_one_but_for_the_zero_with_which_a_number_begins() -> None:
    assert shape_of(b"100 0001 10203 007 0 20 12:00:07,037 mlx5_0") == b"111 0111 11111 011 0 11 11:01:01,011 mlx\xff_0"
    assert zeroed("a12 mlx5_3") == zeroed("a90 mlx5_7") != zeroed("a90 mlx7_7")


@given(st.text("0123 xa.:", max_size=40), st.integers(0, 1 << 30))
def test_texts_of_one_shape_differ_in_digits_only(text: str, seed: int) -> None:
    assert shape_of(text.encode()) == shape_of(varied(text, seed).encode())
    assert shape_of(f"{text};{text}".encode()) == shape_of(text.encode()) + b";" + shape_of(text.encode())


@pytest.mark.parametrize(
    ("regex", "apart"),
    [
        (r"failed: \d+", False),
        (r"failed: 0\b", False),
        (r"exit code [1-9]\d*", False),
        (r"[^5]x", True),
        (r"errno 98", True),
        (r"\d0", True),
        (r"\b0x[0-9a-f]+", False),
        (r"0x", True),
        (r"(\d)\1", True),
        (r"(?<!0)a", True),
        (r"mlx5_\d", False),
        (r"(?:a|0)*0", True),
    ],
)
def test_expressions_that_tell_digits_apart(regex: str, apart: bool) -> None:
    assert apart == tells_digits_apart(regex)


@given(sample=st.sampled_from(SAMPLES), seed=st.integers(0, 1 << 30))
def test_a_pattern_matches_all_texts_of_a_shape_or_none(sample: tuple[object, str], seed: int) -> None:
    text, other = sample[1], varied(sample[1], seed)
    for pattern in grammar().candidates(text):
        if not pattern.digits and pattern.regex:
            match, again = pattern.compiled.search(text), pattern.compiled.search(other)
            assert (match and match.regs) == (again and again.regs), (pattern.name, text, other)


@given(sample=st.sampled_from(SAMPLES), seed=st.integers(0, 1 << 30))
def test_the_catalogue_finds_one_message_for_a_shape(sample: tuple[object, str], seed: int) -> None:
    known = catalogue.catalogue()
    if not known.tells_digits_apart(sample[1]):
        hit, other = known.find(sample[1]), known.find(varied(sample[1], seed))
        line = [one and one.message.key for one in (hit, other) if one is None or one.message.where == catalogue.LINE]
        assert len(line) < 2 or line[0] == line[1]


def test_templates_without_digits_tell_none_apart() -> None:
    asked = {
        tells_digits_apart(templates.compile_template(template, message.where).pattern)
        for message in catalogue.catalogue().messages
        for template in message.match
        if message.where == catalogue.LINE and ":x}" in template and not re.search(r"\d", template)
    }
    assert asked == {False}


@given(
    line=st.sampled_from([sample for rule in RULES for sample in rule.samples if sample.isascii()]),
    seed=st.integers(0, 1 << 30),
)
def test_a_rank_is_found_where_the_label_has_it(line: str, seed: int) -> None:
    place, label = prefixes.rank_at(line), prefixes.split(line)[0]
    if '"log"' not in line and label.local_rank is None:
        assert (None if place is None else int(line[slice(*place)])) == label.rank
    if prefixes.is_of_shape(line):
        other = varied(line, seed)
        assert prefixes.rank_at(other) == place
        assert len(prefixes.split(other)[1]) == len(prefixes.split(line)[1])
