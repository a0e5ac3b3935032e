"""Clears the dates in front of lines, so that lines which differ in their time are equal.

2026-05-07T12:00:01.123456789Z node01:100:150 [0] NCCL INFO Connected all rings
[2026/05/07 12:00:01] node01:100:150 [0] NCCL INFO Connected all rings
"""

import re

import numpy as np

from nccl_doctor.common.text_keys import ROW, WORD, Flags, Keys, no_flags, rows_of, true_places, words_at

_U = np.uint64
_DATE = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d")
_DATES = 1 << 13  # bytes in which a block with dates has one
_DAY, _HOUR, _SECOND = (_U(int.from_bytes(part, "little")) for part in (b"0000-00-", b"00T00:00", b":00"))
_DATED = 32  # bytes of a date with a time, its fraction and what is behind it
_ZEROS, _BEYOND_9, _HIGHEST = (_U(byte * 0x0101010101010101) for byte in (ord("0"), 0x7F - 9, 0x80))
_ALL = _U((1 << 64) - 1)
_BYTE = _U(0xFF)


def has_dates(block: bytes) -> bool:
    """Whether the beginning of a block shows a date with a time."""
    return _DATE.search(block, 0, _DATES) is not None


def timeless(block: bytes) -> bytearray:
    """A block in which dates with a time, and their fractions of a second, have no digit but 0."""
    masked = bytearray(block)
    text = np.frombuffer(masked, np.uint8)
    flags = no_flags(len(block))
    colon = np.equal(text, ord(":"))
    np.logical_and(colon[: -len("00:")], colon[len("00:") :], out=flags[: len(block) - len("00:")])
    flags[len(block) - len("00:") :] = False
    at = true_places(flags) - len("0000-00-00T00")
    at = at[(at >= 0) & (at < len(block) - ROW)]
    columns = np.ascontiguousarray(words_at(rows_of(masked), at)[:, : _DATED // WORD].T)
    dated = _has_shape(columns[0], b"0000-00-") & _has_shape(columns[1], b"00T00:00") & _has_shape(columns[2], b":00")
    for place, characters in ((4, b"-/"), (7, b"-/"), (10, b"T _")):
        dated &= _is_one_of(columns[place // WORD] >> _U(place % WORD * 8) & _BYTE, characters)
    if not dated.all():
        at, columns = at[dated], columns[:, dated]
    _, _, seconds, behind = columns
    fraction = seconds >> _U(32) | behind << _U(32)  # eight digits; the ninth is behind them
    digits = _leading_digits(fraction)
    digits[~_is_one_of(seconds >> _U(24) & _BYTE, b".,")] = 0
    ninth = (digits == _ALL) & (_leading_digits(behind >> _U(32)) & _BYTE != 0)
    fraction = (fraction & ~digits) | (_ZEROS & digits)
    last = np.where(ninth, _U(ord("0")), behind >> _U(32) & _BYTE)
    words = np.empty((len(at), len(columns)), _U)
    words[:, 0], words[:, 1] = _DAY, _HOUR
    words[:, 2] = (seconds & _BYTE << _U(24)) | _SECOND | fraction << _U(32)
    words[:, 3] = (behind >> _U(40) << _U(40)) | last << _U(32) | fraction >> _U(32)
    first = np.frombuffer(masked, f"V{_DATED}", count=1)
    dates = np.lib.stride_tricks.as_strided(first, (len(masked) - _DATED + 1,), (1,))
    dates[at] = words.view(first.dtype).reshape(-1)
    return masked


def _leading_digits(words: Keys) -> Keys:
    """The bits of the bytes before the first one that is no digit."""
    values = words ^ _ZEROS
    others = ((values + _BEYOND_9) | values) & _HIGHEST
    return ((others & (~others + _U(1))) >> _U(7)) - _U(1)


def _is_one_of(text: Keys, characters: bytes) -> Flags:
    found: Flags = np.logical_or.reduce([text == character for character in characters])
    return found


def _has_shape(words: Keys, shape: bytes) -> Flags:
    """Which words have digits where the shape has; its other characters match any."""
    digits = _U(int.from_bytes(bytes(0xFF if chr(character).isdigit() else 0 for character in shape), "little"))
    values = (words ^ _ZEROS) & digits
    shaped: Flags = ((values + (_BEYOND_9 & digits)) | values) & _HIGHEST & digits == 0
    return shaped
