"""Hashes many texts of a block at once, eight bytes a step: equal texts have equal keys, in every process."""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

WORD = 8  # bytes read at once
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio
SHORT = 64  # bytes of a text; longer ones are hashed apart, because all texts take as many steps as the longest


def words_of(block: bytes | bytearray) -> Keys:
    """The words that begin at each byte of a block; those of a bytearray can be changed."""
    first = np.frombuffer(block, "<u8", count=1)
    return np.lib.stride_tricks.as_strided(first, (len(block) - WORD + 1,), (1,))


def mix_texts(key: Keys, words: Keys, start: Numbers, end: Numbers, wanted: Flags) -> None:
    """Mix texts into the keys of the wanted lines; those of similar lengths together."""
    size, below = end - start, 0
    longest = size.max(initial=0)
    limit = SHORT
    while below < longest:
        which = np.flatnonzero(wanted & (size > below) & (size <= limit))
        if len(which) == len(key):
            key[:] = mix(key, words, start, end)
        elif len(which):
            key[which] = mix(key[which], words, start[which], end[which])
        below, limit = limit, 2 * limit


def mix(key: Keys, words: Keys, start: Numbers, end: Numbers) -> Keys:
    """Mix texts of at least a word into their keys, word by word; the last word may overlap the one before."""
    if not len(key):
        return key
    last, at, size = end - WORD, start, end - start
    shortest = size.min()
    for place in range(0, size.max(), WORD):
        mixed = words[at if place + WORD <= shortest else np.minimum(at, last)]
        mixed ^= key
        mixed *= MIX
        mixed ^= mixed >> np.uint64(32)
        key = mixed if place < shortest else np.where(at < end, mixed, key)
        at = at + WORD
    return key
