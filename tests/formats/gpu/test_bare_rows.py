"""Samples of nvidia-smi whose columns have no titles, or titles of people's own: what units and values tell of them."""

from collections.abc import Callable

import pytest
from helpers.gpu_rows import read, rows

from nccl_doctor.facts.tables.gpu import GpuUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.gpu.loops import bare_rows


def test_without_header_the_units_tell() -> None:
    data = rows(
        f"2024/09/08 13:{n // 60:02d}:{n % 60:02d}.000, {n % 2}, 93 %, 40320 MiB, 81559 MiB, 312.45 W"
        for n in range(80)
    )
    assert registry.recognise(data.encode()) is not None
    facts, reading = read(data)
    assert 80 == reading.understood
    assert [(0, 40, 1.0, 40320.0, 81559.0, 312.0)] == facts.query(
        "SELECT gpu, samples, busy_share, memory_max, memory_total, power_median FROM gpu_use WHERE gpu = 0"
    )


def test_without_header_a_temperature_is_no_number_of_a_gpu() -> None:
    data = rows(
        f"2026/04/25 16:{n // 60:02d}:{n % 60:02d}.000, {60 + n % 30} %, {2000 + n} MiB, 20146 MiB, {27 + (n > 30) * n % 20}, 53.50 W"
        for n in range(200)
    )
    facts, reading = read(data)
    assert 200 == reading.understood
    assert [(200,)] == facts.query("SELECT samples FROM gpu_use")


@pytest.mark.parametrize(
    "titles",
    [
        "timestamp,gpu_utilization,memory_used,memory_total",
        "datetime, util_percent, mem_used_mb, mem_total_mb",
        "timestamp,gpu_util,gpu_memory_used,gpu_memory_total",
    ],
)
def test_titles_of_peoples_own(titles: str) -> None:
    data = titles + "\n" + rows(f"{1746556382 + n}.25,{80 + n % 9}, {1000 + n}, 15360" for n in range(60))
    known = registry.recognise(data.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, _ = read(data)
    assert [(60, 1059.0, 15360.0)] == facts.query("SELECT samples, memory_max, memory_total FROM gpu_use")


def test_titles_of_a_training_beside_them_are_no_samples() -> None:
    known = registry.recognise(
        b"timestamp,step,loss,gpu_utilization,memory_used\n1746556382.8,1,2.5,97,1000\n1746556383.8,2,2.4,97,1000\n"
    )
    assert known is None or known.kind != "gpu-samples"


def test_rows_without_titles_and_units_are_told_as_such() -> None:
    rows = "".join(
        f"2026/05/07 12:00:{second:02d}.123, {gpu}, NVIDIA H100 80GB HBM3, 95, 61234, 690.12\n"
        for second in range(3)
        for gpu in range(2)
    )
    known = registry.recognise(rows.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, reading = read(rows, "smi.csv")
    assert "rows of nvidia-smi without titles and units: leave out `noheader` or `nounits`" == reading.note
    assert not facts.rows(GpuUse)


def _bare(row: Callable[[int, int], str], gpus: int = 4, seconds: int = 60) -> str:
    return "".join(f"{row(second, gpu)}\n" for second in range(seconds) for gpu in range(gpus))


def test_values_tell_the_columns_of_rows_without_titles_and_units() -> None:
    text = _bare(
        lambda t, g: (
            f"{g}, {97 - t % 3 if g != 2 else 20 + t % 30}, {61000 + t * 7 % 90}, 81559, {650 + t % 9}.{t:02d}, {60 + g + t % 2}"
        )
    )
    known = registry.recognise(text.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, reading = read(text, "smi.csv")
    assert (240, None) == (reading.understood, reading.note)
    assert [0, 1, 2, 3] == [row.gpu for row in facts.rows(GpuUse)]
    assert [True, True, False, True] == [(row.util_mean or 0) > 90 for row in facts.rows(GpuUse)]
    assert {81559.0} == {row.memory_total for row in facts.rows(GpuUse)}


@pytest.mark.parametrize(
    ("row", "named"),
    [
        # two columns that both reach what no temperature has, and neither is above the other
        (lambda t, g: f"{g}, {t % 100}, {99 - t % 100}, 24576, {200 + t % 9}.50", {"index", "memory_total", "power"}),
        # a fan at full speed, and a use that changes
        (lambda t, g: f"{g}, 100, {t % 90}, 24576, {200 + t % 9}.50", {"index", "util", "memory_total", "power"}),
        # the use of a GPU and of its memory: it is the higher one
        (
            lambda t, g: f"{g}, {60 + t % 40}, {t % 40}, 24576, {200 + t % 9}.50",
            {"index", "util", "memory_total", "power"},
        ),
        # clocks of the memory and of the multiprocessors are no memory
        (lambda t, g: f"{g}, {60 + t % 40}, {1300 + t}, 2619, {200 + t % 9}.50", {"index", "util", "power"}),
        # used and free memory: their order does not tell which is which
        (lambda t, g: f"{g}, {60 + t % 40}, {9000 + t}, {15576 - t}, 24576", {"index", "util", "memory_total"}),
        (lambda t, g: f"{g}, P0, {60 + t % 40}, 250.00, {200 + t % 9}.50", {"index", "util", "power", "power_limit"}),
    ],
    ids=["two shares", "fan", "memory use", "clocks", "free memory", "limit"],
)
def test_a_column_counts_only_where_its_values_are_clear(row: Callable[[int, int], str], named: set[str]) -> None:
    assert named == set(bare_rows.columns_of(_bare(row).splitlines()) or ()) - {None}


@pytest.mark.parametrize(
    "text",
    [
        "0, 1, 2\n1, 2, 3\n2, 3, 4\n3, 4, 5\n",  # any numbers
        "97, 61234\n98, 61240\n97, 61300\n99, 61301\n",  # two columns: what they are cannot be told
        "0, 12.50\n1, 33.20\n2, 20.10\n3, 9.90\n",
        "".join(f"{n}, {n % 7}, {n * 3}\n" for n in range(300)),
        "x" * 5000 + "\n" + "0, 1\n" * 5,
        "",
    ],
)
def test_other_numbers_are_not_taken_for_samples(text: str) -> None:
    assert bare_rows.columns_of(text.splitlines()) is None


def test_titles_of_a_table_that_was_cleaned() -> None:
    titles = "timestamp,index_gpu,name,pci_bus_id,gpu_utilization,gpu_memory_utilization,gpu_memory_used,gpu_memory_free,gpu_memory_total"
    data = titles + "\n" + rows(
        f"2026-06-22 18:{n // 60:02}:{n % 60:02}, {gpu}, NVIDIA A30, 00000000:{gpu}1:00.0,{60 + gpu},6,841,7140,24576"
        for n in range(60)
        for gpu in (0, 1)
    )  # fmt: skip
    known = registry.recognise(data.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    facts, _ = read(data)
    assert [(0, 60, 60.0), (1, 60, 61.0)] == facts.query("SELECT gpu, samples, util_mean FROM gpu_use ORDER BY gpu")
