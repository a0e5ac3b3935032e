"""The facts of one part of a file, such as what one of several hosts printed into it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nccl_doctor.facts.store import Facts


class PartFacts:
    """What readers ask of `Facts`, for a part of a file: evidence names lines of the file, rows without a host get that of the part."""

    def __init__(self, facts: Facts, file: str, host: str | None, source_line: Callable[[int], int]) -> None:
        self._facts = facts
        self._file = file
        self._host = host
        self._source_line = source_line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)

    def evidence(self, file: str, line: int, text: str) -> int:
        """As in `Facts`."""
        return self._facts.evidence(file, self._source_line(line) if file == self._file else line, text)

    def evidence_of(self, file: str, lines: Sequence[int], texts: Sequence[str]) -> Sequence[int]:
        """As in `Facts`."""
        return [self.evidence(file, line, text) for line, text in zip(lines, texts, strict=True)]

    def add(self, rows: Iterable[Any]) -> None:
        """As in `Facts`."""
        self._facts.add(map(self._placed, rows) if self._host is not None else rows)

    def _placed(self, row: Any) -> Any:
        return row._replace(host=self._host) if getattr(row, "host", self) is None else row
