"""Ports, power supplies, disks, pools and nodes as tables of commands list them that no other reader knows."""

from collections.abc import Iterable, Iterator, Sequence

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter, ListedNumber, ListedState
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.listings.colon_rows import colon_tables
from nccl_doctor.formats.listings.fields import parts_in
from nccl_doctor.formats.listings.interfaces import ports_in
from nccl_doctor.formats.listings.json_parts import LARGEST, MARKS, parts_of
from nccl_doctor.formats.listings.meaning import Thing, level_of, things_of
from nccl_doctor.formats.listings.pbs_nodes import nodes_in
from nccl_doctor.formats.listings.titled import Table, tables_of
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_batches, read_head

_LINES = 50_000  # that are searched; captures are short
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
    lines, is_cut = 0, False
    head = read_head(stream, 1 << 16)
    stream = Joined(head, stream)
    if begins_json(head):
        return _read_document(stream, head, name, facts)
    for first, label, texts in plain_batches(stream):
        room = _LINES - lines
        lines += min(len(texts), room)
        written.setdefault(label.host, []).extend(enumerate(texts[:room], first))
        is_cut = len(texts) > room
        if is_cut:
            break
    listed = ((host, source, thing) for host, own in written.items() for source, thing in _listed(own))
    reading = _add(listed, lines, name, facts)
    note = f"only the first {_LINES:,} lines were searched for lists" if is_cut and reading.understood else None
    return reading._replace(note=reading.note or note)


def _read_document(stream: Readable, head: bytes, name: str, facts: Facts) -> Reading:
    """The parts of a document of JSON that has one of the marks of such documents."""
    if not any(mark in head for mark in MARKS):
        return Reading(0, 0)
    data = read_head(stream, LARGEST)
    things = parts_of(data) or []
    return _add(((None, "JSON", thing) for thing in things), data.count(b"\n") + 1, name, facts)


def _add(listed: Iterable[tuple[str | None, str, Thing]], lines: int, name: str, facts: Facts) -> Reading:
    """Add the rows of parts, each with its host and what lists it."""
    rows: list[ListedState | ListedNumber | LinkCounter] = []
    used: set[int] = set()
    for host, source, thing in listed:
        if len(rows) >= _ROWS:
            break
        used.add(thing.number)
        if not (thing.states or thing.numbers or thing.counters):
            continue
        ref = facts.evidence(name, thing.number, thing.text.strip()[:_SHOWN])
        kind, part = "port" if thing.is_port else "thing", thing.name[:120]
        rows += [
            ListedState(host, name, source, kind, part, state[:100], thing.level or level_of(state), ref)
            for state in thing.states
        ]
        rows += [
            ListedNumber(host, name, source, part, title[:60], value, unit, ref) for title, value, unit in thing.numbers
        ]
        rows += [
            LinkCounter(host, name, source, "ethernet", part, title, value, ref) for title, value in thing.counters
        ]
    facts.mark_covered("listed_state", "listed_number")
    facts.add(rows)
    note = f"lists more than {_ROWS:,} states and numbers; the others were left out" if len(rows) >= _ROWS else None
    return Reading(lines, len(used) if rows else 0, note)


def _listed(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, Thing]]:
    """The parts that the lines of one host list, and what lists them."""
    for table in colon_tables(lines):
        yield from ((table.above[:80], thing) for thing in things_of(table, whatever=True))
    for table in tables_of(lines):
        source = _source_of(table)
        yield from ((source, thing) for thing in things_of(table))
    yield from parts_in(lines)
    yield from (("show interface", port) for port in ports_in(lines))
    yield from (("pbsnodes", node) for node in nodes_in(lines))


def _source_of(table: Table) -> str:
    """What a table is called: by its command, by what stands above it, or by its titles."""
    known = next((command for title, command in _COMMANDS.items() if title in table.titles), None)
    return known or table.above[:80] or " ".join(table.titles)[:80]
