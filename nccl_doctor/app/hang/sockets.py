"""TCP connections of a process with data that the other end does not acknowledge (/proc/PID/net/tcp, proc_net_tcp).

A line holds addresses and queues in hexadecimal; timer 1 is the retransmission timer, the field behind it counts retransmissions::

    0: 0100007F:7148 0100007F:A1B2 01 00010000:00000000 01:00000064 00000006 1000 0 48211 2 ...
"""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_RETRANSMITS = "01"  # timer
_CONNECTS = "02"  # state SYN_SENT
_MOST = 20_000  # lines of one table


class Stuck(NamedTuple):
    """A connection that retransmits."""

    local: str
    peer: str
    queued: int  # bytes; 0 where the connection is not made yet
    retransmits: int


def stuck(pid: int, proc: Path = Path("/proc")) -> list[Stuck]:
    """Returns the connections of a process whose data is retransmitted, the worst first; empty if they cannot be read."""
    inodes = _inodes(proc / str(pid) / "fd")
    found = [
        connection
        for name in ("tcp", "tcp6")
        for inode, connection in _read_table(proc / str(pid) / "net" / name)
        if inode in inodes
    ]
    return sorted(found, key=lambda one: (-one.retransmits, -one.queued))


def _inodes(folder: Path) -> set[str]:
    found = set()
    try:
        for entry in folder.iterdir():
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found


def _read_table(file: Path) -> Iterator[tuple[str, Stuck]]:
    try:
        lines = file.read_text("ascii", "replace").split("\n")[1:_MOST]
    except OSError:
        return
    for line in lines:
        if parsed := parse_line(line):
            yield parsed


def parse_line(line: str) -> tuple[str, Stuck] | None:
    """Returns inode and connection of a line whose data is retransmitted; None for others."""
    fields = line.split()
    if len(fields) < 10 or not fields[5].startswith(_RETRANSMITS):
        return None
    try:
        connects = fields[3] == _CONNECTS
        queued, retransmits = 0 if connects else int(fields[4].partition(":")[0], 16), int(fields[6], 16)
        if not retransmits or not (queued or connects):
            return None
        return fields[9], Stuck(_address(fields[1]), _address(fields[2]), queued, retransmits)
    except ValueError:
        return None


def _address(text: str) -> str:
    """`0100007F:7148` as `127.0.0.1:29000`: words of four bytes in the order of the machine, which is little-endian."""
    words, _, port = text.partition(":")
    packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{int(port, 16)}"
