"""Lists of numbers as launchers write them: `0-3,7`."""

import re
from collections.abc import Iterable

LARGEST = 200_000  # a larger size is no number of ranks
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def ranges(numbers: Iterable[int]) -> str:
    """`2 5 6 7` -> `2,5-7`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def numbers_of(text: str) -> set[int]:
    """`2,5-7` -> `2 5 6 7`; empty where a range is larger than any job."""
    found: set[int] = set()
    for low, high in _PART.findall(text):
        last = int(high or low)
        if last > LARGEST:
            return set()
        found |= set(range(int(low), last + 1))
    return found


def without(size: int, came: Iterable[int]) -> str:
    """The numbers below `size` that did not come."""
    return ranges(set(range(size)) - set(came)) if 0 < size <= LARGEST else ""
