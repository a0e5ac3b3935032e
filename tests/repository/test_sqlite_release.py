"""Every query runs on SQLite 3.34, the release of RHEL 9: it uses nothing that came later."""

import ast
import re
import sqlite3
from collections.abc import Iterator

import pytest
from helpers.places import ROOT

from nccl_doctor.facts import old_sqlite
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import loader

MATHEMATICAL = """acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
    radians sign sin sinh sqrt tan tanh trunc"""
LATER = {
    "RETURNING": r"\bRETURNING\b",  # 3.35
    "ALTER TABLE DROP COLUMN": r"\bDROP\s+COLUMN\b",  # 3.35
    "mathematical functions": rf"\b(?:{'|'.join(MATHEMATICAL.split())})\s*\(",
    "STRICT": r"\)\s*STRICT\b",  # 3.37
    "-> and ->>": r"->",  # 3.38
    "unixepoch, format": r"\b(?:unixepoch|format)\s*\(",  # 3.38
    "RIGHT and FULL JOIN": r"\b(?:RIGHT|FULL)\s+(?:OUTER\s+)?JOIN\b",  # 3.39
    "IS DISTINCT FROM": r"\bDISTINCT\s+FROM\b",  # 3.39
    "unhex, timediff, octet_length": r"\b(?:unhex|timediff|octet_length)\s*\(",  # 3.41 to 3.43
    "concat, string_agg": r"\b(?:concat|concat_ws|string_agg)\s*\(",  # 3.44
    "ORDER BY in an aggregate": r"\bgroup_concat\s*\([^()]*\bORDER\s+BY\b",  # 3.44
    "digits in groups": r"\b\d+_\d",  # 3.46
}  # fmt: skip
_TOKENS = re.compile(r"\(|\)|\bSELECT\b|\bGROUP\s+BY\b|\bHAVING\b", re.IGNORECASE)
_SQL = re.compile(r"\b(?:SELECT|INSERT|CREATE)\b.*\b(?:FROM|INTO|TABLE|VIEW|SELECT)\b", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|--[^\n]*")


def later_parts(query: str) -> list[str]:
    """What a query uses of releases newer than 3.34."""
    bare = _QUOTED.sub("''", query)
    own = {name for (name, *_) in Facts().query("SELECT name FROM pragma_function_list WHERE builtin = 0")}
    found = [
        name
        for name, pattern in LATER.items()
        for match in re.finditer(pattern, bare, re.IGNORECASE)
        if match[0].rstrip("( ").lower() not in own
    ]
    return [*found, *(["HAVING without GROUP BY"] if lone_having(bare) else [])]  # 3.39


def lone_having(query: str) -> bool:
    """Whether a SELECT has a HAVING and no GROUP BY."""
    grouped = [False]
    for token in _TOKENS.findall(query):
        word = token.upper()
        if word == "(":
            grouped.append(False)
        elif word == ")":
            grouped = grouped[:-1] or [False]
        elif word == "HAVING" and not grouped[-1]:
            return True
        else:
            grouped[-1] = word.startswith("GROUP") or (word == "HAVING" and grouped[-1])
    return False


def queries() -> Iterator[tuple[str, str]]:
    """The queries of all rules, and the texts of the package that look like one."""
    for rule in loader.load_usable(()).rules:
        yield rule.id, rule.query
    for path in (ROOT / "nccl_doctor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in node.values)
            if _SQL.search(text) and text == text.strip() and not text.endswith("."):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text  # type: ignore[attr-defined]


def test_no_query_uses_what_came_after_3_34() -> None:
    found = {place: parts for place, query in queries() if (parts := later_parts(query))}
    assert {} == found


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT a FROM t HAVING count(*) > 0", "HAVING without GROUP BY"),
        ("SELECT (SELECT a FROM t GROUP BY a) FROM t HAVING count(*)", "HAVING without GROUP BY"),
        ("SELECT a ->> 'x' FROM t", "-> and ->>"),
        ("SELECT sqrt(a) FROM t", "mathematical functions"),
        ("SELECT a FROM t FULL JOIN u", "RIGHT and FULL JOIN"),
    ],
)
def test_what_came_later_is_found(query: str, part: str) -> None:
    assert [part] == later_parts(query)
    assert [] == later_parts("SELECT a, ' -> ' FROM t GROUP BY a HAVING count(*) > 0 -- sqrt(a)")


def test_an_old_release_gets_no_hint_that_it_cannot_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    facts, asked = Facts(), list[str]()
    assert isinstance(facts._db, old_sqlite.OldConnection)
    facts._db.set_trace_callback(asked.append)

    assert [(1,)] == facts.query("WITH a AS MATERIALIZED (SELECT 1), b AS NOT  MATERIALIZED (SELECT 2) SELECT * FROM a")
    assert [] == [query for query in asked if "MATERIALIZED" in query]
