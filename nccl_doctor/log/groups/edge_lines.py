"""Takes Channel lines apart in columns: two ranks as numbers, and a key of the text behind each.

    Channel 07/0 : 3[1b000] -> 12[1c000] [send] via NET/IB/0/GDRDMA

Of a large all-to-all each line names another pair of ranks, and all of them some thousand texts behind these.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import WORD, Flags, Keys, Numbers, Rows, mix

_U = np.uint64
_DIGITS = 9  # of a rank
_GPU = 40  # bytes between two ranks
_PRIME = _U(0x100000001B3)


class EdgeParts(NamedTuple):
    """What Channel lines say, one entry a line; `readable` is false where two ranks were not found."""

    readable: Flags
    src: Numbers
    dst: Numbers
    key: Keys  # of the texts behind the two ranks
    src_end: Numbers
    dst_start: Numbers
    dst_end: Numbers


def edge_parts(block: bytes, rows: Rows, start: Numbers, end: Numbers) -> EdgeParts:
    """The parts of texts such as `3[3] -> 4[4] via P2P/IPC` in a block."""
    text = np.frombuffer(block, np.uint8)
    src, src_end = _rank(text, start, end)
    key, at = np.zeros(len(start), _U), src_end
    for _ in range(_GPU):
        character = text.take(at, mode="clip")
        more = (character != ord(">")) & (at < end)
        if not more.any():
            break
        key = np.where(more, (key ^ character) * _PRIME, key)
        at = at + more
    key ^= text.take(at + 1, mode="clip")  # the blank behind `->`
    dst_start = at + len("> ")
    dst, dst_end = _rank(text, dst_start, end)
    readable = (src_end > start) & (dst_end > dst_start) & (end - dst_end >= WORD)
    readable &= (text[start] != ord("0")) | (src_end == start + 1)
    readable &= (text.take(dst_start, mode="clip") != ord("0")) | (dst_end == dst_start + 1)
    key[readable] = mix(key[readable], rows, dst_end[readable], end[readable])
    return EdgeParts(readable, src, dst, key, src_end, dst_start, dst_end)


def _rank(text: npt.NDArray[Any], start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers that begin there, and where they end."""
    value, at = np.zeros(len(start), np.int64), start
    for _ in range(_DIGITS):
        digit = text.take(at, mode="clip") - np.uint8(ord("0"))
        more = (digit < 10) & (at < end)
        if not more.any():
            break
        value = np.where(more, value * 10 + digit, value)
        at = at + more
    return value, at
