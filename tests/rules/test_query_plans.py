"""No rule scans one growing table once for each row of another: SQLite's plan of each query is read; no clock decides."""

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from nccl_doctor.facts import views
from nccl_doctor.facts.schema import by_name, index_statements
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import loader

ONE_ROW = {"job", "job_end", "rdma_state"}
TABLES = {*by_name(), *(view.name for view in views.VIEWS)} - ONE_ROW
WORDS = "ON|WHERE|USING|GROUP|LEFT|JOIN|CROSS|ORDER|UNION|LIMIT|NATURAL|INNER|EXCEPT|INTERSECT|HAVING"
SOURCE = re.compile(rf"\b(?:FROM|JOIN)\s+(\w+)(?:\s+(?:AS\s+)?(?!(?:{WORDS})\b)(\w+))?", re.IGNORECASE)
NAMED = re.compile(
    r"(\w+)\s*(?:\([^()]*\))?\s+AS\s+(?:NOT\s+)?(?:MATERIALIZED\s*)?\(\s*(?:SELECT|WITH|VALUES)", re.IGNORECASE
)


def sources(query: str) -> dict[str, set[str]]:
    """Alias in a query -> what it may stand for; other names are of parts of the query."""
    named = set(NAMED.findall(query))
    found: dict[str, set[str]] = defaultdict(set)
    for table, alias in SOURCE.findall(query):
        found[alias or table].add("" if table in named else table)
    return found


def nested_scans(facts: Facts, query: str, params: dict[str, object] | None = None) -> Iterator[str]:
    """`TABLE for each row of TABLE`: growing tables that are read whole inside a loop over another one."""
    known = sources(query)
    steps: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, parent, _, detail in facts._db.execute(f"EXPLAIN QUERY PLAN {query}", params or {}):
        steps[parent].append((number, detail))

    def walk(step: int, around: list[str]) -> Iterator[str]:
        loops = list(around)
        for number, detail in steps[step]:
            words = detail.replace(" TABLE ", " ").split()
            # an index that SQLite makes for a subquery is made anew each time
            is_read = words[0] == "SCAN" or (bool(around) and "AUTOMATIC" in words)
            tables = known.get(words[1], set()) if is_read else set()
            if tables and tables <= TABLES:
                if loops:
                    yield f"{'/'.join(sorted(tables))} for each row of {loops[-1]}"
                loops.append("/".join(sorted(tables)))
            elif words[0] not in ("SCAN", "SEARCH"):
                yield from walk(number, loops if words[0] == "CORRELATED" else [])

    return walk(0, [])


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Tables with the indexes that they have in a large job; the plan does not depend on their rows."""
    made = Facts()
    with made._writing():
        for statement in index_statements():
            made._db.execute(statement)
    return made


def test_no_rule_reads_a_growing_table_for_each_row_of_another(facts: Facts) -> None:
    found = {rule.id: [*nested_scans(facts, rule.query, rule.params)] for rule in loader.load_rules()}
    assert {} == {rule: scans for rule, scans in found.items() if scans}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 FROM xid x JOIN message m ON m.text > x.pci", ["message for each row of xid"]),
        (
            "SELECT 1 FROM xid x WHERE EXISTS (SELECT 1 FROM step WHERE step.line > x.code)",
            ["step for each row of xid"],
        ),
        ("SELECT 1 FROM xid x JOIN message m ON m.text = x.pci", []),
        (
            "SELECT (SELECT count(*) FROM message m WHERE m.text = x.pci AND m.kind = 'a') FROM xid x",
            ["message for each row of xid"],
        ),
        ("SELECT 1 FROM xid x JOIN process p ON p.host = x.host AND p.pid = x.pid", []),
        ("SELECT 1 FROM xid x WHERE x.code < (SELECT max(line) FROM step)", []),
        ("SELECT 1 FROM xid x JOIN job j ON j.ranks > x.code", []),
        ("WITH few AS (SELECT max(code) AS code FROM xid) SELECT 1 FROM message m, few", []),
    ],
)
def test_nested_scans_are_found(facts: Facts, query: str, expected: list[str]) -> None:
    assert expected == [*nested_scans(facts, query)]
