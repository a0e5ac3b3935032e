"""One word of each host: what `pdsh`, `clush` or `ansible` printed of a command that says no more than a number, a version or a word."""

import re
from collections import Counter

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostValue
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import lines

_MOST = 100_000  # hosts of one file
_WORDS = 20  # different ones of a host
_ROW = re.compile(r"([\w.-]{1,100}): {1,4}(\S{1,40})\s*$")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the words of every host; of several of one host each counts.

    Source: `pdsh -w node[01-08] 'ulimit -l'`, `clush -w node[01-08] 'nvidia-smi -L | wc -l'`::

        node01: unlimited
        node02: 64
    """
    words: dict[str, Counter[str]] = {}
    places: dict[str, tuple[int, str]] = {}
    number = used = 0
    for number, line in lines(stream):
        row = _ROW.match(line)
        if row is None:
            continue
        host, word = row.groups()
        if host not in words and len(words) >= _MOST:
            continue
        used += 1
        of_host = words.setdefault(host, Counter())
        places.setdefault(host, (number, line.strip()))
        if word in of_host or len(of_host) < _WORDS:
            of_host[word] += 1
    facts.add(
        HostValue(host, name, _said(of_host), facts.evidence(name, *places[host])) for host, of_host in words.items()
    )
    facts.mark_covered("host_value")
    return Reading(number, used)


def _said(words: Counter[str]) -> str:
    return ", ".join(f"{n} x {word}" if n > 1 else word for word, n in sorted(words.items()))
