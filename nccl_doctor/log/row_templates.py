"""Rows of events that many ranks share: what one message gives is worked out once, and filled in for every rank as columns."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from nccl_doctor.log.line_patterns import Pattern
from nccl_doctor.log.rows import Context, rows


class Slot(NamedTuple):
    """A place in a row for what differs between the events of a message."""

    name: str


_SLOTS = {name: Slot(name) for name in ("host", "rank", "pid", "tid", "source", "n", "last_line", "stamp", "ref")}
_PER_LINE = "pytorch"  # patterns whose fields depend on the text before the message


class RowTemplate(NamedTuple):
    """A row of one table: values, and slots."""

    table: type
    values: tuple[Any, ...]

    def fill(self, columns: dict[str, Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
        """One row for each event."""
        return zip(*(columns[one.name] if type(one) is Slot else repeat(one) for one in self.values))  # noqa: B905


def row_templates(pattern: Pattern | None, level: str, text: str, fields: dict[str, Any]) -> list[RowTemplate] | None:
    """The rows of an event of a message; None where they depend on more than who wrote it and where."""
    if "rank" in fields or (pattern is not None and pattern.file == _PER_LINE):
        return None
    context = Context(level=level, text=text, **_SLOTS)  # type: ignore[arg-type]
    return [RowTemplate(type(row), tuple(row)) for row in rows(pattern, context, fields)]
