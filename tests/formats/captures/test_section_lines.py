"""Lines of a part of a capture say the same whether they are taken one by one or together."""

import io
from collections.abc import Iterable
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber
from nccl_doctor.formats.captures import host_commands, link_sections
from nccl_doctor.formats.captures.host_sections import Section
from nccl_doctor.formats.captures.link_sections import Traffic
from nccl_doctor.formats.captures.storage_sections import LustreImports, NfsIo

LINES = st.sampled_from(
    [
        "osc.lus-OST0001-osc-ffff8f1a2b3c4000.import=",
        "import:",
        "    name: lus-OST0001-osc-ffff8f1a2b3c4000",
        "    target: lus-OST0001_UUID",
        "    state: FULL",
        "       avg_waittime: 1200 usec",
        "       inflight: 0",
        "                        far to the right",
        "                        state: FULL",
        " one blank",
        "",
        "step 7 loss 2.1",
        "fs01:/home mounted on /home:",
        "read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)",
        "                  41.826         261.765         491.421        0 (0.0%)          58.006           7.399",
    ]
)


def _taken(section: type[Section], lines: list[str], *, together: bool) -> tuple[int, list[Any]]:
    """The place of the first line that is not part of a section, and what the lines before said."""
    rows: list[Any] = []
    part = section(lambda *row: rows.append(row))
    if together:
        return part.take_all(lines, 1, 5), rows
    at = 1
    while at < len(lines) and part.take(lines[at], 5 + at):
        at += 1
    return at, rows


@given(st.sampled_from([LustreImports, NfsIo]), st.lists(LINES, min_size=1, max_size=30))
def test_lines_that_are_taken_together_say_what_each_says(section: type[Section], lines: list[str]) -> None:
    assert _taken(section, lines, together=False) == _taken(section, lines, together=True)


TITLES = "IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil"
HEADS = (
    f"21:21:02        {TITLES}",
    f"        {TITLES}",
    "21:21:02        IFACE   rxerr/s   txerr/s    coll/s  rxdrop/s  txdrop/s  txcarr/s  rxfram/s  rxfifo/s  txfifo/s",
    "21:21:02        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s",
    "Linux 6.1.0 (node07)   08/11/2026      _x86_64_        (96 CPU)",
    "",
    "21:21:03        all     64.39     23.41     12.20      0.00      0.00      0.00",
)
TIMES = st.sampled_from(["21:21:03", "21:21:04", "21:21:04 PM", "Average:", "12345678", "1 :21:04", ""])
NAMES = st.sampled_from(["       lo", "     eth0", ""])
CELLS = st.sampled_from(
    [
        8 * "      0.00",
        6 * "      0.00",
        8 * "      0,00",
        "      2.00" + 7 * "      0.00",
        7 * "      0.00" + " 1e2",
    ]
)
ROWS = st.builds("".join, st.tuples(TIMES, NAMES, CELLS))
TORN = st.builds(lambda row, end: row[:end], ROWS, st.integers(0, 100))
SAR = st.one_of(st.sampled_from(HEADS), ROWS, ROWS, TORN)
IDLE = "     eth0" + 8 * "      0.00"


@pytest.mark.parametrize(
    ("head", "before", "row"),
    [
        (HEADS[0], f"21:21:03{IDLE}", f"1 :21:04{IDLE}"),  # two words
        (HEADS[0], f"21:21:03{IDLE}", f"21:21:03     eth0{7 * '      0.00'} 1e2"),
        (HEADS[3], f"12345678{6 * '      0.00'}", f"21:21:03{6 * '      0.00'}"),  # the name is no time
    ],
)
def test_a_row_that_another_node_printed_counts_here(head: str, before: str, row: str) -> None:
    lines = ["", head, before, row, "21:21:04     eth0" + "      1.00" * 8]
    for _ in range(2):
        assert _taken(Traffic, lines, together=False) == _taken(Traffic, lines, together=True)


@examples(200)
@given(st.lists(SAR, min_size=1, max_size=40).map(lambda lines: ["", HEADS[0], *lines]))
def test_rows_of_idle_interfaces_say_what_each_says(lines: list[str]) -> None:
    assert _taken(Traffic, lines, together=False) == _taken(Traffic, lines, together=True)


def _numbers(lines: Iterable[tuple[str, str]]) -> list[tuple[Any, ...]]:
    facts = Facts()
    text = "".join(f"{node}: {line}\n" for node, line in lines)
    host_commands.read_format(io.BytesIO(text.encode()), "sar.txt", facts)
    return sorted(row[:-1] for row in facts.rows(HostNumber))


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(["node01", "node02", "node03"]), SAR), max_size=40))
def test_blocks_of_nodes_that_are_torn_and_mixed_say_what_each_node_says(lines: list[tuple[str, str]]) -> None:
    alone = [_numbers(line for line in lines if line[0] == node) for node in ("node01", "node02", "node03")]
    assert sorted(row for rows in alone for row in rows) == _numbers(lines)


def test_few_rows_of_idle_interfaces_are_remembered() -> None:
    link_sections._idle_rows.cache_clear()
    rows = [f"21:21:03 veth{number}" + 8 * "      0.00" for number in range(2_000)]
    assert (2_002, []) == _taken(Traffic, ["", f"21:21:02 {TITLES}", *rows], together=True)
    assert link_sections._IDLE == len(link_sections._idle_rows(tuple(TITLES.split()[1:]), 10))
    blank = " " * link_sections._LONGEST
    link_sections._idle_rows.cache_clear()
    assert (3, []) == _taken(Traffic, ["", f"21:21:02 {TITLES}", f"21:21:03 eth0{blank}" + 8 * " 0.00"], together=True)
    assert not link_sections._idle_rows(tuple(TITLES.split()[1:]), 10)


@examples(50)
@given(st.lists(st.tuples(st.sampled_from(["eth0", "ib0"]), st.integers(0, 9999), st.integers(0, 9999)), min_size=1))
def test_of_all_rows_of_sar_the_highest_counts(rows: list[tuple[str, int, int]]) -> None:
    text = "Linux 6.1.0 (node07)   08/11/2026      _x86_64_        (96 CPU)\n\n"
    for name, received, sent in rows:
        text += (
            "00:00:01        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil\n"
        )
        text += f"00:00:01 {name:>12}{1:10.2f}{1:10.2f}{received:10.2f}{sent:10.2f}{0:10.2f}{0:10.2f}{0:10.2f}{sent / 100:10.2f}\n"
        text += "00:00:01        IFACE   rxerr/s   txerr/s    coll/s  rxdrop/s  txdrop/s  txcarr/s  rxfram/s  rxfifo/s  txfifo/s\n"
        text += f"00:00:01 {name:>12}{received:10.2f}{0:10.2f}{0:10.2f}{sent:10.2f}" + f"{0:10.2f}" * 5 + "\n"
    facts = Facts()
    host_commands.read_format(io.BytesIO(text.encode()), "sar.txt", facts)
    highest: dict[str, float] = {}
    for name, received, sent in rows:
        for what, value in (
            ("traffic", 1024.0 * max(received, sent)),
            ("use", sent / 100),
            ("errors", received),
            ("drops", sent),
        ):
            if value:
                highest[f"{what} of {name}"] = max(value, highest.get(f"{what} of {name}", 0))
    assert highest == {row.name: row.value for row in facts.rows(HostNumber)}
