"""Tables read as grids of signs give what their lines give one by one."""

import io
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import samples as gpu_samples
from nccl_doctor.formats.gpu.loops.dmon_columns import Layout
from nccl_doctor.formats.number_grid import cell_numbers, number_of, read_grid

WORDS = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3f}"),
    st.sampled_from(
        [
            "-",
            "N/A",
            "nan",
            "inf",
            "1e5",
            "1_0",
            ".5",
            "5.",
            ".",
            "1.2.3",
            "0007",
            "\N{ARABIC-INDIC DIGIT THREE}",
            "9" * 17,
            "0x1f",
            "-3",
        ]
    ),
)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=9), st.sampled_from("<>"))
def test_a_column_holds_what_float_reads(rows: list[tuple[str, ...]], align: str) -> None:
    lines = ["  ".join(f"{word:{align}20}" for word in row) for row in rows]
    grid = read_grid(lines, 3)
    plain = [number for number, line in enumerate(lines) if line.isascii()]
    if not lines or len(plain) < len(lines):
        assert grid is None
        return
    assert grid is not None
    assert plain == grid.rows.tolist()
    for column in range(3):
        expected = [number_of(row[column]) for row in rows]
        read = grid.numbers(column).tolist()
        assert [repr(value) for value in expected] == [repr(value) for value in read]
        assert [row[column] == "-" for row in rows] == grid.is_word(column, b"-").tolist()
        assert all(
            row[column].isdecimal() for row, is_decimal in zip(rows, grid.is_decimal(column), strict=True) if is_decimal
        )


@pytest.mark.parametrize("lines", [[""], ["a b"], ["1 2 3", "12  3"], ["1 2  ", "  1 2"], ["1\t2 3"], ["1 2\x003"]])
def test_what_has_no_columns_is_no_grid(lines: list[str]) -> None:
    grid = read_grid(lines, 3)
    assert grid is None or grid.rows.tolist() == [0]


def test_half_of_a_point_is_rounded_as_float_does() -> None:
    words = ["0.1", "0.7", "2.675", "123456789012.345", "999999999999999", "0.000000000000001"]
    grid = read_grid([f"{word:>20}" for word in words], 1)
    assert grid is not None
    assert [float(word) for word in words] == grid.numbers(0).tolist()
    assert not any(map(math.isnan, grid.numbers(0)))


@given(st.lists(st.one_of(WORDS, st.sampled_from(["", " 7", "1 2", "2e-05", "-"])), min_size=1, max_size=30))
def test_cells_between_separators_hold_what_float_reads(words: list[str]) -> None:
    text = ",".join(words).encode()
    ends = np.append(np.flatnonzero(np.frombuffer(text, np.uint8) == ord(",")), len(text))
    numbers = cell_numbers(text, ends, number_of)
    assert numbers is not None
    words = [word.encode().decode("ascii", "replace") for word in words]
    assert [repr(number_of(word)) for word in words] == [repr(value) for value in numbers.tolist()]


def test_a_cell_that_is_too_wide_is_not_read() -> None:
    assert cell_numbers(b"1," + b"9" * 30, np.array([1, 32]), number_of) is None


TITLES = "#Date       Time        gpu    pwr  gtemp     sm   pclk     fb"
OTHER = "# gpu    pwr  gtemp     sm   pclk     fb"
DCGM = "#Entity   GPUTL        SMACT        POWER        SMCLK"
CELL = st.sampled_from(["0", "5", "97", "100", "630", "-", "1770", "61000"])


def _dmon_row(second: int, cells: tuple[str, ...]) -> str:
    return f" 20240908   13:{second // 60 % 60:02d}:{second % 60:02d} " + "".join(f"{cell:>7}" for cell in cells)


LINES = st.one_of(
    st.builds(_dmon_row, st.integers(0, 3000), st.tuples(st.sampled_from("0123"), CELL, CELL, CELL, CELL, CELL)),
    st.builds(
        lambda gpu, one, two: f"GPU {gpu}     {one:<13}{0.5:<13}{two:<13}1770         ", st.integers(0, 3), CELL, CELL
    ),
    st.sampled_from(
        [
            TITLES,
            OTHER,
            DCGM,
            "",
            "ID                     W",
            "a line of the job",
            "    0    600     55     97   1770  61000",
        ]
    ),
)
PART = st.one_of(st.lists(LINES, max_size=6), LINES.flatmap(lambda line: st.integers(1, 200).map(lambda n: [line] * n)))


def _facts_of(text: str) -> list[list[tuple[object, ...]]]:
    facts = Facts()
    gpu_samples.read_format(io.BytesIO(text.encode()), "gpu.txt", facts)
    return [
        facts.query(f"SELECT * FROM {name}")
        for name in ("gpu_use", "gpu_sample", "gpu_counter", "gpu_process", "evidence")
    ]


@given(st.lists(PART, min_size=1, max_size=8), st.sampled_from([TITLES, DCGM, OTHER]))
def test_rows_of_a_block_give_what_single_rows_give(parts: list[list[str]], titles: str) -> None:
    text = "\n".join([titles, *(line for part in parts for line in part)]) + "\n"
    together = _facts_of(text)
    with mock.patch.object(Layout, "grid", return_value=None):
        alone = _facts_of(text)
    for expected, rows in zip(alone, together, strict=True):
        assert [pytest.approx(row) for row in expected] == rows
