"""Runs the examples of a rule: a log goes through the real parser, rows become facts; the answer must be as expected."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import engine, schema
from nccl_doctor.rules.query_check import query_problems
from nccl_doctor.rules.row_sources import Present


def problems(rule: schema.Rule) -> Iterator[str]:
    """What is wrong with the query and the words of a rule, and each example that it does not answer as it says."""
    if wrong := list(query_problems(rule, Facts())):
        yield from wrong
        return
    for example in rule.example:
        try:
            facts = facts_of(example)
        except ValueError as error:
            yield f"example {example.name!r}: {error}"
            continue
        answer = engine.ask(rule, facts, present=Present(facts))
        if answer.outcome == "broken":
            yield f"example {example.name!r}: {answer.reason}"
            continue
        found = [row.values for row in answer.rows]
        yield from (f"example {example.name!r}: {text}" for text in _differences(example.expect, found))


def facts_of(example: schema.Example) -> Facts:
    """The facts of an example. Raises ValueError where its rows name no table or column, or hold a value of another type."""
    if example.log:
        return analyze.read_text(example.log)
    facts = Facts()
    ref = facts.evidence("example", 1, example.name)
    for name, given in example.rows.items():
        table = by_name().get(name)
        if table is None:
            raise ValueError(f"there is no table {name}")
        facts.mark_covered(name)
        for row in given:
            columns = column_types(table)
            if unknown := set(row) - set(columns):
                raise ValueError(f"table {name} has no column {', '.join(sorted(unknown))}")
            if wrong := [column for column, value in row.items() if not _fits(value, columns[column])]:
                raise ValueError(f"{name}.{wrong[0]} holds {row[wrong[0]]!r}, not {columns[wrong[0]].__name__}")
            defaults = {"ref": ref, "n": 1}
            facts.add([table(**{column: row.get(column, defaults.get(column)) for column in columns})])
    derive_all(facts)
    return facts


def _fits(value: Any, type_: type) -> bool:
    return isinstance(value, (int, float) if type_ is float else (int, bool) if type_ is bool else type_)


def _differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[str]:
    left = list(found)
    for wanted in expected:
        hit = next((row for row in left if all(k in row and row[k] == v for k, v in wanted.items())), None)
        if hit is None:
            yield f"no row like {wanted}"
        else:
            left.remove(hit)
    for row in left:
        yield f"unexpected row {row}"
