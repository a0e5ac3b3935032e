"""Hashes many texts of a block at once, eight bytes a step: equal texts have equal keys, in every process.

The bytes of a text are fetched 64 at a time: numpy takes as long to fetch eight bytes that are not aligned.
"""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

WORD = 8  # bytes mixed at once
ROW = 64  # bytes fetched at once
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio
_PLACE = np.uint64(0x0001020304050607)  # times 1 << 8n: n in the highest byte
_masks = np.tril(np.full((ROW + 1, ROW), 0xFF, np.uint8), -1).view("<u8")  # so many bytes of a row


def rows_of(block: bytes | bytearray) -> Rows:
    """The rows that begin at each byte of a block, which goes on for a row behind the last text."""
    first = np.frombuffer(block, f"V{ROW}", count=1)
    return np.lib.stride_tricks.as_strided(first, (len(block) - ROW + 1,), (1,))


def words_at(rows: Rows, place: Numbers) -> Keys:
    """The words of the rows that begin there, one row each."""
    return rows[place].view("<u8").reshape(len(place), ROW // WORD)


def mix(key: Keys, rows: Rows, start: Numbers, end: Numbers, words: Keys | None = None) -> Keys:
    """Mix texts into their keys. `words` are those at their beginnings, where they are known; they are changed."""
    if not len(key):
        return key
    size = end - start
    key = _mix_row(key, words_at(rows, start) if words is None else words, size)
    for place in range(ROW, int(size.max()), ROW):
        longer = np.flatnonzero(size > place)
        if len(longer) == len(key):
            key = _mix_row(key, words_at(rows, start + place), size - place)
        else:
            key[longer] = _mix_row(key[longer], words_at(rows, start[longer] + place), size[longer] - place)
    return key


def _mix_row(key: Keys, words: Keys, size: Numbers) -> Keys:
    """Mix the words of a row into each key, those of the first `size` bytes."""
    if (size & (WORD - 1)).any():
        words &= _masks.take(size, axis=0, mode="clip")
    shortest = size.min()
    for column in range(-(-min(int(size.max()), ROW) // WORD)):
        mixed = words[:, column] ^ key
        mixed *= MIX
        mixed ^= mixed >> np.uint64(32)
        key = mixed if column * WORD < shortest else np.where(column * WORD < size, mixed, key)
    return key


def no_flags(size: int) -> Flags:
    """Flags for `true_places`, of which the last is false and those before it are not set yet."""
    flags = np.empty(-(-size // WORD) * WORD, bool)
    flags[size - 1 :] = False
    return flags


def true_places(flags: Flags) -> Numbers:
    """The places of flags that are true, of which few are; in half the time that numpy takes to ask each."""
    words = flags.view(np.uint64)
    full = np.flatnonzero(words != 0)
    found = words[full]
    if (found & (found - np.uint64(1))).any():  # two in one word
        return np.flatnonzero(flags)
    at: Numbers = full * WORD + (found * _PLACE >> np.uint64(56)).view(np.int64)
    return at
