"""What a query needs to return a row: read from its SQL, and never more than it really needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CudaError, Message
from nccl_doctor.rules import engine, loader
from nccl_doctor.rules.row_sources import Present, row_sources

UNKNOWN = [[]]


def message(kind: str) -> Message:
    return Message(kind, None, "n1", 0, 1, None, "text", "{}", 1, 1, None, 1)


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        ("SELECT ref FROM cuda_error c JOIN evidence e ON e.id = c.ref", [["cuda_error", "evidence"]]),
        ("SELECT ref FROM cuda_error c LEFT JOIN evidence e ON e.id = c.ref", [["cuda_error"]]),
        ("SELECT ref FROM cuda_error c FULL JOIN evidence e ON e.id = c.ref", UNKNOWN),
        ("SELECT ref FROM cuda_error, xid WHERE 1 -- FROM message", [["cuda_error", "xid"]]),
        ("SELECT ref FROM message WHERE kind IN ('a', 'b') AND n > 1", [["message.kind a b"]]),
        ("SELECT ref FROM message WHERE kind = 'a' OR n > 1", [["message"]]),
        ("SELECT ref FROM message WHERE NOT kind = 'a'", [["message"]]),
        ("SELECT ref FROM message WHERE NOT (kind = 'a')", [["message"]]),
        ("SELECT ref FROM message WHERE (kind = 'a') IS NULL", [["message"]]),
        ("SELECT ref FROM message WHERE n > 1 AND (kind = 'b' AND n > 2 OR kind IN ('a'))", [["message.kind a b"]]),
        ("SELECT ref FROM message WHERE kind = 'b' OR (n > 2 AND (kind = 'a' OR kind = 'c'))", [["message.kind a b c"]]),
        ("SELECT ref FROM message WHERE kind = 'b' OR (n > 2 OR kind = 'a')", [["message"]]),
        ("SELECT ref FROM message WHERE n BETWEEN 1 AND kind = 'a'", [["message"]]),
        ("SELECT ref FROM message WHERE CASE WHEN n AND kind = 'a' AND n THEN 0 ELSE 1 END", [["message"]]),
        ("SELECT ref FROM known_message m WHERE m.message = 'a' OR m.message = 'b'", [["known_message.message a b"]]),
        ("SELECT ref FROM reported_fault WHERE fault = 'a'", [["evidence", "known_message", "reported_fault.fault a"]]),
        ("WITH message AS (SELECT * FROM xid) SELECT ref FROM message WHERE kind = 'a'", [["xid"]]),
        ("SELECT m.ref FROM message m JOIN xid x ON m.kind = 'a' WHERE x.kind = 'xid'", [["message.kind a", "xid.kind xid"]]),
        ("SELECT ref FROM xid UNION ALL SELECT ref FROM message WHERE kind = 'a'", [["message.kind a"], ["xid"]]),
        ("SELECT ref FROM xid UNION SELECT 1", UNKNOWN),
        ("SELECT ref FROM xid EXCEPT SELECT ref FROM message", UNKNOWN),
        ("SELECT count(*) FROM xid", UNKNOWN),
        ("SELECT coalesce(max(ref), 1) FROM xid", UNKNOWN),
        ("SELECT min(ref) FROM xid HAVING count(*) > 0", [["xid"]]),
        ("SELECT min(ref) FROM xid GROUP BY host", [["xid"]]),
        ("SELECT ref, max(ref) OVER (ORDER BY ref) FROM xid", [["xid"]]),
        ("SELECT ref, coalesce(max(ref) FILTER (WHERE 1) OVER w, 1) FROM xid WINDOW w AS ()", [["xid"]]),
        ("SELECT sum(ref) FILTER (WHERE 1) FROM xid", UNKNOWN),
        ("SELECT max(ref) OVER (), max(ref) FROM xid", UNKNOWN),
        ("SELECT (SELECT count(*) FROM env) FROM xid", [["xid"]]),
        ("WITH a AS (SELECT * FROM xid), b(x) AS MATERIALIZED (SELECT ref FROM a) SELECT x FROM b, env", [["env", "xid"]]),
        ("WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a JOIN xid", [["xid"]]),
        ("SELECT j.value FROM xid, json_each(xid.text) j", [["xid"]]),
        ("SELECT ref FROM main.xid WHERE host IS NOT DISTINCT FROM 'a'", [["xid"]]),
        ("SELECT ref FROM local_death", "a view"),
        ("SELECT ref FROM (SELECT ref FROM xid UNION ALL SELECT ref FROM env) JOIN job", [["env", "job"], ["job", "xid"]]),
    ],
)  # fmt: skip
def test_what_a_query_needs(query: str, needed: object) -> None:
    found = row_sources(query)
    if needed == "a view":
        assert ["xid"] in found
        assert [] not in found
    else:
        assert needed == found


def test_a_rule_that_cannot_find_anything_is_clear_without_its_query() -> None:
    facts = Facts()
    facts.add([message("a")])
    facts.mark_covered("xid", "cuda_error")
    rules = [rule for rule in loader.load_rules() if set(rule.needs) <= {"message", "xid", "cuda_error"}]
    slow = [engine.ask(rule, facts) for rule in rules]
    assert [(one.outcome, one.rows) for one in slow] == [
        (one.outcome, one.rows) for one in engine.ask_all(rules, facts)
    ]
    asked = [rule.id for rule in rules if Present(facts).may_return(rule.row_sources)]
    assert len(asked) < len(rules) / 5


def test_no_rule_finds_anything_in_nothing_unless_its_sources_say_so() -> None:
    facts, present = Facts(), Present(Facts())
    for rule in loader.load_rules():
        if not present.may_return(rule.row_sources):
            assert [] == facts.sql(rule.query, params=rule.params)[1], rule.id


PLACES = st.sampled_from(
    ("xid", "cuda_error", "message", "(SELECT * FROM cuda_error)", "(SELECT count(*) AS ref FROM xid)")
)
WHERE = st.sampled_from(
    ("", " WHERE 1", " WHERE a.ref > 0", " WHERE a.kind = 'x'", " WHERE a.kind IN ('x', 'y') AND 1")
)


@given(
    parts=st.lists(st.tuples(PLACES, st.sampled_from((",", " JOIN", " LEFT JOIN", " CROSS JOIN")), PLACES, WHERE), min_size=1, max_size=3),
    kinds=st.sets(st.sampled_from(("x", "y", "z"))),
    errors=st.booleans(),
)  # fmt: skip
def test_no_query_with_rows_is_left_out(parts: list[tuple[str, str, str, str]], kinds: set[str], errors: bool) -> None:
    query = " UNION ALL ".join(f"SELECT a.ref FROM {one} a{join} {other} b{where}" for one, join, other, where in parts)
    facts = Facts()
    facts.add(map(message, sorted(kinds)))
    if errors:
        values = dict.fromkeys(CudaError._fields)
        facts.add([CudaError(**{**values, "text": "t", "n": 1, "ref": 1})])  # type: ignore[arg-type]
    try:
        rows = facts.sql(query)[1]
    except Exception:
        return
    assert not rows or Present(facts).may_return(row_sources(query))
