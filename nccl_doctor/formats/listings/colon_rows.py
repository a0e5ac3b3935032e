"""What commands of IBM Storage Scale (GPFS) print with `-Y`: rows between colons, each kind with its titles.

mmlsdisk::HEADER:version:reserved:reserved:nsdName:status:availability:
mmlsdisk::0:1:::RG001VS003:ready:up:
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from nccl_doctor.formats.listings.titled import Table

HEADER = re.compile(r"(?P<command>mm[a-z]{2,20}|vdisk|nodeid)?:(?P<kind>\w{0,40}):HEADER:")
_FIXED = 6  # cells in front of those that have a meaning


def colon_tables(lines: Sequence[tuple[int, str]]) -> Iterator[Table]:
    """The tables in some lines, a kind of rows of a command each."""
    found: dict[tuple[str, str], Table] = {}
    for number, text in lines:
        cells = text.rstrip().split(":")
        if len(cells) <= _FIXED:
            continue
        key = cells[0], cells[1]
        if cells[2] == "HEADER":
            titles = tuple(cells[_FIXED:])
            if key not in found or found[key].titles != titles:
                found[key] = Table(" ".join(filter(None, key)), titles, [])
        elif (table := found.get(key)) is not None:
            told = tuple(unquote(cell) for cell in cells[_FIXED : _FIXED + len(table.titles)])
            table.rows.append((number, text, told + ("",) * (len(table.titles) - len(told))))
    yield from found.values()
