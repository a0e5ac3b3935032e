"""Tables between bars, and what pandas prints of statistics."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import PrintedNumber
from nccl_doctor.formats.printed import printed_numbers
from tests.helpers.examples import examples


def read(text: str) -> dict[str, PrintedNumber]:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return {row.name: row for row in facts.rows(PrintedNumber)}


RICH = """Summary:
┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┓
┃ Metric                 ┃   Value ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━┩
│ Concurrency            │      64 │
│ Req throughput (req/s) │   10.25 │
│ TTFT (ms)              │  512.75 │
│ Total / Success / Failed │ 9 / 9 / 0 │
└────────────────────────┴─────────┘
"""
SHARES = """│ Metric    │  1% │ 50% │ 99% │
├───────────┼─────┼─────┼─────┤
│ TTFT (ms) │ 1.5 │ 2.5 │ 9.5 │
"""
MARKDOWN = """| model | throughput | note |
|:------|-----------:|------|
| small | **912.5 tok/s** | warm |
| large | 111.5 tok/s | 2 nodes |
| huge | OOM | - |

| model | parameters |
|---|---|
| small | 7 |
"""
PRETTY = """+---------+------------+
| payload |   busbw    |
+---------+------------+
|   64KiB |   1.61GBps |
|   1MiB  |  11.50GBps |
+---------+------------+
"""


def test_a_number_a_row() -> None:
    rows = read(RICH)
    assert {"Req throughput (req/s)": ("req/s", 10.25), "TTFT (ms)": ("ms", 512.75)} == {
        name: (row.unit, row.last) for name, row in rows.items()
    }


def test_shares_of_values() -> None:
    assert {"TTFT (ms) 50%": 2.5, "TTFT (ms) 99%": 9.5} == {name: row.last for name, row in read(SHARES).items()}


def test_columns_by_their_titles_and_units() -> None:
    ((name, row),) = read(MARKDOWN).items()
    assert ("throughput", "tok/s", 2) == (name, row.unit, row.n)
    assert ("large", "small") == (row.lowest_label, row.highest_label)
    (row,) = read(PRETTY).values()
    assert ("busbw", "GB/s", 11.5, "1MiB") == (row.name, row.unit, row.highest, row.highest_label)


def test_a_unit_in_the_title() -> None:
    rows = read("| System | CPU-1 (s) | Speedup |\n|---|---|---|\n| 3x3 | 34.5 | 1.5 |\n| 4x4 | 81.5 | 2.5 |\n")
    assert {"CPU-1 (s)": ("s", "4x4")} == {name: (row.unit, row.highest_label) for name, row in rows.items()}


def test_lines_with_bars_that_are_no_tables() -> None:
    log = "| INFO | throughput |\n| 5 | 6.5 |\nstart | throughput\n" + "a | b\n--- | ---\n" + "| 7 | x |\n"
    assert {} == read(log)


SERIES = """count    128.000000
mean       0.251342
std        0.012345
min        0.240012
25%        0.245001
50%        0.249876
75%        0.255432
max        0.301234
Name: step_time_s, dtype: float64
"""
FRAME = """       latency_ms  tokens_per_s
count   64.000000     64.000000
mean    81.250000    512.500000
std      4.120000     12.100000
min     75.100000    480.200000
50%     80.900000    514.000000
max     99.300000    530.000000
"""


def test_statistics_of_a_series() -> None:
    rows = read(SERIES)
    assert {"step_time_s": 0.251342, "step_time_s 50%": 0.249876, "step_time_s max": 0.301234} == {
        name: row.last for name, row in rows.items()
    }
    assert {} == read(SERIES.replace("Name: ", "Nam: "))


def test_statistics_of_a_frame() -> None:
    rows = read("import pandas\n" + FRAME)
    assert (81.25, 512.5, 99.3) == (rows["latency_ms"].last, rows["tokens_per_s"].last, rows["latency_ms max"].last)
    assert {} == read(FRAME.replace("latency_ms  tokens", "latency_ms_tokens"))


@examples(60)
@given(st.data())
def test_broken_tables_do_no_harm(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([RICH, SHARES, MARKDOWN, PRETTY, SERIES, FRAME]))
    at = data.draw(st.integers(0, len(text)))
    with_noise = text[:at] + data.draw(st.text(max_size=9)) + text[at + data.draw(st.integers(0, 9)) :]
    assert all(row.n > 0 for row in read(with_noise).values())


@pytest.mark.parametrize("cut", [5, 60, 200])
def test_cut_tables(cut: int) -> None:
    assert set(read(RICH[:-cut])) <= set(read(RICH))
