"""Compares the words and examples of a rule with the columns that its query returns, without running the query."""

from collections.abc import Iterator

from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules.schema import Rule
from nccl_doctor.rules.templates import placeholders


def query_problems(rule: Rule, facts: Facts) -> Iterator[str]:
    """What is wrong with the query, its placeholders and the columns that examples expect. `facts` may be empty."""
    query = rule.query.rstrip().rstrip(";")
    try:
        columns, _ = facts.sql(f"SELECT * FROM (\n{query}\n) LIMIT 0", params=rule.params)
    except QueryProblem as problem:
        yield f"query: {problem}"
        return
    if not {"ref", "refs"}.intersection(columns):
        yield "query returns neither ref nor refs, the evidence"
    for key in ("message", "why", "fix"):
        for name in sorted(placeholders(getattr(rule, key)) - set(columns)):
            yield f"{key} names {{{name}}}, which is not a column of the query (columns: {', '.join(columns)})"
    for example in rule.example:
        for name in sorted({name for row in example.expect for name in row} - set(columns)):
            yield f"example {example.name!r} expects {name}, which is not a column of the query"
