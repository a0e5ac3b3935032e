"""Finds the derivations of this package, orders them by what they declare, and runs them.

A module declares a derivation with `@derivation`; there is no list to maintain.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor import derive
from nccl_doctor.common.parse_cache import remembered
from nccl_doctor.derive.declaration import Derivation
from nccl_doctor.derive.settle import settle
from nccl_doctor.facts.schema import by_name, table_name
from nccl_doctor.facts.store import Facts


class DerivationProblem(Exception):
    """Declarations that contradict each other; the text names the derivations and the table."""


class Step(NamedTuple):
    """One derivation in its order, by names, so that its module is imported only where it runs."""

    module: str
    function: str
    fills: list[str]
    needs: list[str]
    as_printed: bool


def derive_all(facts: Facts) -> None:
    """Fill every derived table, and index all tables. Call once, after all sources.

    A derived table that is there already, as in the example of a rule, is left as it is.
    """
    given = facts.covered()
    facts.index()
    for step in steps():
        if step.as_printed:
            _run(step, facts, given)
    settle(facts)
    facts.index()
    for step in steps():
        if not step.as_printed:
            _run(step, facts, given)
    facts.index()


def _run(step: Step, facts: Facts, given: set[str]) -> None:
    to_fill = [table for table in step.fills if table not in given]
    if not to_fill or (step.needs and facts.covered().isdisjoint(step.needs)):
        return
    derivation: Derivation = getattr(importlib.import_module(step.module), step.function)
    rows = derivation(facts)
    if rows is not None:
        wanted = {by_name()[table] for table in to_fill}
        facts.add(row for row in rows if type(row) in wanted)
        facts.mark_covered(*to_fill)


@cache
def steps() -> tuple[Step, ...]:
    """All derivations in their order; kept between runs, and made anew when a module of the package changes."""
    files = sorted(Path(derive.__path__[0]).rglob("*.py"))
    return tuple(Step(*entry) for entry in remembered("derivations", files, _steps))


def _steps() -> list[Step]:
    return [
        Step(
            one.rows.__module__,
            one.rows.__name__,
            sorted(map(table_name, one.fills)),
            sorted(map(table_name, one.needs)),
            one.as_printed,
        )
        for one in ordered(discover())
    ]


@cache
def discover() -> tuple[Derivation, ...]:
    """All derivations that the modules of this package declare."""
    return tuple(dict.fromkeys(_declared()))


def _declared() -> Iterator[Derivation]:
    for module in pkgutil.walk_packages(derive.__path__, f"{derive.__name__}."):
        if module.name != __name__ and not module.ispkg:
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Derivation):
                    yield value


def ordered(derivations: Iterable[Derivation]) -> list[Derivation]:
    """These derivations, each after all that fill what it reads.

    Raises DerivationProblem for a cycle, a table that two derivations fill, a derived table that none fills, and a
    derivation that reads a table as printed although it is made from settled ones.
    """
    derivations = sorted(derivations, key=lambda one: one.name)
    filled_by: dict[type, Derivation] = {}
    for one in derivations:
        for table in one.fills:
            if table in filled_by:
                raise DerivationProblem(f"{filled_by[table].name} and {one.name} both fill {table_name(table)}")
            filled_by[table] = one
    graph: dict[Derivation, list[Derivation]] = {}  # lists by name: the order is the same in every process
    for one in derivations:
        before = {filled_by[table] for table in one.reads if _is_filled(one, table, filled_by)}
        graph[one] = sorted(before, key=lambda other: other.name)
        late = next((other.name for other in graph[one] if one.as_printed and not other.as_printed), None)
        if late is not None:
            raise DerivationProblem(f"{one.name} runs before names are settled and reads what {late} fills after it")
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycle: list[Any] = error.args[1]
        raise DerivationProblem("a cycle: " + " needs ".join(one.name for one in reversed(cycle))) from None


def _is_filled(one: Derivation, table: type, filled_by: dict[type, Derivation]) -> bool:
    if table in filled_by:
        return True
    if is_derived(table):
        raise DerivationProblem(f"{one.name} reads {table_name(table)}, which no derivation fills")
    return False


def is_derived(table: type) -> bool:
    """Whether a table is made from tables; sources fill the others."""
    return table.__module__.startswith("nccl_doctor.facts.tables.derived")
