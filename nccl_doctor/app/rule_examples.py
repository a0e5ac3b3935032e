"""Running the examples that stand in a rule file: the log goes through the real parser, the answer must be as expected."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.app import analyze
from nccl_doctor.derive.job import derive
from nccl_doctor.facts.store import Facts, by_name, column_types
from nccl_doctor.rules import engine, schema


def problems(rule: schema.Rule) -> Iterator[str]:
    """One sentence for each example that the rule does not answer as it says."""
    for example in rule.example:
        try:
            facts = facts_of(example)
        except (KeyError, ValueError) as error:
            yield f"example {example.name!r}: {error}"
            continue
        answer = engine.ask(rule, facts)
        if answer.outcome == "broken":
            yield f"example {example.name!r}: {answer.reason}"
            continue
        found = [row.values for row in answer.rows]
        yield from (f"example {example.name!r}: {text}" for text in _differences(example.expect, found))
        if example.log:
            unfilled = (row.message for row in answer.rows if "{" in row.message)
            yield from (f"example {example.name!r}: the message keeps a placeholder: {text}" for text in unfilled)


def facts_of(example: schema.Example) -> Facts:
    """The fact base of an example. Raises ValueError where its rows name a table or column that does not exist."""
    if example.log:
        return analyze.read_text(example.log)
    facts = Facts()
    ref = facts.evidence("example", 1, example.name)
    for name, given in example.rows.items():
        table = by_name().get(name)
        if table is None:
            raise ValueError(f"{name} is no table")
        facts.look(name)
        for row in given:
            columns = column_types(table)
            if unknown := set(row) - set(columns):
                raise ValueError(f"{', '.join(sorted(unknown))} is no column of {name}")
            defaults = {"ref": ref, "n": 1}
            facts.add([table(**{column: row.get(column, defaults.get(column)) for column in columns})])
    if "job" not in example.rows:
        derive(facts)
    return facts


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
