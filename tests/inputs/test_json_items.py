"""Elements of a large array: those of json, whatever the pieces; what is broken or cut ends it behind the last whole one."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs.json_items import ArrayBatches, BrokenJson, LineObjects, array_items

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


class Pieces:
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(data), size

    def read(self, size: int) -> bytes:
        return self._stream.read(min(size, self._size))


def taken(data: bytes, size: int) -> tuple[list[Any], bool]:
    found: list[Any] = []
    try:
        for item in array_items(Pieces(data, size), "events"):
            found.append(item)
    except BrokenJson:
        return found, False
    return found, True


@given(st.lists(VALUES, max_size=4), st.integers(1, 40), st.sampled_from([None, 1]))
def test_elements_are_those_of_json(values: list[Any], size: int, indent: int | None) -> None:
    data = json.dumps({"before": 1, "events": values, "after": [2]}, indent=indent).encode()
    assert (values, True) == taken(data, size)


@pytest.mark.parametrize("number", ["0.0", "1e5", "-2E-7", "3.25e+9"])
def test_a_number_that_a_block_breaks_off_is_whole(number: str) -> None:
    data = f'{{"events": [{number}, {number}]}}'.encode()
    assert [([float(number)] * 2, True)] * len(data) == [taken(data, size) for size in range(1, len(data) + 1)]


@given(st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), min_size=1, max_size=4), st.data())
def test_a_cut_text_ends_behind_the_last_whole_element(values: list[Any], data: st.DataObject) -> None:
    text = json.dumps({"events": values}).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    found, whole = taken(text[:cut], data.draw(st.integers(1, 40)))
    assert not whole
    assert values[: len(found)] == found


@pytest.mark.parametrize("broken", [b"nul", b"{'a': 1}", b'{"a": NaN}', b"[" * 100_000, b'{"a" 1}', b"9" * 5000])
def test_what_is_no_json_ends_it(broken: bytes) -> None:
    assert ([{"a": 1}], False) == taken(b'{"events": [{"a": 1}, ' + broken + b', {"b": 2}]}', 1 << 16)


@pytest.mark.parametrize(
    ("text", "expected", "torn", "lines"),
    [
        ('{"a": 1}\n{"a": 2}', [(1, 1), (2, 2)], None, 2),
        ('[\n  {"a": 1},\r\n  {"a": 2}\n]\n', [(2, 1), (3, 2)], None, 4),
        ('{\n  "b": [{"a": 5}],\n  "a": 1\n}\n{"a": 2}\n', [(1, 1), (5, 2)], None, 5),
        ('text\n{"a": 1} more\n\n{"a": 2}\n', [(4, 2)], None, 4),
        ('{"a": 1\n  {"a": 3}\n{"a": 2}\n', [(3, 2)], None, 3),
        ('{"a": 1}\n{"a": "2', [(1, 1)], 2, 2),
        ("text", [], None, 1),
        ("", [], None, 0),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_objects_have_the_lines_in_which_they_start(
    text: str,
    expected: list[tuple[int, int]],
    torn: int | None,
    lines: int,
    block: int,
) -> None:
    objects = LineObjects(Pieces(text.encode(), block))
    found = [(number, record["a"]) for number, _, record in objects]
    assert (expected, torn, lines) == (found, objects.torn, objects.lines)


@given(
    st.lists(VALUES | st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=40),
    st.integers(1, 400),
    st.booleans(),
)
def test_batches_hold_all_elements_with_their_lines(values: list[Any], size: int, indented: bool) -> None:
    text = json.dumps({"first": 1, "list": values, "last": 2}, indent=2 if indented else None) + "\n"
    batches = ArrayBatches(Pieces(text.encode(), size), "list")
    found = [(value, first) for some, _, first in batches for value in some]
    assert (values, None, text.count("\n")) == ([value for value, _ in found], batches.problem, batches.lines)
    assert all(3 <= first <= batches.lines for _, first in found) or not indented


@pytest.mark.parametrize(
    ("text", "expected", "problem"),
    [
        ('{"list": [{"a": 1},\n{"a": 2},\n{"a"', 2, "in line 3"),
        ('{"list": [{"a": 1}, {"a": oops}, {"a": 2}]}', 1, "in line 1"),
        ('{"list": [{"a": 1}], "more": 1', 1, "ends behind the array"),
        ('{"list": [{"a": 1}]}\n{"list": [{"a": 2}]}\n', 1, "another one follows"),
        ('{"list": ', 0, "ends behind the array"),
    ],
)
def test_a_cut_array_gives_what_is_whole(text: str, expected: int, problem: str) -> None:
    batches = ArrayBatches(io.BytesIO(text.encode()), "list")
    assert expected == sum(len(some) for some, _, _ in batches)
    assert problem in (batches.problem or "")
