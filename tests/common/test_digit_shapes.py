"""What is true of one text is true of all texts of its shape."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common.digit_shapes import relaxed, shape_of, shapes_of, tells_digits_apart, variants, zeroed
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.prefix_rules import RULES
from nccl_doctor.knowledge import catalogue, templates
from nccl_doctor.log.line_patterns import Pattern, grammar, load

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


def test_numbers_of_hexadecimal_digits_have_one_shape() -> None:
    uuid = b"id 123e4567-e89b-12d3-a456-426614174000 at 0x7f12 part-9e3779b1.tar"
    other = b"id f23e4567-189b-b2d3-9456-f26614174abc at 0xffab part-1e3779bc.tar"
    first, second = shapes_of([uuid, other])
    assert first == second
    assert {variant[:3] for variant in variants(uuid.decode(), first)} == {"id "}
    kept = [b"0x0000 12345678", b"word9e3779b1 _9e3779b1", b"defaced", "9e3779b1 \xe9".encode(), b"9e3779b1" * 200]
    assert [shape_of(kept[0]), shape_of(kept[1]), shape_of(kept[2]), b"", b""] == list(shapes_of(kept))


@pytest.mark.parametrize(
    ("regex", "text", "matches"),
    [
        ("exit code 137", "exit code 940", True),
        ("exit code 137", "exit code 9", False),
        ("[^5]x", "5x", True),
        ("a(?!9)", "a9", True),
        ("(?:a|1b)+9", "a2b0", True),
    ],
)
def test_a_relaxed_expression_matches_whatever_the_digits(regex: str, text: str, matches: bool) -> None:
    found = relaxed(regex)
    assert found is not None
    assert matches == (found.search(text) is not None)


@given(sample=st.sampled_from([one for one in SAMPLES if one[0].digits]), seed=st.integers(0, 1 << 30))
def test_what_a_pattern_matches_its_relaxed_one_matches_with_any_digits(sample: tuple[Pattern, str], seed: int) -> None:
    pattern, text = sample
    if pattern.compiled.search(text) is not None:
        found = relaxed(pattern.regex)
        assert found is None or found.search(varied(text, seed)) is not None


def test_a_repeated_group_is_not_relaxed() -> None:
    assert relaxed(r"(\d)\1") is None


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
        line = [one and one.message.key for one in (hit, other) if one is None or one.message.where == templates.LINE]
        assert len(line) < 2 or line[0] == line[1]


def test_templates_without_digits_tell_none_apart() -> None:
    asked = {
        tells_digits_apart(templates.compile_template(template, message.where).pattern)
        for message in catalogue.catalogue().messages
        for template in message.match
        if message.where == templates.LINE and ":x}" in template and not re.search(r"\d", template)
    }
    assert asked == {False}


@given(
    line=st.sampled_from([sample for rule in RULES for sample in rule.samples if sample.isascii()]),
    seed=st.integers(0, 1 << 30),
)
def test_who_wrote_lines_of_a_shape_is_in_the_same_places(line: str, seed: int) -> None:
    found = prefixes.layout(line)
    if found is None:
        return
    other = varied(line, seed)
    if all(line[begin:end] == other[begin:end] for begin, end in found.words):
        assert found == prefixes.layout(other)
    text = line[found.end :]
    assert prefixes.split(line)[1] == text
    ranks = [line[begin:end] for name, begin, end in found.fields if name == "rank"]
    assert not ranks or prefixes.split(line)[0].rank == int(ranks[-1])
