"""Ports, power supplies, disks, pools and nodes as tables of commands list them that no other reader knows."""

from collections.abc import Iterator, Sequence

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter, ListedNumber, ListedState
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.listings.colon_rows import colon_tables
from nccl_doctor.formats.listings.fields import parts_in
from nccl_doctor.formats.listings.interfaces import ports_in
from nccl_doctor.formats.listings.meaning import Thing, level_of, things_of
from nccl_doctor.formats.listings.titled import Table, tables_of
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_LINES = 200_000
_ROWS = 20_000  # states, numbers and counters
_SHOWN = 600  # characters of a line


# titles that only one command prints, where nothing above the table names it
_COMMANDS = {"CKSUM": "zpool status", "CKPOINT": "zpool list", "TX-OVR": "netstat -i", "%guest": "pidstat"}


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every table of a file that tells states, error counters or readings of parts.

    Source: SONiC `show …`, Arista EOS and Cisco NX-OS, `netstat -i`, `zpool list -v`, `pidstat -h`, `mm… -Y` of Storage Scale::

        PSU    Model          Power (W)  Status
        -----  -----------  -----------  ------
        PSU 1  MTEF-PSF           54.56  OK
    """
    written: dict[str | None, list[tuple[int, str]]] = {}
    lines = 0
    for first, label, texts in plain_batches(stream):
        lines = max(lines, first - 1 + len(texts))
        if lines > _LINES:
            break
        written.setdefault(label.host, []).extend(enumerate(texts, first))
    rows: list[ListedState | ListedNumber | LinkCounter] = []
    used: set[int] = set()
    for host, own in written.items():
        for source, thing in _listed(own):
            if len(rows) >= _ROWS or not (thing.states or thing.numbers or thing.counters):
                continue
            ref = facts.evidence(name, thing.number, thing.text.strip()[:_SHOWN])
            used.add(thing.number)
            kind, part = "port" if thing.is_port else "thing", thing.name[:120]
            rows += [
                ListedState(host, name, source, kind, part, state[:60], thing.level or level_of(state), ref)
                for state in thing.states
            ]
            rows += [
                ListedNumber(host, name, source, part, title[:60], value, unit, ref)
                for title, value, unit in thing.numbers
            ]
            rows += [
                LinkCounter(host, name, source, "ethernet", part, title, value, ref) for title, value in thing.counters
            ]
    facts.mark_covered("listed_state", "listed_number")
    facts.add(rows)
    note = f"lists more than {_ROWS:,} states and numbers; the others were left out" if len(rows) >= _ROWS else None
    return Reading(lines, len(used), note)


def _listed(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, Thing]]:
    """The parts that the lines of one host list, and what lists them."""
    for table in colon_tables(lines):
        yield from ((table.above[:80], thing) for thing in things_of(table, whatever=True))
    for table in tables_of(lines):
        source = _source_of(table)
        yield from ((source, thing) for thing in things_of(table))
    yield from parts_in(lines)
    yield from (("show interface", port) for port in ports_in(lines))


def _source_of(table: Table) -> str:
    """What a table is called: by its command, by what stands above it, or by its titles."""
    known = next((command for title, command in _COMMANDS.items() if title in table.titles), None)
    return known or table.above[:80] or " ".join(table.titles)[:80]
