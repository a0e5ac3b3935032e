"""Lines of bytes with their numbers: nothing is lost, long lines come in pieces, and nothing is read before it is asked for."""

import io
import re
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import exports, prefixes, text_lines
from nccl_doctor.inputs.prefix_rules import RULES


@given(st.lists(st.sampled_from([b"", b"a", b"\r", b"long line", b"\xff" * 9, b"x" * 40]), max_size=12), st.booleans())
def test_every_line_has_its_bytes_and_its_number(parts: list[bytes], ended: bool) -> None:
    data = b"\n".join(parts) + (b"\n" if ended and parts else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "LONGEST_PIECE", 7)
        pieces = list(text_lines.numbered(io.BytesIO(data)))

    found = [b"".join(piece for _, piece in same) for _, same in groupby(pieces, itemgetter(0))]
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    assert (expected, range(1, len(expected) + 1)) == (found, range(1, len(dict(pieces)) + 1))
    assert all(len(piece) <= 7 for _, piece in pieces)


def test_text_lines_have_one_piece_each() -> None:
    long = b"a" * (text_lines.LONGEST_PIECE + 5)
    assert [(1, text_lines.LONGEST), (2, 1)] == [
        (number, len(line)) for number, line in text_lines.lines(io.BytesIO(long + b"\nb\n"))
    ]


class Endless:
    """Rows of an export without end, of which a reader must not take more than it needs."""

    def __init__(self, head: bytes, row: bytes) -> None:
        self._ready, self._row, self._given = head, row, 0

    def read(self, size: int, /) -> bytes:
        self._given += size
        assert self._given < 64 << 20, "the reader reads ahead without end"
        while len(self._ready) < size:
            self._ready += self._row * (size // len(self._row) + 1)
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


@pytest.mark.parametrize(
    ("kind", "head", "row"),
    [
        ("table", b"time,message\n", b"2026-05-07 12:00:00,hello\n2026-05-07 12:00:01,hello\n"),
        ("lines", b"", b'{"message": "hello"}\n'),
        ("journal", b"", b"__CURSOR=1\nMESSAGE=hello\n\n"),
        ("wrapped", b"", b"hello\n"),
        ("fork", b"", b"hello\n"),
        ("cri-parts", b"", b"hello\n"),
        ("docker-parts", b"", b"hello\n"),
    ],
)
def test_an_export_is_read_as_it_comes(kind: str, head: bytes, row: bytes) -> None:
    lines = exports.Exported(Endless(head, row), kind)
    assert b"hello" in lines.read(1000)


@pytest.mark.parametrize("kind", ["lines", "table", "wrapped", "fork", "cri-parts", "docker-parts"])
def test_a_file_without_a_line_end_comes_in_pieces(kind: str) -> None:
    data = b"x" * (3 * text_lines.LONGEST_PIECE)
    pieces = exports.Exported(io.BytesIO(data), kind).read(1 << 30).split(b"\n")
    assert {text_lines.LONGEST_PIECE, 0} >= {len(piece) for piece in pieces}
    assert len(data) == sum(map(len, pieces))


def _one_by_one(data: bytes) -> list[tuple[int, prefixes.Label, str]]:
    given = text_lines.lines(io.BytesIO(data))
    return [(number, *prefixes.split(prefixes.clean(line), timeless=True)) for number, line in given]


SAMPLES = [sample for rule in RULES for sample in rule.samples]
WRITERS = (
    "",
    "node01: ",
    "node02: ",
    "ext4: ",
    "gpu7: ",
    "3: ",
    "12: ",
    "[1,3]<stdout>:",
    "[default1]:",
    "gpu-a: ",
    "\t",
    "  ",
)
TEXTS = (
    "", " ", "State: Active", "\tRate: 400", "97 %", "RX errors: 5", "rx5_bytes: 12", "rx7_bytes: 13", "node01: again", "2: eth0: <UP> mtu",
    "[0, 4]", "2026-05-07T12:00:00Z text", '{"log":"text\\n","stream":"stdout"}', "\x1b[31mred\x1b[0m", "[31mred[0m", "> quoted", "│ box │",
    "\xa0é", "\ufeffmark", "text\r", "node01:101:140 [0] NCCL INFO x", "x [repeated 3x across cluster]", "(pid=3) y", "│",
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(WRITERS), st.sampled_from((*TEXTS, *SAMPLES)), st.integers(1, 40)), max_size=12)
)
def test_prefixes_of_many_lines_are_those_of_each(written: list[tuple[str, str, int]]) -> None:
    data = "".join(f"{writer}{text}\n" * times for writer, text, times in written).encode()
    expected = _one_by_one(data)
    sections = text_lines.Sections(io.BytesIO(data), re.compile(rb"\A"), keep=1_000)
    assert (expected, expected) == (list(text_lines.plain_lines(io.BytesIO(data))), list(sections))


def test_a_section_ends_after_lines_that_are_not_used() -> None:
    data = b"before\nhead\n" + b"row 1\n" * 30 + b"other\n" * 50 + b"head\nrow 2"
    sections = text_lines.Sections(io.BytesIO(data), re.compile(rb"head"), keep=5)
    given = []
    for number, _, text in sections:
        given.append(number)
        if text.startswith(("head", "row")):
            sections.used()
    assert ([*range(1, 38), 82, 83, 84], 84) == (given, sections.lines)


def test_a_run_to_the_end_is_not_given_again() -> None:
    sections = text_lines.Sections(io.BytesIO(b"head\nrow 1\nrow 2\n"), re.compile(rb"head"))
    given = []
    for number, _, text in sections:
        given.append((number, text))
        assert (2, b"row 1\nrow 2\n") == sections.run(re.compile(rb"(?:row \d\n)+"))
    assert ([(1, "head")], 3) == (given, sections.lines)


def test_a_run_takes_the_lines_behind_the_one_that_was_given_last() -> None:
    rows = re.compile(rb"(?:row \d{1,9}\n)+")
    data = b"".join(b"head %d\nrow 1\nrow 2\nend\n" % number for number in range(1_000))
    sections = text_lines.Sections(io.BytesIO(data), re.compile(rb"head 0"))
    given = []
    for number, _, text in sections:
        given.append((number, text))
        sections.used()
        if text.startswith("head"):
            assert (number + 1, b"row 1\nrow 2\n") == sections.run(rows)
    expected = [(4 * at + line, text) for at in range(1_000) for line, text in ((1, f"head {at}"), (4, "end"))]
    assert (expected, 4_000) == (given, sections.lines)


def test_the_line_of_a_place_is_that_of_the_line_ends_before_it() -> None:
    text = "a\n\nbc\n"
    assert [text.count("\n", 0, at) + 1 for at in range(len(text) + 1)] == [
        *map(text_lines.line_numbers(text), range(len(text) + 1))
    ]
