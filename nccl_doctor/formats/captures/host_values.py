"""What one command printed on many hosts, a short value a host: `pdsh -w node[01-16] nproc`, `clush -L`."""

import re
from collections import defaultdict

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostValue
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_LINE = re.compile(r"([A-Za-z][\w.-]{1,100}): (\S[^\n]{0,79})$")
_MOST = 100_000  # values of a file


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the values of each host; where a command prints several lines, each counts by its place.

    Source: pdsh, and `clush` without `-b`::

        node01: 64
        node02: 32
    """
    facts.mark_covered("host_value")
    lines: dict[str, int] = defaultdict(int)  # of each host so far
    last = used = 0
    for last, label, text in plain_lines(stream):
        found = _LINE.match(text) if label.host is None else None  # in front of a number it may be a counter
        host, value = (found[1], found[2]) if found is not None else (label.host, text)
        if host is None or not value.strip() or used >= _MOST:
            continue
        used += 1
        host, value = host.partition(".")[0], value.strip()[:80]
        lines[host] += 1
        facts.add([HostValue(host, name, lines[host], value, facts.evidence(name, last, f"{host}: {value}"))])
    note = f"holds more than {_MOST:,} values; the others were left out" if used >= _MOST else None
    return Reading(last, used, note)
