"""The `ref` column of a row: a `Seen` in a collector, a number in the fact base."""

from typing import NamedTuple


class Seen(NamedTuple):
    """Where a collector read a row: a file or a command of the node, and what it showed."""

    path: str
    text: str
    line: int = 1


Ref = int | Seen
"""The id of an `Evidence` row; a `Seen` while the row is on its way from a collector to the fact base."""
