"""Lines of bytes with their numbers: nothing is lost, long lines come in pieces, and nothing is read before it is asked for."""

import io
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import exports, text_lines


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
