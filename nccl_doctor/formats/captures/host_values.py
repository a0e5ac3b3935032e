"""What one command printed on many hosts, a short value a host: `pdsh -w node[01-16] nproc`, `clush -L`, `clush -b`, `dshbak -c`."""

import re
from collections import defaultdict

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostValue
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_LINE = re.compile(r"(?P<host>(?P<stem>[A-Za-z][A-Za-z_-]{0,60})\d[\w.-]{0,60}): (?P<value>\S[^\n]{0,79})$")
_MOST = 100_000  # values of a file
_LONGEST = 80  # characters of a value
_LINES = 20  # of a host; what prints more is no short value
_SHARE = 0.1  # of the lines that may be of no host: messages of the launcher


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the values of each host; where a command prints several lines, each counts by its place.

    Source: pdsh, and `clush` without `-b`; with it, or through `dshbak`, the names come as headings::

        node01: 64                          ---------------
        node02: 32                          node[01,03-04] (3)
                                            ---------------
                                            64
    """
    facts.mark_covered("host_value")
    values: list[tuple[str, int, str, int]] = []  # host, its line, value, number of the line
    lines: dict[str, int] = defaultdict(int)  # of each host so far
    stem: str | None = None
    last = others = 0
    full = False
    for last, label, text in plain_lines(stream):
        host, value = label.host, text.strip()
        if host is None and (found := _LINE.match(text)) is not None:  # in front of a number it may be a counter
            stem = stem or found["stem"]
            host, value = (found["host"], found["value"]) if found["stem"] == stem else (None, value)
        if not value:
            continue
        if host is None:
            others += 1
            if others > _SHARE * _MOST:
                break
            continue
        full = len(values) >= _MOST
        if full:
            break
        host = host.partition(".")[0]
        lines[host] += 1
        if lines[host] > _LINES:
            break
        values.append((host, lines[host], value[:_LONGEST], last))
    if len(lines) < 2 or others > _SHARE * len(values) or max(lines.values()) > _LINES:
        return Reading(last, 0)
    facts.add(
        HostValue(host, name, position, value, facts.evidence(name, number, f"{host}: {value}"))
        for host, position, value, number in values
    )
    return Reading(last, len(values), f"holds more than {_MOST:,} values; the others were left out" if full else None)
