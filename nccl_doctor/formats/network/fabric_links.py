"""The links of an InfiniBand fabric as `iblinkinfo` and `ibnetdiscover`, also with `-p`, list them: how wide and fast each came up.

Of a link to a host the port of the host counts; a link between switches is named after the switch.
"""

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.captures import IbPort
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_NODE = re.compile(r"(CA|Switch|Router|RNIC): (?:0x[0-9a-f]{1,16} )?(\S.{0,120}?):\s*$")
_LINK = re.compile(
    r"\s{0,40}(?:0x[0-9a-f]{1,16}\s{1,20})?(?:\"\s{0,40}(?P<name>[^\"]{1,120})\"\s{1,20})?(?P<lid>\d{1,6})\s{1,20}(?P<port>\d{1,3})"
    r"\[[ \d]{0,6}\] ==\(\s{0,40}(?P<lanes>\d{1,2})X\s{1,20}(?P<speed>\d{1,3}(?:\.\d{1,6})?) Gbps"
    r"\s{1,20}(?P<state>[A-Z][a-z]{2,20})/\s{0,20}(?P<physical>[A-Z]\w{2,20})\)==>"
)
_PORTS = re.compile(
    r"(?P<kind>CA|SW|RT)\s{1,20}(?P<lid>\d{1,6})\s{1,20}(?P<port>\d{1,3}) 0x[0-9a-f]{1,16} (?P<lanes>\d{1,2})x (?P<speed>[A-Z]DR(?:10)?) - "
    r"(?P<peer>CA|SW|RT)\s{1,20}\d{1,6}\s{1,20}\d{1,3} 0x[0-9a-f]{1,16} \( '(?P<name>[^']{1,120})' - '"
)
_MAPPED = re.compile(
    r"(?P<kind>Switch|Ca|Rt)\s{1,20}\d{1,4}\s{1,20}\"[^\"]{1,60}\"\s{1,20}# \"(?P<name>[^\"]{1,120})\"(?:.{0,80} lid (?P<lid>\d{1,6}))?"
)
_MAPPED_LINK = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\([^)]{1,40}\))?\s{1,20}\"[^\"]{1,60}\"\[\d{1,3}\](?:\([^)]{1,40}\))?\s{1,20}#"
    r"(?: lid (?P<lid>\d{1,6}) lmc \d{1,2})? \"(?P<peer>[^\"]{1,120})\" lid \d{1,6} (?P<lanes>\d{1,2})x(?P<speed>[A-Z]DR(?:10)?)(?![\w])"
)
_NAMES = {
    2.5: "SDR",
    5.0: "DDR",
    10.0: "QDR",
    10.3125: "FDR10",
    14.0625: "FDR",
    25.78125: "EDR",
    53.125: "HDR",
    106.25: "NDR",
    212.5: "XDR",
}
_RATES = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}  # Gb/s of a lane
_SWITCH = re.compile(r"(?:[A-Z]{2}\d;)?([\w.-]{1,100})")
_CARD = re.compile(r"([\w.-]{1,100}) (?:([a-z][\w-]{1,30})|HCA-\d)")
_PEER = re.compile(r"[\"']([^\"']{1,120})[\"']")
_CARDS = 4  # a node with more ports is a switch
_MOST = 200_000  # links


class _Link(NamedTuple):
    """A port that is up."""

    node: str  # as the fabric describes it
    is_switch: bool
    lid: int
    port: int
    lanes: int
    speed: str | None
    rate: float
    state: str
    physical: str | None
    leads_on: bool  # from a switch to another one


class _Mapped(NamedTuple):
    """A node in the map that ibnetdiscover draws."""

    node: str
    is_switch: bool
    lid: int | None  # of a switch; a card has one a port


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every link that is up.

    Source: iblinkinfo.c and ibnetdiscover.c of infiniband-diags (rdma-core 44)::

        CA: node07 mlx5_0:
              0xec0d9a0300d10108     17    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>      20    3[  ] "MF0;leaf02:MSB7800/U1" ( )
        CA    17  1 0xec0d9a0300d10108 4x EDR - SW    20  3 0xec0d9a0300d1a002 ( 'node07 mlx5_0' - 'MF0;leaf02:MSB7800/U1' )
        Ca      1 "H-ec0d9a0300d10107"          # "node07 mlx5_0"
        [1](ec0d9a0300d10108)   "S-ec0d9a0300d1a002"[3]         # lid 17 lmc 0 "MF0;leaf02:MSB7800/U1" lid 20 4xEDR
    """
    links: dict[_Link, tuple[int, str]] = {}  # and the line that shows it first; all nodes of a fabric print the same
    lines = used = 0
    node, is_switch = "", False
    mapped: _Mapped | None = None  # the node of a map whose links follow
    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, text in enumerate(texts, first):
            if "==(" in text:
                link = _parse_link(_without_guid(text), node, is_switch)
                used += link is not None or "Down/" in text
            elif "DR - " in text or "DR10 - " in text:
                link = _parse_ports(text)
                used += link is not None
            elif '"' in text and (head := _parse_mapped(text)) is not None:
                link, mapped, used = None, head, used + 1
            elif mapped is not None and text.startswith("["):
                link = _parse_mapped_link(text, mapped)
                used += link is not None
            else:
                link = None
                if (listed := _parse_node(text)) is not None:
                    (node, is_switch), used = listed, used + 1
            if link is not None and link not in links and len(links) < _MOST:
                links[link] = number, text.strip()
    ports = Counter(node for node, _, _ in {(link.node, link.lid, link.port) for link in links})
    shown = [link for link in links if not (ports[link.node] > _CARDS or link.is_switch) or link.leads_on]
    places = [links[link] for link in shown]
    refs = facts.evidence_of(name, [number for number, _ in places], [text for _, text in places])
    facts.fill(IbPort, (_row(name, link, ref) for link, ref in zip(shown, refs, strict=True)))
    facts.mark_covered("ib_port")
    note = f"holds more than {_MOST:,} links; the others were left out" if len(links) >= _MOST else None
    return Reading(lines, used, note)


def _without_guid(text: str) -> str:
    """A line of a link without the GUID of a port, which differs on each."""
    guid, _, rest = text.lstrip().partition(" ")
    return rest if guid.startswith("0x") else text


@lru_cache(1 << 14)  # all nodes of a fabric print the same
def _parse_node(text: str) -> tuple[str, bool] | None:
    """The node whose links follow, and whether it is a switch; None for another line."""
    head = _NODE.match(text)
    return None if head is None else (head[2], head[1] == "Switch")


@lru_cache(1 << 14)
def _parse_link(text: str, node: str, is_switch: bool) -> _Link | None:
    found = _LINK.match(text)
    if found is None:
        return None
    name, lid, port, lanes, speed, state, physical = found.groups()
    known = _NAMES.get(float(speed))
    rate = int(lanes) * (_RATES[known] if known else float(speed))
    return _Link(
        (name or node).strip(), is_switch and not name, int(lid), int(port), int(lanes), known, rate, state, physical, _between(text)
    )  # fmt: skip


@lru_cache(1 << 14)
def _parse_ports(text: str) -> _Link | None:
    found = _PORTS.match(text)
    if found is None or found["speed"] not in _RATES:
        return None
    lanes = int(found["lanes"])
    return _Link(
        found["name"], found["kind"] != "CA", int(found["lid"]), int(found["port"]), lanes, found["speed"],
        lanes * _RATES[found["speed"]], "Active", None, _between(text),
    )  # fmt: skip


def _parse_mapped(text: str) -> _Mapped | None:
    found = _MAPPED.match(text)
    if found is None:
        return None
    return _Mapped(found["name"], found["kind"] != "Ca", int(found["lid"]) if found["lid"] else None)


def _parse_mapped_link(text: str, of: _Mapped) -> _Link | None:
    found = _MAPPED_LINK.match(text)
    if found is None or found["speed"] not in _RATES:
        return None
    lanes, lid = int(found["lanes"]), found["lid"] or of.lid or 0
    return _Link(
        of.node, of.is_switch, int(lid), int(found["port"]), lanes, found["speed"], lanes * _RATES[found["speed"]], "Active", None,
        _card(found["peer"]) is None,
    )  # fmt: skip


def _between(text: str) -> bool:
    """Whether a link of a switch leads to another switch."""
    peer = text.rpartition("==>" if "==>" in text else " - ")[2]
    name = _PEER.search(peer)
    return name is not None and _card(name[1]) is None


@lru_cache(1 << 12)  # a switch has many ports
def _card(node: str) -> tuple[str, str] | None:
    """Host and name of a card, as the fabric describes it; None for a switch."""
    card = _CARD.fullmatch(node)
    return None if card is None else (card[1], card[2] or "HCA")


def _row(file: str, link: _Link, ref: int) -> tuple[object, ...]:
    """A row of `ib_port`."""
    card = _card(link.node)
    switch = _SWITCH.match(link.node) if card is None else None
    host, device = card or (None, switch[1] if switch else link.node)
    return (
        host, file, device, link.port, link.state, link.physical, link.rate, "InfiniBand", link.lanes, link.speed, link.lid,
        None, None, None, ref,
    )  # fmt: skip
