"""Tables of nccl-tests whose head is missing, as `tail` leaves them: rows count where their numbers prove the columns."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchRow, BenchRun
from nccl_doctor.formats import registry
from nccl_doctor.formats.nccl import nccl_tests


def row(size: int, kind: str = "float", width: int = 4, factor: float = 1.75, redop: str = "sum") -> str:
    times = (20 + size / 90_000, 21 + size / 90_000)
    cells = [f"{time:8.1f} {size / time / 1e3:7.2f} {factor * size / time / 1e3:7.2f}      0" for time in times]
    return f"{size:12d}  {size // width:12d}  {kind:>8}  {redop:>6}      -1 " + "  ".join(cells)


def read(text: str) -> tuple[list[BenchRun], list[BenchRow]]:
    facts = Facts()
    nccl_tests.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts.rows(BenchRun), facts.rows(BenchRow)


@pytest.mark.parametrize("prefix", ["", "3: ", "[1,0]<stdout>:", "2026-05-07T12:00:00.123456789Z "])
def test_rows_and_the_summary_are_one_run(prefix: str) -> None:
    lines = [row(1 << power) for power in range(23, 28)]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 130.524 "]

    (run,), rows = read("".join(f"{prefix}{line}\n" for line in lines))

    assert ("all_reduce", 10, 130.524, 1) == (run.operation, run.rows, run.avg_busbw, run.finished)
    assert [1 << power for power in range(23, 28) for _ in (0, 1)] == [row.size for row in rows]
    assert rows[-1].busbw == pytest.approx(1.75 * (1 << 27) / (21 + (1 << 27) / 90_000) / 1e3, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "width"), [("half", 2), ("bfloat16", 2), ("uint8", 1), ("double", 8), ("int64", 8), ("f8e4m3", 1)]
)
def test_elements_of_all_widths(kind: str, width: int) -> None:
    (run,), rows = read(row(1 << 26, kind, width, factor=0.875, redop="none") + "\n")

    assert (None, 2, 0) == (run.operation, len(rows), run.finished)


def test_a_row_that_is_cut_is_left_out_or_read_as_far_as_it_goes() -> None:
    whole = row(1 << 25)
    begun = row(1 << 24)[6:]

    (run,), rows = read("\n".join([begun, whole, row(1 << 26)[:95], ""]))

    assert [(1 << 25, "out"), (1 << 25, "in")] == [(one.size, one.place) for one in rows][:2]
    assert 2 <= run.rows <= 3


@pytest.mark.parametrize(
    "line",
    [
        "     1048576        262144     float     sum      -1    999.0   55.48   97.09      0    150.7   55.66   97.41      0",
        "     1048576        999999     float     sum      -1     20.0   52.43   91.75      0     20.0   52.43   91.75      0",
        "     1048576        262144     float     sum      -1     20.0   52.43",
        "12 3 float sum -1 1 2 3 4 5 6 7 8",
    ],
)
def test_numbers_that_prove_nothing_are_no_table(line: str) -> None:
    assert ([], []) == read(line + "\n")


def test_a_log_with_rows_alone_is_recognised() -> None:
    log = f"some program\n{row(1 << 26)}\n".encode()

    assert "nccl-tests" in [
        known.kind for known in registry.within({literal for literal in _literals() if literal in log}, log)
    ]


def _literals() -> set[bytes]:
    return {literal for known in registry.FORMATS for literal in known.inside}


@pytest.mark.parametrize(
    "titles", ["# size count algbw(GB/s) busbw(GB/s)", "algbw_busbw", "# the algbw, not the busbw."]
)
def test_titles_without_the_word_alone_are_no_titles(titles: str) -> None:
    (run,), rows = read("".join(f"{line}\n" for line in (titles, *(row(1 << power) for power in range(23, 28)))))

    assert ("all_reduce", 10) == (run.operation, run.rows)
    assert [1 << power for power in range(23, 28) for _ in (0, 1)] == [row.size for row in rows]
