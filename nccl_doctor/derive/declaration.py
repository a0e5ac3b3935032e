"""How a function that makes a table from other tables declares itself."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts

Rows = Iterable[Any] | None
"""Rows of the tables that a derivation fills; None where these facts do not raise its question."""


class Derivation(NamedTuple):
    """A function that makes tables from tables, and what it declares."""

    rows: Callable[[Facts], Rows]
    fills: frozenset[type]
    reads: frozenset[type]
    needs: frozenset[type]  # without one of these the question does not arise
    as_printed: bool  # reads tables as they were added, before `settle` resolves names

    @property
    def name(self) -> str:
        """Module and function, for messages."""
        return f"{self.rows.__module__}.{self.rows.__name__}"

    def __call__(self, facts: Facts) -> Rows:
        return self.rows(facts)


def derivation(
    *, fills: Iterable[type], reads: Iterable[type] = (), needs: Iterable[type] = (), as_printed: bool = False
) -> Callable[[Callable[[Facts], Rows]], Derivation]:
    """Declare that a function makes the rows of `fills` from `reads` and `needs`.

    The registry runs it after the derivations that fill what it reads. It does not run where a source covered none of
    `needs`; its tables then count as not covered, so that rules about them are skipped. It adds nothing itself.
    """

    def declare(rows: Callable[[Facts], Rows]) -> Derivation:
        needed = frozenset(needs)
        return Derivation(rows, frozenset(fills), needed | frozenset(reads), needed, as_printed)

    return declare
