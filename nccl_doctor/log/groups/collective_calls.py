"""Finds the parts of collective calls (`NCCL_DEBUG_SUBSYS=COLL`) in all lines of a block at once.

Source: NCCL src/enqueue.cc::

    AllReduce: opCount 1a sendbuff 0x7f00 recvbuff 0x7f80 count 1048576 datatype 7 op 0 root 0 comm 0x5c8f20 [nranks=16] stream 0x66
    Send: opCount 0 sendbuff 0x7f00 recvbuff (nil) count 4 datatype 0 op 0 root 1 comm 0x5c8f20 [nranks=3] stream 0x66
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import WORD, Flags, Keys, Numbers

_TOKEN = b": opCount "
_SAMPLES, _SAMPLE = 8, 1 << 12  # of a block, and bytes of each
_OP_COUNT, _SENDBUFF, _RECVBUFF, _COUNT = (
    np.uint64(int.from_bytes(part, "little")) for part in (b": opCoun", b" sendbuf", b" recvbuf", b" count \0")
)
_SEVEN = np.uint64((1 << 56) - 1)  # bytes of a word
_BANGS, _HIGHEST = (np.uint64(byte * 0x0101010101010101) for byte in (ord("!"), 0x80))
_NONE = np.uint64(0)
_EIGHT = np.uint64((1 << 64) - 1)
_FUNCTION = (9, 13, 4, 6, 8, *sorted({*range(3, 24)} - {9, 13, 4, 6, 8}))  # characters of its name, frequent ones first
_OP = range(1, 16)  # hexadecimal digits
_BUFFER = (14, 5, *sorted({*range(1, 20)} - {14, 5}))  # characters of an address: `0x7f0012345678`, `(nil)`
_TAIL = 16  # characters that follow ` count ` at least
_LONGEST = 400  # characters of a message

_value_of = np.full(256, 255, np.uint8)  # of a hexadecimal digit
for _value, _digit in enumerate(b"0123456789abcdef"):
    _value_of[_digit] = _value


class Calls(NamedTuple):
    """Collective calls, one an entry. Places are offsets in the block."""

    which: Numbers  # of the lines that were asked about
    function_end: Numbers  # behind `AllReduce: opCount `
    op: Numbers  # opCount
    sizes: Numbers  # where `count 1048576 datatype …` begins


def find(block: bytes, words: Keys, text: Numbers, end: Numbers) -> Calls | None:
    """The calls among the lines whose messages lie there; None where there is none. `words` are those at each byte."""
    if not _has_calls(block):
        return None
    which = np.flatnonzero(end - text <= _LONGEST)
    part, function = _next(words, text[which], _FUNCTION, _OP_COUNT, _EIGHT)
    if not len(part):
        return None
    which, function = which[part], function + len(": opCount ")
    part, op = _next(words, function, _OP, _SENDBUFF, _EIGHT)
    which, function = which[part], function[part]
    part, sent = _next(words, op + len(" sendbuff "), _BUFFER, _RECVBUFF, _EIGHT)
    which, function, op = which[part], function[part], op[part]
    part, received = _next(words, sent + len(" recvbuff "), _BUFFER, _COUNT, _SEVEN)
    which, function, op, sent = which[part], function[part], op[part], sent[part]
    text_bytes = np.frombuffer(block, np.uint8)
    digits = _value_of[_characters(text_bytes, function, op, ord("0"))]
    sound = (digits < len("0123456789abcdef")).all(axis=1) & (received + _TAIL < end[which])
    for start, stop in ((op + len(" sendbuff "), sent), (sent + len(" recvbuff "), received)):
        sound &= _is_one_word(words, text_bytes, start, stop)
    if not sound.any():
        return None
    return Calls(which[sound], function[sound], _values(digits, op - function)[sound], received[sound] + 1)


def _has_calls(block: bytes) -> bool:
    """Whether samples of a block hold a call; single calls among many other lines are read one by one."""
    step = max(len(block) // _SAMPLES, _SAMPLE)
    return any(block.find(_TOKEN, at, at + _SAMPLE) >= 0 for at in range(0, len(block), step))


def _is_one_word(words: Keys, text: npt.NDArray[np.uint8], start: Numbers, stop: Numbers) -> Flags:
    """Whether no part holds a blank or a control character."""
    size = stop - start
    if len(size) and WORD <= size.min() and size.max() <= 2 * WORD:  # as addresses are
        sound = (_below_blank(words[start]) | _below_blank(words[stop - WORD])) == _NONE
    else:
        sound = (_characters(text, start, stop, ord("x")) > ord(" ")).all(axis=1)
    return np.asarray(sound, bool)


def _below_blank(word: Keys) -> Keys:
    """The words with the highest bit of bytes set that are blanks or control characters; other bits may be wrong where any is set."""
    return (word - _BANGS) & ~word & _HIGHEST


def _next(
    words: Keys, start: Numbers, lengths: Sequence[int], wanted: np.uint64, mask: np.uint64
) -> tuple[Numbers, Numbers]:
    """Which of these have the wanted word behind one of so many characters, the first that fits, and where it begins."""
    left, last = np.arange(len(start)), len(words) - 1
    found = [left[:0]]
    place = start.copy()
    for length in lengths:
        if not len(left):
            break
        at = start[left] + length
        there = words[np.minimum(at, last)] & mask == wanted
        if there.any():
            place[left[there]] = at[there]
            found.append(left[there])
            left = left[~there]
    part = np.sort(np.concatenate(found))
    return part, place[part]


def _characters(text: npt.NDArray[np.uint8], start: Numbers, stop: Numbers, filler: int) -> npt.NDArray[np.uint8]:
    """The characters of each part as a row, filled up."""
    columns = np.arange((stop - start).max(initial=0))
    characters = text[np.minimum(start[:, None] + columns, len(text) - 1)]
    characters[columns >= (stop - start)[:, None]] = filler
    return characters


def _values(digits: npt.NDArray[np.uint8], sizes: Numbers) -> Numbers:
    """The numbers of rows of digits, of which so many count."""
    value = np.zeros(len(digits), np.int64)
    for column in range(digits.shape[1]):
        value = np.where(column < sizes, value << 4 | digits[:, column], value)
    return value
