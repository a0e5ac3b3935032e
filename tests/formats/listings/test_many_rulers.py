"""Lines that could each begin a table, and never do, are not read again and again; lines of Python are counted, not seconds."""

import pytest

from nccl_doctor.formats.listings.titled import tables_of
from tests.helpers.scaling import traced_lines


def cost(piece: list[str], times: int) -> int:
    lines = list(enumerate(times * piece, 1))
    with traced_lines("/listings/") as counted:
        assert [] == list(tables_of(lines))
    return counted["line"]


@pytest.mark.parametrize(
    "piece",
    [
        ["+-----+------+"],
        ["+-----+------+", " +----+"],
        ["| a | b |", "| c |"],
        ["----- ----- -----"],
        ["----- -----", ""],
    ],
)
def test_four_times_the_lines_take_four_times_as_long(piece: list[str]) -> None:
    assert cost(piece, 400) < 5 * cost(piece, 100)


def test_a_table_behind_a_few_other_bars_is_found() -> None:
    text = ["| driver 1.2 |", "+----+------+", "| GPU | state |", "+-----+------+", "| 0 | ok |", "+-----+------+"]
    assert [("GPU", "state")] == [table.titles for table in tables_of(list(enumerate(text, 1)))]
