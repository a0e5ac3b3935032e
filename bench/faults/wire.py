"""A wire between two network namespaces that delays and loses packets: what `tc netem` does, without its kernel module.

A TUN device of each namespace (Documentation/networking/tuntap.rst) ends in this process, which passes the packets on. The file
WIRE says how: `delay 0.1`, `loss 0.1`, `only 29500` (drop TCP to and from other ports), or nothing.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import time
from collections.abc import Callable
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
LOOK = 0.05  # seconds between two looks at the file
_TCP = 6


def open_tun(pid: int, name: str = "tun0") -> int:
    """Make a TUN device in the network namespace of a process and return its descriptor; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/proc/{pid}/ns/net") as theirs:  # noqa: PTH123
        try:
            if libc.setns(theirs.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns to the network of process {pid}")
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        finally:
            libc.setns(own.fileno(), 0)
    return tun


def passes(packet: bytes, words: list[str]) -> bool:
    """Returns whether a packet arrives."""
    if words[:1] == ["loss"]:
        return random.random() >= float(words[1])
    if words[:1] == ["only"] and packet[0] >> 4 == 4 and packet[9] == _TCP:
        start = (packet[0] & 15) * 4
        return int(words[1]) in struct.unpack_from("!HH", packet, start)
    return True


def carry(first: int, second: int, wire: Path, goes_on: Callable[[], bool]) -> None:
    """Pass packets on until `goes_on` is false."""
    words: list[str] = []
    looked = 0.0
    late: list[tuple[float, int, int, bytes]] = []  # due, number, to, packet
    number = 0
    with selectors.DefaultSelector() as selector:
        selector.register(first, selectors.EVENT_READ, second)
        selector.register(second, selectors.EVENT_READ, first)
        while goes_on():
            now = time.monotonic()
            if now - looked >= LOOK:
                words, looked = wire.read_text().split() if wire.exists() else [], now
            while late and late[0][0] <= now:
                _, _, to, packet = heapq.heappop(late)
                _write(to, packet)
            for key, _ in selector.select(min(max(late[0][0] - now, 0.0), LOOK) if late else LOOK):
                packet = os.read(key.fd, 1 << 16)
                if not passes(packet, words):
                    continue
                if words[:1] == ["delay"]:
                    number += 1
                    heapq.heappush(late, (now + float(words[1]), number, key.data, packet))
                else:
                    _write(key.data, packet)


def _write(to: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # the other end is down, or its queue is full
        os.write(to, packet)
