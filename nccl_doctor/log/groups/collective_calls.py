"""Finds the parts of collective calls (`NCCL_DEBUG_SUBSYS=COLL`) in all lines of a block at once.

Source: NCCL src/enqueue.cc::

    AllReduce: opCount 1a sendbuff 0x7f00 recvbuff 0x7f80 count 1048576 datatype 7 op 0 root 0 comm 0x5c8f20 [nranks=16] stream 0x66
    Send: opCount 0 sendbuff 0x7f00 recvbuff (nil) count 4 datatype 0 op 0 root 1 comm 0x5c8f20 [nranks=3] stream 0x66
"""

from typing import NamedTuple

import numpy as np

from nccl_doctor.common.text_keys import WORD, Flags, Keys, Numbers, Rows, words_at

_U = np.uint64
_OP_COUNT, _SENDBUFF, _RECVBUFF, _COUNT = b": opCount ", b" sendbuff ", b" recvbuff ", b" count "
_SAMPLES, _SAMPLE = 8, 1 << 12  # of a block, and bytes of each
_SHORTEST, _FUNCTION = 3, 24  # characters of a function's name: at least so many, and less
_OP = 16  # there are fewer hexadecimal digits
_BUFFER = 20  # there are fewer characters in an address: `0x7f0012345678`, `(nil)`
_TAIL = 16  # characters that follow ` count ` at least
_LONGEST = 400  # characters of a message
_ONES, _HIGHEST, _COLONS, _BANGS = (_U(byte * 0x0101010101010101) for byte in (1, 0x80, ord(":"), ord("!")))
_BYTE = _U(0x0001020304050607)  # times 1 << 8n: n in the highest byte

_value_of = np.full(256, 255, np.uint8)  # of a hexadecimal digit
for _value, _digit in enumerate(b"0123456789abcdef"):
    _value_of[_digit] = _value


class Calls(NamedTuple):
    """Collective calls, one an entry. Places are offsets in the block."""

    which: Numbers  # of the lines that were asked about
    function_end: Numbers  # behind `AllReduce: opCount `
    op: Numbers  # opCount
    sizes: Numbers  # where `count 1048576 datatype …` begins


def find(block: bytes, rows: Rows, text: Numbers, end: Numbers) -> Calls | None:
    """The calls among the lines whose messages lie there; None where there is none. `rows` are those at each byte."""
    if not _has_calls(block):
        return None
    last = len(rows) - 1
    size = _first(words_at(rows, text), 0, _FUNCTION, _COLONS)
    which = np.flatnonzero((end - text <= _LONGEST) & (size >= _SHORTEST) & (size < _FUNCTION))
    function = (text + size)[which]
    words = words_at(rows, function)
    sound = _begins(words, _OP_COUNT)
    if not sound.all():
        which, function, words = which[sound], function[sound], words[sound]
    if not len(which):
        return None
    digits = _first(words, len(_OP_COUNT), len(_OP_COUNT) + _OP) - len(_OP_COUNT)
    op, sound = _hexadecimal(words, len(_OP_COUNT), digits)
    place = function + len(_OP_COUNT) + digits
    for before in (_SENDBUFF, _RECVBUFF):
        words = words_at(rows, np.minimum(place, last))
        size = _first(words, len(before), len(before) + _BUFFER)
        sound &= _begins(words, before) & (size > len(before)) & (size < len(before) + _BUFFER)
        place = place + size
    sound &= _begins(words_at(rows, np.minimum(place, last)), _COUNT) & (place + _TAIL < end[which])
    if not sound.any():
        return None
    return Calls(which[sound], (function + len(_OP_COUNT))[sound], op[sound], place[sound] + 1)


def _has_calls(block: bytes) -> bool:
    """Whether samples of a block hold a call; single calls among many other lines are read one by one."""
    step = max(len(block) // _SAMPLES, _SAMPLE)
    return any(block.find(_OP_COUNT, at, at + _SAMPLE) >= 0 for at in range(0, len(block), step))


def _begins(words: Keys, text: bytes) -> Flags:
    """Which rows begin with a text of up to two words."""
    begins = np.ones(len(words), bool)
    for column in range(-(-len(text) // WORD)):
        part = text[column * WORD :][:WORD]
        mask = _U((1 << 8 * len(part)) - 1)
        begins &= words[:, column] & mask == _U(int.from_bytes(part, "little"))
    return begins


def _first(words: Keys, begin: int, stop: int, wanted: np.uint64 | None = None) -> Numbers:
    """Where the first wanted character from `begin` to `stop` is in each row, else `stop`; by default a blank or control character.

    It may also be a `!` behind a blank that is before `begin`: the caller looks at what it found.
    """
    place = np.full(len(words), stop)
    left = None
    for column in range(begin // WORD, -(-stop // WORD)):
        word = words[:, column] if left is None else words[left, column]
        if wanted is None:
            hits = word - _BANGS
        else:
            word = word ^ wanted
            hits = word - _ONES
        hits &= ~word
        hits &= _HIGHEST
        if column * WORD < begin:
            hits &= ~_U((1 << 8 * (begin - column * WORD)) - 1)
        byte = ((hits & (~hits + _U(1))) >> _U(7)) * _BYTE >> _U(56)
        at = byte.view(np.int64) + column * WORD
        found = hits != 0
        if found.all():
            place = at if left is None else _put(place, left, at)
            break
        where = np.flatnonzero(found)
        place[where if left is None else left[where]] = at[where]
        left = np.flatnonzero(~found) if left is None else left[~found]
    clipped: Numbers = np.minimum(place, stop)
    return clipped


def _put(place: Numbers, which: Numbers, values: Numbers) -> Numbers:
    place[which] = values
    return place


def _hexadecimal(words: Keys, begin: int, sizes: Numbers) -> tuple[Numbers, Flags]:
    """The numbers of so many digits that begin there in each row, and which of them are numbers."""
    value, sound = np.zeros(len(words), np.int64), (sizes > 0) & (sizes < _OP)
    for number in range(min(int(sizes.max()), _OP - 1)):
        column, byte = divmod(begin + number, WORD)
        digit = _value_of[(words[:, column] >> _U(8 * byte) & _U(0xFF)).view(np.int64)]
        inside = number < sizes
        value = np.where(inside, value << 4 | digit, value)
        sound &= ~inside | (digit < len("0123456789abcdef"))
    return value, sound
