"""Numbers of 64-bit keys, found with numpy: each block of a large log has thousands of writers that were there before."""

from collections.abc import Callable, Sequence

import numpy as np

from nccl_doctor.common.text_keys import Keys, Numbers


class KnownKeys:
    """What keys stand for, as numbers."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, np.uint64)  # ascending
        self._numbers: Numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, keys: Keys) -> Numbers:
        """The numbers of keys that are all known."""
        return self._numbers[np.searchsorted(self._keys, keys)]

    def learn(self, keys: Keys, new: Callable[[Numbers], Sequence[int] | Numbers]) -> Numbers:
        """The numbers of keys, which ascend and are there once; `new` gives those of the keys at places that are not known yet."""
        at = np.searchsorted(self._keys, keys)
        known = self._keys.take(at, mode="clip") == keys if len(self._keys) else np.zeros(len(keys), bool)
        numbers = np.empty(len(keys), np.int64)
        numbers[known] = self._numbers[at[known]]
        places = np.flatnonzero(~known)
        if len(places):
            numbers[places] = new(places)
            self._keys = np.insert(self._keys, at[places], keys[places])
            self._numbers = np.insert(self._numbers, at[places], numbers[places])
        return numbers
