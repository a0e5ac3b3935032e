"""Windows of a log around literals: what is given, and which line of the log it is."""

import io

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats import windows
from nccl_doctor.formats.windows import Windows

BLOCK = 1 << 20
FILLER = b"step 1 loss 2.5\n"


def read(text: bytes, reach: int, size: int = 1 << 18) -> tuple[list[bytes], Windows]:
    near = Windows(io.BytesIO(text), (b"\nfree", b"total"), reach, "test-windows")
    data = b"".join(iter(lambda: near.read(size), b""))
    return data.split(b"\n")[:-1], near


def test_a_small_log_is_given_whole() -> None:
    text = b"a\nb\nc\n"
    lines, near = read(text, 100)
    assert lines == [b"a", b"b", b"c"]
    assert near.lines == 3


def test_what_is_far_from_every_literal_is_passed_over() -> None:
    """The first block is near a section there, so is the one before the second section."""
    many = 6 * BLOCK // len(FILLER)
    text = b"total used\n1 2\n" + FILLER * many + b"total used\n3 4\n" + FILLER * many
    lines, near = read(text, 100)
    assert len(lines) < many
    assert [lines.index(b"1 2"), near.source_line(lines.index(b"1 2") + 1)] == [1, 2]
    assert near.source_line(lines.index(b"3 4") + 1) == many + 4
    assert near.lines == 2 * many + 4
    assert lines.count(b"") == 1  # the gap


def test_a_literal_may_begin_with_the_end_of_the_line_before() -> None:
    many = 3 * BLOCK // len(FILLER)
    lines, near = read(FILLER * many + b"free 1\n", 100)
    assert near.source_line(lines.index(b"free 1") + 1) == many + 1


def test_a_line_of_many_megabytes_is_one_line() -> None:
    text = b"x" * (9 << 20) + b"\n" + FILLER * (3 * BLOCK // len(FILLER)) + b"total\n"
    lines, near = read(text, 100)
    assert near.source_line(lines.index(b"total") + 1) == text.count(b"\n")


@given(
    st.lists(st.sampled_from([b"total 1", b"free", b"a", b"bb", b"", b"a longer line of text"]), max_size=60),
    st.integers(1, 200),
    st.integers(1, 300),
    st.booleans(),
)
def test_given_lines_are_those_of_the_log(texts: list[bytes], reach: int, size: int, ended: bool) -> None:
    """Every line is the one that its number says, all lines near a literal are among them, and none comes twice."""
    text = b"\n".join(texts) + (b"\n" if ended and texts else b"")
    written = text.split(b"\n")
    block, windows.SIZE = windows.SIZE, 32
    try:
        lines, near = read(text, reach, size)
    finally:
        windows.SIZE = block
    places = [near.source_line(number) for number in range(1, len(lines) + 1)]
    found = {place for place, line in zip(places, lines, strict=True) if line and line == written[place - 1]}
    assert all(line == written[place - 1] for place, line in zip(places, lines, strict=True) if line)
    assert found >= {number for number, line in enumerate(written, 1) if line.startswith((b"total", b"free"))}
    kept = [place for place, line in zip(places, lines, strict=True) if line]
    assert kept == sorted(set(kept))
    assert near.lines == len(written) - (not written[-1])
