"""Tables whose titles name units, and lists of hardware, whose numbers are none of a measurement."""

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


SWEEP = [(size, 2.5 + size / 9e5, size / (2.5 + size / 9e5)) for size in (1, 1024, 65536, 4194304)]


@pytest.mark.parametrize(
    ("titles", "row"),
    [
        ("size              time(us)          bw(MB/s)", "{0:<18}{1:<18.3f}{2:<18.3f}"),
        ("# Message Size (B)\tTime (us)\tBandwidth (MB/s)", "{0}\t{1:.3f}\t{2:.3f}"),
        ("| size | latency [us] | bw [MB/s] |", "| {0} | {1:.3f} | {2:.3f} |"),
    ],
)
def test_a_sweep_over_sizes(titles: str, row: str) -> None:
    found = read("\n".join(["Found 2 GPU(s)", titles, *(row.format(*one) for one in SWEEP), "done"]) + "\n")
    time, rate = found.values()
    assert ("us", "time", 4, "4194304") == (time.unit, time.kind, time.n, time.highest_label)
    assert ("MB/s", "rate", 4, "1") == (rate.unit, rate.kind, rate.n, rate.lowest_label)
    assert rate.highest == pytest.approx(SWEEP[-1][2], abs=0.001)


def test_values_that_are_no_numbers_are_left_out() -> None:
    found = read("size   time(us)   bw(MB/s)\n1   nan   0.5\n2   2.5   inf\n3   2.5   0.75\n")
    assert {("time", 2, 2.5), ("bw", 2, 0.75)} == {(row.name, row.n, row.highest) for row in found.values()}


@pytest.mark.parametrize(
    "text",
    [
        "size   time(us)   bw(MB/s)\n1   2.5   0.4\n2   2.5   0.8\n",  # two rows
        "size   time(us)   bw(MB/s)\n1   fast\n2   fast\n3   fast\n",
        "def f(x)   (s)   bw(nothing)\n1 2 3\n1 2 3\n1 2 3\n",
        "  *-network\n       description: Ethernet interface\n       size: 10Gbit/s\n       capacity: 25Gbit/s\n       clock: 33MHz\n",
    ],
)
def test_other_text_is_no_table(text: str) -> None:
    assert {} == read(text)


def test_numbers_behind_a_list_of_hardware_count() -> None:
    assert ["bandwidth"] == list(read("  *-memory\n       size: 10Gbit/s\nbandwidth: 12.5 GB/s\n"))


@examples(60)
@given(st.lists(st.text("size(us) bw(MB/s)\t|0123456789.-eE,", max_size=60), max_size=12))
def test_no_text_breaks_it(lines: list[str]) -> None:
    assert all(row.n > 0 for row in read("\n".join(lines)).values())
