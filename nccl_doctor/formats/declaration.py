"""How a format declares itself: its kind, how its files begin, and which tables its reader fills.

Every family, a folder of this package, lists its formats as `FORMATS` in its `__init__`. That module must import nothing
heavy: all of them are imported to recognise one file, a reader only when one of its files is there.
"""

import re
from typing import NamedTuple, Protocol

from nccl_doctor.facts.store import Facts
from nccl_doctor.inputs.streams import Readable


class Reading(NamedTuple):
    """The result of reading one file."""

    lines: int
    understood: int  # lines or records that it could use
    note: str | None = None  # where and why it stopped early


class Format(NamedTuple):
    """The declaration of one format."""

    kind: str  # its name in reports and in docs/formats.md
    module: str  # in the folder of its family; has a function `read_format`
    tables: tuple[str, ...]  # filled by the reader, and by derivations that only read those
    begins: re.Pattern[bytes] | None = None  # searched in the first 64 kB; anchored, with bounded repetitions
    inside: tuple[bytes, ...] = ()  # literals, one of which every log contains that holds this format
    reach: int | None = (
        None  # bytes behind such a literal within which what it announces ends; None: the reader finds its sections
    )
    heading: re.Pattern[bytes] | None = (
        None  # the first line of a section of it inside a log, for a reader that does not look for its sections itself
    )
    leads: bool = False  # batch scripts print it in front of what their job prints
    quotes: bool = False  # with `leads`: indented or in cells it may hold lines of jobs itself
    last: bool = False  # tried on text that no other reader could use; with `inside` on logs without known step lines
    logged: bool = (
        False  # inside a log its lines also hold messages that the log engine knows, so that it is read as one
    )
    after: tuple[str, ...] = ()  # kinds to try before this one, because a file or log can look like both


class Reader(Protocol):
    """The module of a format."""

    def read_format(self, stream: Readable, name: str, facts: Facts) -> Reading:
        """Read one file to its end and add its rows; `name` is what evidence calls the file."""
