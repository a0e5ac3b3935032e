"""Error counters as `ip -s -j link` and `rdma -j statistic` print them in JSON; `counters` reads the text of the same commands."""

import json
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.network.counter_names import INTERFACE, RDMA
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import line_numbers, read_head

_LARGEST = 32 << 20
_VIRTUAL = re.compile(r"lo$|veth|cali|docker|br-|virbr|flannel|cni|tunl|ifb|dummy")
_NEXT = re.compile(r"[\s,\[]{0,40}(?=\{)")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the interfaces or ports of a file.

    Source: ip/ipaddress.c of iproute2 4.13 and newer; `stats64`, `stats` of old kernels; rdma/stat.c::

        [{"ifname":"mlx5_0","port":1,"out_of_sequence":12,"packet_seq_err":0}]
        [{"ifname":"eth0","stats64":{"rx":{"errors":0,"dropped":12},"tx":{"errors":0,"carrier_errors":3}}}]
    """
    text = read_head(stream, _LARGEST).decode("utf-8", "replace").removeprefix("\ufeff")
    decoder, at, used, note = json.JSONDecoder(), 0, 0, None
    line_of = line_numbers(text)
    while match := _NEXT.match(text, at):
        start = match.end()
        try:
            interface, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            note = f"ends in the middle of the interface that starts in line {line_of(start)}"
            break
        rows = list(_counters(interface, name, facts, line_of(start)))
        used += len(rows)
        facts.add(rows)
    facts.mark_covered("link_counter")
    return Reading(text.count("\n") + 1, used, note)


def _counters(interface: Any, name: str, facts: Facts, line: int) -> Iterator[LinkCounter]:
    device = interface.get("ifname") if isinstance(interface, dict) else None
    if not isinstance(device, str) or _VIRTUAL.match(device):
        return
    if type(port := interface.get("port")) is int:
        yield from _of_port(f"{device[:64]}/{port}", interface, name, facts, line)
        return
    stats = interface.get("stats64") or interface.get("stats")
    for way in ("rx", "tx"):
        counted = stats.get(way) if isinstance(stats, dict) else None
        for title, value in counted.items() if isinstance(counted, dict) else ():
            counter = INTERFACE.get(f"{way} {title.removesuffix('_errors')}")
            if counter is not None and type(value) is int and 0 <= value < 1 << 63:
                ref = facts.evidence(name, line, json.dumps(interface)[:600])
                yield LinkCounter(None, name, "ip", "ethernet", device[:64], counter, value, ref)


def _of_port(link: str, counted: dict[str, Any], name: str, facts: Facts, line: int) -> Iterator[LinkCounter]:
    for title, value in counted.items():
        if (counter := RDMA.get(title)) is not None and type(value) is int and 0 <= value < 1 << 63:
            ref = facts.evidence(name, line, f"{link}: {title} {value}")
            yield LinkCounter(None, name, "rdma", "ib", link, counter, value, ref)
