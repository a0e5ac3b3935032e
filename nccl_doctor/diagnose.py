"""From the answers of the rules to one report: causes before symptoms, equal findings folded, a verdict."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from nccl_doctor.facts import Facts
from nccl_doctor.report import CONFIDENCES, SEVERITIES, Check, Finding, InputSummary, Place, Report
from nccl_doctor.rules import Answer, Row, Rule
from nccl_doctor.tables import Input

EVIDENCE = 12  # places kept per finding
_ROLES = {"cause": 0, "context": 1, "symptom": 2}


def diagnose(facts: Facts, answers: Sequence[Answer], missing: Sequence[str] = ()) -> Report:
    """The report of a fact base."""
    folded = [
        (answer.rule, finding, first)
        for answer in answers
        if answer.outcome == "found"
        for finding, first in _fold(answer, facts)
    ]
    inputs = facts.rows(Input)
    findings = _order(folded)
    return Report(
        verdict=_verdict(findings, facts, inputs),
        inputs=[
            InputSummary(i.path, i.kind, i.bytes, i.lines, i.understood, i.nccl_lines, i.note or "") for i in inputs
        ],
        job=job(facts),
        findings=findings,
        checks=[Check(a.rule.id, a.rule.name, a.outcome, a.reason) for a in answers],
        missing=list(missing),
    )


def fold_hosts(names: Iterable[str | None]) -> str:
    """`node01 node02` -> `node[01-02]`."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    plain = sorted({name for name in names if name})
    try:
        nodes = NodeSet()
        for name in plain:
            nodes.update(NodeSet(name) if not set(name) & set("[]@,&!^ ") and "%" not in name else NodeSet())
        if len(nodes) == len(plain):
            return str(nodes)
    except NodeSetException:
        pass
    return ",".join(plain)


def fold_ranks(numbers: Iterable[int | None]) -> str:
    """`0 1 2 3 9` -> `0-3,9`."""
    ranks = sorted({n for n in numbers if n is not None})
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _fold(answer: Answer, facts: Facts) -> Iterable[tuple[Finding, tuple[float, ...]]]:
    """Rows whose words differ only in host and rank become one finding."""
    rule = answer.rule
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in answer.rows:
        same = {
            k: v
            for k, v in row.values.items()
            if k not in ("host", "rank", "ref", "refs", "stamp", "n", "line") and f"{{{k}}}" in rule.message
        }
        groups[row.severity, row.role, row.confidence, row.action, *sorted(same.items(), key=str)].append(row)
    groups = _capped(groups)
    for rows in groups.values():
        first = rows[0]
        hosts = fold_hosts(r.values.get("host") for r in rows)
        ranks = fold_ranks(_rank(r.values.get("rank")) for r in rows)
        places = facts.places([ref for row in rows for ref in row.refs][: 50 * EVIDENCE])
        shown = {"host": hosts or "a host", "rank": ranks or "?"}
        from nccl_doctor.rules import words

        values = {**first.values, **{k: v for k, v in shown.items() if k in first.values}}
        yield (
            Finding(
                rule=rule.id, name=rule.name, title=rule.title, severity=first.severity, role=first.role,
                confidence=first.confidence, message=words(rule.message, values), why=words(rule.why, values),
                fix=words(rule.fix, values), hosts=hosts, ranks=ranks,
                values={k: v for k, v in first.values.items() if k not in ("ref", "refs", "severity", "role", "confidence", "action")},
                references=list(rule.references),
                evidence=[Place(p.file, p.line, p.text) for p in _spread(places)], count=len(rows),
                action=first.action,
            ),
            (min((p.line for p in places), default=0),),
        )  # fmt: skip


def _rank(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _capped(groups: dict[tuple[Any, ...], list[Row]], most: int = 8) -> dict[tuple[Any, ...], list[Row]]:
    """Many findings of one rule that differ in detail are one finding: nobody reads the ninth."""
    if len(groups) <= most:
        return groups
    merged: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for key, rows in groups.items():
        merged[key[:4]].extend(rows)
    return merged


def _spread(places: list[Any]) -> list[Any]:
    return places[:EVIDENCE]


def _rank_of(rule: Rule, finding: Finding, first: tuple[float, ...]) -> tuple[Any, ...]:
    return (
        _ROLES[finding.role] if finding.severity != "note" else 3,
        SEVERITIES.index(finding.severity),
        CONFIDENCES.index(finding.confidence) // 2,  # likely counts as certain here: the class of the cause says more
        rule.order,
        CONFIDENCES.index(finding.confidence),
        first,
        finding.rule,
    )


def _order(folded: list[tuple[Rule, Finding, tuple[float, ...]]]) -> list[Finding]:
    """Causes first, then what nothing explains; an explained finding stands under the first that explains it."""
    ranked = sorted(folded, key=lambda item: _rank_of(*item))
    explains = {rule.id: set(rule.explains) for rule, _, _ in ranked}
    roots: list[Finding] = []
    children: dict[int, list[Finding]] = defaultdict(list)
    for index, (rule, finding, _) in enumerate(ranked):
        parents = [
            (r, f) for r, f, _ in ranked[:index]
            if finding.name in explains[r.id] and r.id != rule.id and _explains_it(f, finding)
        ]  # fmt: skip
        if not parents:
            roots.append(finding)
            continue
        finding.explained_by = list(dict.fromkeys(r.id for r, _ in parents))
        for _, parent in parents:
            if rule.id not in parent.explains:
                parent.explains.append(rule.id)
        children[id(parents[0][1])].append(finding)
    ordered: list[Finding] = []

    def put(finding: Finding) -> None:
        ordered.append(finding)
        for child in children[id(finding)]:
            put(child)

    for root in roots:
        put(root)
    return ordered


def _explains_it(parent: Finding, child: Finding) -> bool:
    """A note explains notes only; an alarm explains anything at or below it."""
    return parent.severity != "note" or child.severity == "note"


def _verdict(findings: list[Finding], facts: Facts, inputs: list[Input]) -> str:
    for severity in ("error", "warning"):
        if any(f.severity == severity for f in findings):
            return severity
    known = any(i.understood or i.kind not in ("text", "empty", "binary") for i in inputs)
    if not known and not findings:
        return "inconclusive"
    return "note" if findings else "healthy"


def job(facts: Facts) -> dict[str, Any]:
    """What the report says about the job itself."""
    rows = facts.own("SELECT hosts, ranks, processes, has_info FROM job")
    hosts, ranks, processes, info = rows[0] if rows else (None, None, None, 0)
    names = [name for (name,) in facts.own("SELECT name FROM host ORDER BY name")]
    versions = [
        v for (v,) in facts.own("SELECT DISTINCT version FROM library WHERE name IN ('nccl', 'rccl') ORDER BY 1")
    ]
    networks = [n for (n,) in facts.own("SELECT DISTINCT name FROM network ORDER BY 1")]
    return {
        "hosts": hosts, "ranks": ranks, "processes": processes, "host_names": fold_hosts(names),
        "nccl_versions": versions, "network": networks, "nccl_debug_info": bool(info),
    }  # fmt: skip
