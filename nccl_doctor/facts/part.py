"""The facts of one part of a file, such as what one of several hosts printed into it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nccl_doctor.facts.store import Facts

_MANY = 10_000  # rows


class PartFacts:
    """What readers ask of `Facts`, for a part of a file: evidence names lines of the file, rows without a host get that of the part.

    Rows wait in a list that all parts share until there are many, or something else is asked: a capture of a thousand nodes has
    few rows of each table a part.
    """

    def __init__(
        self, facts: Facts, file: str, host: str | None, source_line: Callable[[int], int], waiting: list[Any]
    ) -> None:
        self._facts = facts
        self._file = file
        self._host = host
        self._source_line = source_line
        self._waiting = waiting

    def __getattr__(self, name: str) -> Any:
        self.flush()
        return getattr(self._facts, name)

    def flush(self) -> None:
        """Add the rows that wait."""
        rows = self._waiting[:]
        self._waiting.clear()
        self._facts.add(rows)

    def mark_covered(self, *names: str) -> None:
        """As in `Facts`."""
        self._facts.mark_covered(*names)

    def evidence(self, file: str, line: int, text: str) -> int:
        """As in `Facts`."""
        return self._facts.evidence(file, self._source_line(line) if file == self._file else line, text)

    def evidence_of(self, file: str, lines: Sequence[int], texts: Sequence[str]) -> Sequence[int]:
        """As in `Facts`."""
        return [self.evidence(file, line, text) for line, text in zip(lines, texts, strict=True)]

    def add(self, rows: Iterable[Any]) -> None:
        """As in `Facts`."""
        self._waiting += map(self._placed, rows) if self._host is not None else rows
        if len(self._waiting) >= _MANY:
            self.flush()

    def _placed(self, row: Any) -> Any:
        return row._replace(host=self._host) if getattr(row, "host", self) is None else row
