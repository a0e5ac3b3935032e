"""Which facts a query needs to return any row: read from its SQL, so that a rule without them costs nothing.

    SELECT host, ref FROM cuda_error c JOIN evidence e ON e.id = c.ref WHERE c.code = 2
    UNION ALL SELECT host, ref FROM message WHERE kind IN ('oom', 'oom-text')

returns a row only where `cuda_error` and `evidence` have rows, or where `message` has one of these kinds:
`[["cuda_error", "evidence"], ["message.kind oom oom-text"]]`. What this reader does not understand counts as needing nothing
(`[[]]`), so that no rule is left out that could find something.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_doctor.common.expressions import compiled

if TYPE_CHECKING:
    from nccl_doctor.facts.store import Facts

# Alternatives; each is what has to be there together: a table, or a column of a table or view and values of it.
Sources = list[list[str]]
Node = Any  # a token, or the list of those inside parentheses


class Named(NamedTuple):
    """What a name behind FROM stands for."""

    sources: Sources
    columns: Container[str] = ()  # of a table or view; those of a CTE are not known


_UNKNOWN = Named([[]])
_MOST = 60  # alternatives; with more of them nothing is said
_TOKEN = compiled(
    r"--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|'(?:[^']|'')*'?|\"[^\"]*\"?|`[^`]*`?|[A-Za-z_]\w*|\d[\w.]*|:\w+|<>|[<>=!|]=|\|\||\S",
    re.DOTALL,
)
_AGGREGATES = frozenset((
    "count", "min", "max", "sum", "total", "avg", "group_concat", "string_agg", "percentile", "median", "mad",
    "json_group_array", "json_group_object",
))  # fmt: skip
_CLAUSES = ("from", "where", "group", "having", "window", "order", "limit")
_JOINS = frozenset(("join", "left", "inner", "cross", "natural", "right", "full", "outer"))
_SOME = ["count", ["*"], ">", "0"]
_TELLING = ("kind", "fault", "message")  # columns whose values decide which rules are asked
_VALUE = compiled(r"'[a-z0-9-]+'")


def row_sources(query: str) -> Sources:
    """What must be there so that a query can return a row, as alternatives."""
    return _of_select(_nested(query), _tables() | _views())


class Present:
    """What a fact base holds, asked once for each table."""

    def __init__(self, facts: "Facts") -> None:
        self._facts = facts
        self._values: dict[str, set[str]] = {}
        self._filled: dict[str, bool] = {}

    def may_return(self, sources: Sources) -> bool:
        """Whether a query with these sources can return a row."""
        return any(all(map(self._has, together)) for together in sources)

    def _has(self, source: str) -> bool:
        place, _, values = source.partition(" ")
        if values:
            if place not in self._values:
                table, _, column = place.partition(".")
                self._values[place] = {
                    value for (value,) in self._facts.query(f"SELECT DISTINCT {column} FROM {table}")
                }
            return not self._values[place].isdisjoint(values.split(" "))
        if place not in self._filled:
            self._filled[place] = self._facts.may_hold(place) and bool(
                self._facts.query(f"SELECT 1 FROM {place} LIMIT 1")
            )
        return self._filled[place]


@cache
def _tables() -> dict[str, Named]:
    from nccl_doctor.facts.schema import by_name, column_types

    return {name: Named([[name]], column_types(table)) for name, table in by_name().items()}


@cache
def _views() -> dict[str, Named]:
    from nccl_doctor.facts.views import VIEWS

    known = dict(_tables())
    for view in (*VIEWS, *VIEWS):  # twice, because one may read a later one
        known[view.name] = Named(_of_select(_nested(view.query), known), view.columns)
    return {view.name: known[view.name] for view in VIEWS}


def _nested(query: str) -> list[Node]:
    """The tokens of a query in lower case, except for texts; those inside parentheses as lists."""
    stack: list[list[Node]] = [[]]
    for token in _TOKEN.findall(query):
        if token.startswith(("--", "/*")):
            continue
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token if token.startswith("'") else token.lower())
    return stack[0]


def _of_select(nodes: list[Node], known: Mapping[str, Named]) -> Sources:
    """The sources of a SELECT with its CTEs and UNIONs."""
    if nodes and nodes[0] == "with":
        nodes, known = _with_ctes(nodes, known)
    if "intersect" in nodes or "except" in nodes:
        return [[]]
    found: Sources = []
    for part in _split(nodes, "union"):
        found += _of_core(part[1:] if part and part[0] == "all" else part, known)
    return _shortest(found) if len(found) <= _MOST else [[]]


def _shortest(found: Sources) -> Sources:
    """Alternatives without those that need more than another one."""
    distinct = sorted({tuple(one) for one in found}, key=lambda one: (len(one), one))
    kept: list[frozenset[str]] = []
    for one in distinct:
        if not any(other <= set(one) for other in kept):
            kept.append(frozenset(one))
    return [_in_order(one) for one in kept]


def _in_order(together: Iterable[str]) -> list[str]:
    """What is needed, tables first: whether they are empty is known without a query."""
    return sorted(set(together), key=lambda source: (" " in source, source))


def _with_ctes(nodes: list[Node], known: Mapping[str, Named]) -> tuple[list[Node], Mapping[str, Named]]:
    """What follows `WITH name AS (…), …`, and what names mean there."""
    known = dict(known)
    recursive = nodes[1:2] == ["recursive"]
    at = 2 if recursive else 1
    while at < len(nodes):
        name = nodes[at]
        while at < len(nodes) and nodes[at] != "as":
            at += 1
        body = next((place for place in range(at, len(nodes)) if isinstance(nodes[place], list)), len(nodes))
        known[name] = _UNKNOWN if recursive or body == len(nodes) else Named(_of_select(nodes[body], known))
        at = body + 2
        if nodes[body + 1 : at] != [","]:
            return nodes[body + 1 :], known
    return [], known


def _of_core(nodes: list[Node], known: Mapping[str, Named]) -> Sources:
    """The sources of one SELECT without UNION."""
    clauses = _clauses(nodes)
    if nodes[:1] != ["select"] or "from" not in clauses:
        return [[]]
    totals = [*clauses["select"], *clauses.get("having", []), *clauses.get("order", [])]
    if "group" not in clauses and _has_aggregate(totals) and _SOME not in _conjuncts(clauses.get("having", [])):
        return [[]]  # one row even of an empty table
    joined = _joined(clauses["from"])
    if joined is None:
        return [[]]
    items, conditions = joined
    conditions = [*conditions, *_conjuncts(clauses.get("where", []))]
    found: Sources = [[]]
    for alias, place in items:
        if isinstance(place, list):
            more = _of_select(place, known)
        else:
            more, columns = known.get(place, _UNKNOWN)
            if telling := _telling(place, columns, conditions, alias, alone=len(items) == 1):
                more = [[telling]] if more == [[place]] else [[*one, telling] for one in more]
        found = [[*one, *other] for one in found for other in more]
        if len(found) > _MOST:
            return [[]]
    return [_in_order(together) for together in found]


def _clauses(nodes: list[Node]) -> dict[str, list[Node]]:
    """Clause -> its tokens; what stands before FROM is `select`."""
    clauses: dict[str, list[Node]] = {"select": []}
    name = "select"
    for at, node in enumerate(nodes):
        if node in _CLAUSES and not (node == "from" and nodes[at - 1] == "distinct"):  # IS DISTINCT FROM
            name = str(node)
            clauses[name] = []
        else:
            clauses[name].append(node)
    return clauses


def _has_aggregate(nodes: Sequence[Node]) -> bool:
    """Whether an aggregate is called outside of inner SELECTs, and not for each row over a window."""
    for at, node in enumerate(nodes):
        if isinstance(node, str):
            behind = nodes[at + 4 : at + 5] if nodes[at + 2 : at + 3] == ["filter"] else nodes[at + 2 : at + 3]
            if node in _AGGREGATES and behind != ["over"]:
                return True
        elif node[:1] not in (["select"], ["with"]) and _has_aggregate(node):
            return True
    return False


def _joined(nodes: list[Node]) -> tuple[list[tuple[str, Node]], list[list[Node]]] | None:
    """(alias, table or inner SELECT) of all that must have rows, and what their ON clauses demand; None where it is not clear."""
    items: list[tuple[str, Node]] = []
    conditions: list[list[Node]] = []
    for optional, part in _join_parts(nodes):
        if part is None or not part or "right" in part or "full" in part:
            return None
        on = part.index("on") if "on" in part else len(part)
        place, rest = part[0], [node for node in part[1:on] if node != "as"]
        if rest[:1] == ["."] and len(rest) > 1:  # schema.table
            place, rest = rest[1], rest[2:]
        if isinstance(place, list) and place[:1] not in (["select"], ["with"]):
            return None
        if rest and isinstance(rest[0], list) and isinstance(place, str):  # a function such as json_each(…)
            continue
        if not optional:
            items.append((rest[0] if rest and isinstance(rest[0], str) else place, place))
            conditions += _conjuncts(part[on + 1 :])
    return items, conditions


def _join_parts(nodes: list[Node]) -> Iterator[tuple[bool, list[Node] | None]]:
    """Whether what a FROM clause joins is the right side of a LEFT JOIN, and its tokens; None in place of an unknown join."""
    part: list[Node] = []
    optional = later = False
    for node in nodes:
        if node in ("right", "full"):
            yield False, None
        elif node == "left":
            later = True
        elif node in (",", "join"):
            yield optional, part
            part, optional, later = [], later, False
        elif isinstance(node, list) or node not in _JOINS:
            part.append(node)
    yield optional, part


def _conjuncts(nodes: list[Node]) -> list[list[Node]]:
    """The conditions that must all hold; alternatives are one of them."""
    if "between" in nodes or "case" in nodes:
        return []
    return [nodes] if "or" in nodes else list(_split(nodes, "and"))


def _telling(place: str, columns: Container[str], conditions: list[list[Node]], alias: Node, *, alone: bool) -> str:
    """`message.kind a b` where one of the conditions asks for these values of such a column, else an empty text."""
    for column in _TELLING:
        if column in columns:
            for condition in conditions:
                if values := _values(condition, column, alias, alone=alone):
                    return f"{place}.{column} {' '.join(sorted(values))}"
    return ""


def _values(condition: list[Node], column: str, alias: Node, *, alone: bool) -> set[str]:
    """The values of a column of which a condition needs one; none where it needs none of them."""
    if len(condition) == 1 and isinstance(condition[0], list):
        parts = _conjuncts(condition[0])
        return next(filter(None, (_values(part, column, alias, alone=alone) for part in parts)), set())
    if "or" in condition:
        found = []
        for part in _split(condition, "or"):
            needed = (_values(one, column, alias, alone=alone) for one in _conjuncts(part))
            found.append(next(filter(None, needed), set[str]()))
        return set().union(*found) if all(found) else set()
    if condition[:2] == [alias, "."]:
        condition = condition[2:]
    elif not alone:
        return set()
    if condition[:2] == [column, "="] and len(condition) == 3:
        texts = condition[2:]
    elif condition[:2] == [column, "in"] and len(condition) == 3 and isinstance(condition[2], list):
        texts = [node for node in condition[2] if node != ","]
    else:
        return set()
    if not all(isinstance(text, str) and _VALUE.fullmatch(text) for text in texts):
        return set()
    return {text.strip("'") for text in texts}


def _split(nodes: list[Node], word: str) -> Iterator[list[Node]]:
    part: list[Node] = []
    for node in nodes:
        if node == word:
            yield part
            part = []
        else:
            part.append(node)
    yield part
