"""The formats of all families: recognises a file by how it begins, a table inside a log by its literals, and calls the reader.

Formats are found by listing the folders beside this module; see `declaration` for what a folder declares.
"""

import importlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Format, Reader, Reading
from nccl_doctor.inputs.streams import Readable


def _declared() -> dict[Format, str]:
    """Every declared format and the package of its family."""
    families = sorted(entry.parent.name for entry in Path(__file__).parent.glob("*/__init__.py"))
    packages = [importlib.import_module(f"nccl_doctor.formats.{family}") for family in families]
    return {known: package.__name__ for package in packages for known in package.FORMATS}


def ordered(formats: Iterable[Format]) -> tuple[Format, ...]:
    """The formats by name, each behind those that it is declared to come after.

    Raises ValueError where a name in `after` is unknown or the declarations form a cycle.
    """
    waiting = sorted(formats, key=lambda known: known.kind)
    done: list[Format] = []
    while waiting:
        placed = {known.kind for known in done}
        ready = next((known for known in waiting if placed.issuperset(known.after)), None)
        if ready is None:
            raise ValueError(f"formats wait for each other: {', '.join(known.kind for known in waiting)}")
        waiting.remove(ready)
        done.append(ready)
    return tuple(done)


_PACKAGES = _declared()
FORMATS: Sequence[Format] = ordered(_PACKAGES)  # in the order in which they are tried


def recognise(head: bytes) -> Format | None:
    """The format of a file that starts with these bytes; None for a log."""
    return next((known for known in FORMATS if known.begins is not None and known.begins.search(head)), None)


def is_known(head: bytes) -> bool:
    """Whether some reader other than that of logs takes a file that starts with these bytes."""
    return recognise(head) is not None


def within(seen: Iterable[bytes]) -> list[Format]:
    """The formats of which a literal is among those seen in a log."""
    literals = set(seen)
    return [known for known in FORMATS if literals.intersection(known.inside)]


def read_file(known: Format, stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file with the reader of its format; an error ends this file, not the analysis, and the note names it.

    A ValueError is a value that the reader cannot use, such as a number of thousands of digits. A TypeError or LookupError is
    a mistake in the reader, and the note says so. With NCCL_DOCTOR_DEBUG set errors are raised.
    """
    reader: Reader = importlib.import_module(f"{_PACKAGES[known]}.{known.module}")
    try:
        return reader.read_format(stream, name, facts)
    except (ValueError, ArithmeticError, TypeError, LookupError) as error:
        if os.environ.get("NCCL_DOCTOR_DEBUG"):
            raise
        own = isinstance(error, TypeError | LookupError)
        what = (
            f"a bug in our reader of {known.kind} ended the reading" if own else f"read only in part, as {known.kind}"
        )
        return Reading(0, 0, f"{what}: {type(error).__name__}: {error}".split("\n")[0][:200])
