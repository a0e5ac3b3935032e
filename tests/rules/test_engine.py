"""The rule engine: whatever rows a rule returns, the answer is found, clear or broken, never an exception."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.common import parse_cache
from nccl_doctor.common.parse_cache import remembered, remembered_lines
from nccl_doctor.diagnosis.diagnose import diagnose
from nccl_doctor.facts.store import Facts
from nccl_doctor.reporters import FORMATS, render
from nccl_doctor.rules import engine, loader, schema
from nccl_doctor.rules.folder import rule_files, shipped_folder
from nccl_doctor.rules.folding import KEPT, MOST, Folding, Row
from nccl_doctor.rules.site_config import Config

VALUES = st.one_of(
    st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(max_size=20), st.binary(max_size=5),
    st.sampled_from(["1,2", "²", "1" * 30, "note", "error", "certain", "cause", "drain", "é\ud7ff", "{host}", "\x1b[31m"]),
)  # fmt: skip
ROWS = st.dictionaries(
    st.sampled_from(["ref", "refs", "host", "rank", "severity", "confidence", "role", "action", "share", "n"]), VALUES, min_size=1
)  # fmt: skip


def rule(query: str, **changes: Any) -> schema.Rule:
    given = {
        "id": "TST001", "name": "test", "title": "A test", "severity": "warning", "role": "cause", "confidence": "likely", "since": "0.1",
        "needs": [], "query": query, "message": "{host} has {share:.1f} of {n:d}, {absent}", "why": "Why", "fix": "Fix {rank}",
    }  # fmt: skip
    return schema.Rule(**{**given, **changes}, group="network", path=Path("test.toml"))


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float):
        return "NULL" if value != value else {float("inf"): "9e999", -float("inf"): "-9e999"}.get(value, repr(value))
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''").replace("\0", "") + "'"


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_no_row_makes_the_engine_or_a_reporter_raise(rows: list[dict[str, Any]]) -> None:
    columns = sorted({name for row in rows for name in row})
    query = " UNION ALL ".join(
        "SELECT " + ", ".join(f"{literal(row.get(name))} AS {name}" for name in columns) for row in rows
    )
    facts = Facts()
    facts.evidence("log", 1, "a line")
    answer = engine.ask(rule(query), facts)
    assert answer.outcome in ("found", "broken")
    assert bool(answer.reason) == (answer.outcome == "broken")
    report = diagnose(facts, [answer])
    for name in FORMATS:
        render(name, report)


@pytest.mark.parametrize(
    ("columns", "refs"),
    [
        ("1 AS ref", [1]),
        ("'1' AS ref", [1]),
        ("'1, 2' AS ref", [1, 2]),
        ("2 AS ref, '1,2' AS refs", [2, 1]),
        ("3.0 AS ref", [3]),
    ],
)
def test_evidence_is_a_number_or_several(columns: str, refs: list[int]) -> None:
    answer = engine.ask(rule(f"SELECT {columns}"), Facts())
    assert [refs] == [row.refs for row in answer.rows]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("NULL AS ref", "a row without ref shows no evidence"),
        ("'1,x' AS ref", "column ref holds 'x', which is no number of evidence"),
        ("2.5 AS ref", "column ref holds '2.5', which is no number of evidence"),
        ("-1 AS ref", "column ref holds '-1', which is no number of evidence"),
        ("1 AS ref, 'fatal' AS severity", "column severity holds 'fatal'"),
        ("1 AS ref, 5 AS host", "column host holds '5'"),
        ("1 AS ref, x'00' AS share", "column share holds \"b'\\\\x00'\""),
        ("1 AS ref, 9e999 AS share", "column share holds 'inf'"),
        ("1 AS ref, CAST(x'ff' AS TEXT) AS share", "Could not decode to UTF-8 column 'share'"),
        ("zeroblob(900000000) AS ref", "string or blob too big"),
    ],
)
def test_a_row_that_cannot_be_shown_breaks_its_rule(columns: str, reason: str) -> None:
    answer = engine.ask(rule(f"SELECT {columns}"), Facts())
    assert "broken" == answer.outcome
    assert answer.reason.startswith(reason)


RANKS = (
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
    " SELECT i AS rank, 'node' || (i / 8) AS host, 1 AS ref"
)


def test_every_row_is_counted_whatever_their_number() -> None:
    query = RANKS.format(last=32_767) + " FROM n"
    answer = engine.ask(rule(query, message="{host} failed"), Facts())
    (group,) = answer.groups
    assert (32_768, 32_768, 4096, 32_768) == (answer.total, group.count, len(group.hosts), len(group.ranks))
    assert KEPT == len(answer.rows)
    facts = Facts()
    facts.evidence("log", 1, "a line")
    (finding,) = diagnose(facts, [answer]).findings
    assert ("0-32767", 32_768, "node[0-4095]") == (finding.ranks, finding.count, finding.hosts)
    assert "the evidence is of the first 5,000 of 32,768 rows" in finding.message


def test_rows_that_differ_in_detail_are_one_finding_that_says_so() -> None:
    query = RANKS.format(last=11) + ", i % KINDS AS kind FROM n"
    facts = Facts()
    facts.evidence("log", 1, "a line")
    few = diagnose(facts, [engine.ask(rule(query.replace("KINDS", "8"), message="kind {kind}"), facts)]).findings
    assert [2, 2, 2, 2, 1, 1, 1, 1] == [finding.count for finding in few]
    assert "kind 0" == few[0].message
    (many,) = diagnose(facts, [engine.ask(rule(query.replace("KINDS", "9"), message="kind {kind}"), facts)]).findings
    assert (12, "0-11", "kind 0; 12 cases differ in detail, this is the first") == (
        many.count,
        many.ranks,
        many.message,
    )


def test_a_measurement_in_a_message_does_not_split_a_finding() -> None:
    query = RANKS.format(last=99) + ", i * 1.5 AS seconds FROM n"
    (group,) = engine.ask(rule(query, message="{seconds:.0f} s"), Facts()).groups
    assert (100, False) == (group.count, group.mixed)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 11), st.sampled_from(["note", "error"])), max_size=60))
def test_folding_loses_no_row(rows: list[tuple[int, int, str]]) -> None:
    folding = Folding("kind {kind}")
    for rank, kind, severity in rows:
        folding.add(Row({"host": f"n{rank}", "rank": rank, "kind": kind}, [1], severity, "cause", "likely", "warn"))
    groups = folding.groups()
    assert len(rows) == sum(group.count for group in groups) == sum(len(group.rows) for group in groups)
    assert len(groups) <= MOST
    for severity in ("note", "error"):
        same = [group for group in groups if group.first.severity == severity]
        assert {rank for rank, _, given in rows if given == severity} == {
            rank for group in same for rank in group.ranks
        }


def test_a_parameter_that_sqlite_cannot_take_breaks_its_rule() -> None:
    assert "broken" == engine.ask(rule("SELECT :big AS ref", params={"big": 1 << 70}), Facts()).outcome


def test_the_configuration_decides_the_severity_whatever_the_row_says() -> None:
    (changed,) = Config(severity={"TST001": "note"}).apply([rule("SELECT 1 AS ref, 'error' AS severity")])
    assert ["note"] == [row.severity for row in engine.ask(changed, Facts()).rows]
    (same,) = Config().apply([rule("SELECT 1 AS ref, 'error' AS severity")])
    assert ["error"] == [row.severity for row in engine.ask(same, Facts()).rows]


def test_what_was_made_from_files_is_kept_until_one_of_them_changes(tmp_path: Path) -> None:
    source, made = tmp_path / "a.toml", []
    source.write_text("one")

    def make() -> list[str]:
        made.append(source.read_text())
        return list(made)

    for _ in range(3):
        assert ["one"] == remembered("a", [source], make, tmp_path / "kept")
    source.write_text("two")
    assert ["one", "two"] == remembered("a", [source], make, tmp_path / "kept")
    (tmp_path / "kept" / "a.json").write_text("{")
    assert 3 == len(remembered("a", [source], make, tmp_path / "kept"))
    assert [] == [path.name for path in (tmp_path / "kept").iterdir() if path.suffix != ".json"]
    assert 4 == len(remembered("b", [source], make, tmp_path / "absent" / "kept"))


def test_values_are_kept_one_a_line_and_made_anew_where_lines_are_missing(tmp_path: Path) -> None:
    source, kept = tmp_path / "a.toml", tmp_path / "kept"
    source.write_text("x")
    wanted = [{"a": "b\nc"}, [1], None]
    lines = remembered_lines("a", [source], lambda: wanted, kept)
    assert wanted == [json.loads(line) for line in lines]
    assert lines == remembered_lines("a", [source], lambda: pytest.fail("it was kept"), kept)
    assert [] == remembered_lines("b", [source], list, kept) == remembered_lines("b", [source], list, kept)
    whole = (kept / "a.json").read_bytes()
    for size in range(len(whole)):
        (kept / "a.json").write_bytes(whole[:size])
        assert lines == remembered_lines("a", [source], lambda: wanted, kept)


def test_files_that_are_as_they_were_seen_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, kept = tmp_path / "a.toml", tmp_path / "kept"
    source.write_text("one")
    monkeypatch.setattr(parse_cache, "_SETTLED", -(10**18))  # the times of a file that was written just now count, too
    assert "one" == remembered("a", [source], source.read_text, kept)
    with monkeypatch.context() as patched:
        patched.setattr(parse_cache, "_key", lambda _: pytest.fail("a file was read"))
        assert "one" == remembered("a", [source], source.read_text, kept)
    source.write_text("longer")
    assert "longer" == remembered("a", [source], source.read_text, kept)


def test_only_our_rules_are_asked_without_the_authorizer(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    folder.mkdir()
    ours = (shipped_folder() / "network" / "roce-unreachable.toml").read_text()
    file = folder / "site-rule.toml"
    file.write_text(ours.replace('"NET008"', '"SITE001"').replace('"roce-unreachable"', '"site-rule"'))
    rules = loader.load_rules((tmp_path,))
    assert ["site-rule"] == [one.name for one in rules if not one.is_shipped]
    file.write_text("is_shipped = true\n" + file.read_text())
    assert "unknown key 'is_shipped'" in loader.load_usable((tmp_path, folder)).problems[0]
    answer = engine.ask(rule("DELETE FROM input RETURNING 1 AS ref"), Facts())
    assert ("broken", "not authorized") == (answer.outcome, answer.reason)


def test_kept_rules_are_those_in_the_files() -> None:
    shipped = [loader.read_rule(path) for path in rule_files(shipped_folder())]
    assert sorted(shipped, key=lambda r: r.id) == sorted(loader.load_rules(), key=lambda r: r.id)
    assert json.loads(json.dumps([r.params for r in shipped])) == [r.params for r in shipped]


def test_a_communicator_that_came_up_is_one_row_and_one_that_did_not_keeps_its_start() -> None:
    life = "node01:{pid}:{pid} [0] NCCL INFO comm 0x55 rank {rank} nranks 2 cudaDev 0 busId 1b000 - Init {what}\n"
    came = "".join(life.format(pid=7, rank=0, what=what) for what in ("START", "COMPLETE"))
    again = came + life.format(pid=7, rank=0, what="START")  # a pointer that is used again
    never = life.format(pid=8, rank=1, what="START")
    phases = {
        text: analyze.read_text(text).query("SELECT rank, phase FROM communicator ORDER BY rank, phase")
        for text in (came + never, again)
    }
    assert [[(0, "complete"), (1, "start")], [(0, "complete"), (0, "start")]] == list(phases.values())
