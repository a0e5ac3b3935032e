"""What TCP had to send again and what queues of interfaces dropped: `nstat`, `netstat -s`, `tc -s qdisc`."""

import re
from collections.abc import Callable

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_NSTAT = re.compile(r"TcpRetransSegs {1,30}(\d{1,18})\s{1,30}\d{1,9}\.\d")
_NETSTAT = re.compile(r"\s{1,12}(\d{1,18}) segments retrans?mitt?ed\s*$")
_QUEUE = re.compile(r"qdisc (\w{1,20}) [0-9a-f]{1,4}: (?:dev (\S{1,40}) )?(?:root|parent) ")
_DROPPED = re.compile(r"\s{1,4}Sent \d{1,20} bytes \d{1,20} pkt \(dropped (\d{1,18}), overlimits \d")
_HEADS = re.compile(rb"TcpRetransSegs |segments retransm|qdisc \w{1,20} [0-9a-f]{1,4}: ")
_MOST = 100_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the counter of each host, and of each queue.

    Source: nstat.c and tc_qdisc.c of iproute2 6, statistics.c of net-tools 2::

        TcpRetransSegs                  58100              0.0
            58100 segments retransmitted
        qdisc tbf 8002: dev eth1 root refcnt 3 rate 200Mbit burst 64Kb lat 0us
         Sent 97460779 bytes 80524 pkt (dropped 22735, overlimits 48860 requeues 0)
    """
    rows: list[LinkCounter] = []
    queues: dict[str | None, str] = {}
    used = 0

    def add(host: str | None, source: str, link: str, counter: str, value: str, number: int, text: str) -> None:
        if len(rows) < _MOST and int(value) < 1 << 63:
            ref = facts.evidence(name, number, text.strip())
            rows.append(LinkCounter(host, name, source, "ethernet", link, counter, int(value), ref))

    sections = Sections(stream, _HEADS, keep=3)
    for first, label, texts in sections.batches():
        for number, text in enumerate(texts, first):
            used += _take(text, number, label.host, queues, add)
    facts.add(rows)
    facts.mark_covered("link_counter")
    note = f"holds more than {_MOST:,} counters; the others were left out" if len(rows) >= _MOST else None
    return Reading(sections.lines, used, note)


def _take(text: str, number: int, host: str | None, queues: dict[str | None, str], add: Callable[..., None]) -> bool:
    """Use a line; whether it says something."""
    if "etrans" in text:
        if (found := _NSTAT.match(text)) is not None:
            add(host, "nstat", "TCP", "retransmitted_segments", found[1], number, text)
        elif (found := _NETSTAT.match(text)) is not None:
            add(host, "netstat", "TCP", "retransmitted_segments", found[1], number, text)
        return found is not None
    if text.startswith("qdisc ") and (queue := _QUEUE.match(text)) is not None:
        if host in queues or len(queues) < _MOST:
            queues[host] = f"{queue[2]} (qdisc {queue[1]})" if queue[2] else f"qdisc {queue[1]}"
        return True
    if "(dropped " in text and host in queues and (dropped := _DROPPED.match(text)) is not None:
        add(host, "tc", queues[host], "tx_dropped", dropped[1], number, text)
        return True
    return False
