"""Ports of switches as `show interface` of Cisco NX-OS and IOS, Arista EOS and their like tells of them: a paragraph a port.

Ethernet1/7 is up, line protocol is up (connected)
  5 minutes input rate 12.4 Gbps (12.5% with framing overhead), 1320411 packets/sec
     0 input errors, 18 CRC, 0 alignment, 0 symbol, 0 input discards
"""

import re
from collections.abc import Iterator, Sequence

from nccl_doctor.formats.listings.meaning import Thing, parse_number

_HEAD = re.compile(
    r"(?P<name>[A-Z][A-Za-z-]{1,24}[\d/.:]{1,16}|mgmt\d) is (?P<state>[a-zA-Z][\w -]{1,40})(?P<why> \([^)\n]{1,60}\))?(?:,|\s*$)"
)
_RATE = re.compile(r"(?P<way>input|output) rate:? (?P<value>\d{1,15}(?:\.\d{1,4})?) ?(?P<unit>[kKMG]?bps|bits/sec)")
_COUNT = re.compile(
    r"(?P<n>\d{1,18}) (?P<what>(?:input|output) (?:errors?|discards?)|CRC(?:/FCS)?|symbol|lost carrier|output drops?)(?![\w/])"
)
_COUNTERS = {
    "input error": "rx_errors", "output error": "tx_errors", "input discard": "rx_discards", "output discard": "tx_discards",
    "CRC": "rx_crc_errors", "CRC/FCS": "rx_crc_errors", "symbol": "rx_symbol_errors", "lost carrier": "tx_carrier_errors",
    "output drop": "tx_dropped",
}  # fmt: skip
_BITS = {"": 1e-9, "b": 1e-9, "k": 1e-6, "m": 1e-3, "g": 1.0}  # of a unit, in Gbit/s


def ports_in(lines: Sequence[tuple[int, str]]) -> Iterator[Thing]:
    """The ports that some lines tell of, each with what its paragraph says, a thing a line."""
    name = ""
    for number, text in lines:
        if text[:1] not in " \t":
            head = _HEAD.match(text)
            name = head["name"] if head is not None else ""
            if head is not None:
                off = "admin" in f"{head['state']}{head['why'] or ''}".lower()
                yield Thing(number, text, name, True, () if off else (head["state"] + (head["why"] or ""),), (), ())
        elif name and (" rate" in text or "," in text):
            rates = tuple(
                (
                    f"{one['way']} rate",
                    value * _BITS["" if one["unit"] == "bits/sec" else one["unit"][0].lower()],
                    "Gbit/s",
                )
                for one in _RATE.finditer(text)
                if (value := parse_number(one["value"])) is not None
            )
            counted = tuple(
                (_COUNTERS[one["what"].removesuffix("s") if one["what"] != "CRC/FCS" else one["what"]], int(one["n"]))
                for one in _COUNT.finditer(text)
            )
            if rates or counted:
                yield Thing(number, text, name, True, (), rates, counted)
