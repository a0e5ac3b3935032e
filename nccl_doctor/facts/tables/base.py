"""Inputs and the evidence that every other table points to."""

from collections.abc import Callable
from typing import TypeVar

from nccl_doctor.common.named_tuples import NamedTuple

T = TypeVar("T")


def joined_by(*columns: str) -> Callable[[type[T]], type[T]]:
    """Columns by which queries join a table, beside those that are the same in all tables (`facts.schema.JOINED`).

    Of the latter, those that begin with one of these columns are left out.
    """

    def declare(table: type[T]) -> type[T]:
        table.joined_by = columns  # type: ignore[attr-defined]
        return table

    return declare


class Evidence(NamedTuple):
    """One place in an input that proves a fact."""

    id: int  # what `ref` columns point to
    file: str
    line: int  # counted from 1
    text: str  # the line without launcher prefix or control characters


class Input(NamedTuple):
    """One file that was read."""

    path: str
    kind: str  # nccl-log, job-log, facts, …
    bytes: int
    lines: int
    nccl_lines: int  # lines that NCCL, RCCL or a network plug-in wrote
    understood: int  # of those, how many a pattern knows; without NCCL lines: lines or records that a reader could use
    note: str | None  # why reading stopped early, if it did
