"""Lines of a part of a capture say the same whether they are taken one by one or together."""

import io
from typing import Any

from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber
from nccl_doctor.formats.captures import host_commands
from nccl_doctor.formats.captures.host_sections import Section
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
