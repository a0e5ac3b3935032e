"""The registry of derivations: who runs when, and which declarations it refuses."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.places import DEMO

from nccl_doctor.app import analyze
from nccl_doctor.derive.declaration import Derivation, Rows, derivation
from nccl_doctor.derive.registry import DerivationProblem, derive_all, discover, is_derived, ordered, steps
from nccl_doctor.facts import store
from nccl_doctor.facts.schema import table_name
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TABLES, Env, Host, Job, Link, Process, Rank, Xid
from nccl_doctor.facts.views import VIEWS


def test_every_derived_table_is_filled_by_one_derivation() -> None:
    filled = [table for one in discover() for table in one.fills]
    assert {table for table in TABLES if is_derived(table)} == set(filled)
    assert len(set(filled)) == len(filled)


def test_each_derivation_comes_after_those_that_fill_what_it_reads() -> None:
    filled: set[type] = set()
    for one in ordered(reversed(discover())):
        assert {table for table in one.reads if is_derived(table)} <= filled, one.name
        filled |= one.fills


def declared(fills: type, reads: type | None = None, *, as_printed: bool = False) -> Derivation:
    def rows(facts: Facts) -> Rows:
        return ()

    return derivation(fills=[fills], reads=[reads] if reads else [], as_printed=as_printed)(rows)


@pytest.mark.parametrize(
    ("derivations", "message"),
    [
        ([declared(Host, Rank), declared(Rank, Host)], "a cycle: "),
        ([declared(Host, Rank)], "reads rank, which no derivation fills"),
        ([declared(Host), declared(Host)], "both fill host"),
        ([declared(Host, Rank, as_printed=True), declared(Rank)], "runs before names are settled"),
    ],
)
def test_declarations_that_contradict_each_other_are_refused(derivations: list[Derivation], message: str) -> None:
    with pytest.raises(DerivationProblem, match=message):
        ordered(derivations)


def test_declared_reads_are_what_a_derivation_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite tells which tables a query reads: none may be missing in the declaration."""
    monkeypatch.setattr(store, "_table_of", lambda _: None)  # no query is left out
    facts = Facts()
    facts.mark_covered(*(table_name(table) for table in TABLES if not is_derived(table)))
    anywhere = {"evidence", "covered", "sqlite_master", *(view.name for view in VIEWS)}  # SQLite names their tables too
    for one in ordered(discover()):
        asked: set[str] = set()

        def note(action: int, table: str | None, *_: object, asked: set[str] = asked) -> int:
            if action == sqlite3.SQLITE_READ:
                asked.add(str(table))
            return sqlite3.SQLITE_OK

        facts._db.set_authorizer(note)
        rows = list(one(facts) or ())
        facts._db.set_authorizer(None)
        facts.add(rows)
        if one.as_printed:  # sources filled all that it reads but what other derivations of that stage fill
            asked &= {table_name(table) for table in TABLES if is_derived(table)}
        assert asked - anywhere <= {table_name(table) for table in one.reads}, one.name


@pytest.mark.parametrize("log", ["", DEMO.read_text()], ids=["nothing", "a job"])
def test_a_query_that_is_left_out_would_find_nothing(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out: list[str] = []
    query = Facts.query

    def compared(facts: Facts, text: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows = query(facts, text, params)
        table = store._table_of(text)
        if table is not None and not facts._may_hold(table):
            left_out.append(text)
            assert [] == rows == facts._db.execute(text, params).fetchall()
        return rows

    monkeypatch.setattr(Facts, "query", compared)
    analyze.report_of(analyze.read_text(log))
    assert len(left_out) > 20


def test_a_derived_table_that_is_given_is_left_as_it_is() -> None:
    facts = Facts()
    ref = facts.evidence("example", 1, "x")
    facts.add([Link("a", "b", 0, "NET", None, "IB", 0, 1, 1, 1, ref), Process("a", 1, None, None, 1, 1, 1, None, ref)])
    derive_all(facts)
    assert 1 == len(facts.rows(Link))
    assert ["a"] == [host.name for host in facts.rows(Host)]
    assert 1 == len(facts.rows(Job))


def test_a_derivation_without_what_it_needs_does_not_count_as_covered() -> None:
    facts = Facts()
    derive_all(facts)
    assert {"job", "host", "rank", "link"} <= facts.covered()
    assert facts.covered().isdisjoint({"gpu_peer", "env_lint", "bench_limit", "node_odd", "earlier"})


def test_names_are_resolved_for_readers_and_kept_as_printed() -> None:
    facts = Facts()
    ref = facts.evidence("log", 1, "x")
    names = ("node01", "node01.cluster.example")
    facts.add(Process(name, pid, None, None, 1, 1, 1, None, ref) for pid, name in enumerate(names))
    derive_all(facts)
    assert ["node01", "node01"] == [row.host for row in facts.rows(Process)]
    assert list(names) == [host for (host,) in facts.query("SELECT host FROM main.process")]
    assert [("node01.cluster.example", "node01", "full-name")] == facts.query("SELECT name, host, why FROM host_alias")


def test_rows_that_come_after_names_were_settled_are_refused() -> None:
    facts = Facts()
    ref = facts.evidence("log", 1, "x")
    rows = [Process(name, 1, None, None, 1, 1, 1, None, ref) for name in ("node01", "node01.cluster.example")]
    facts.add(rows)
    derive_all(facts)
    with pytest.raises(ValueError, match="process"):
        facts.add(rows)


def test_kernel_lines_from_before_the_job_are_out_of_sight_and_not_deleted() -> None:
    facts = Facts()
    old = facts.evidence(
        "node01/kern.log", 1, "2024-05-01T10:00:00+00:00 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79"
    )
    new = facts.evidence(
        "node01/kern.log", 2, "2024-05-09T10:00:00+00:00 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 48"
    )
    job = facts.evidence("job.log", 1, "2024-05-09T09:59:00+00:00 node01:1:1 [0] NCCL INFO NET/IB")
    facts.add(
        Xid(None, "xid", "0000:3b:00", code, None, None, "", None, None, 1, None, ref)
        for code, ref in ((79, old), (48, new))
    )
    facts.add([Env("node01", 0, 1, "NCCL_DEBUG", "INFO", 1, job), Process("node01", 1, None, 0, 1, 1, 1, None, job)])
    derive_all(facts)
    assert [("node01", 48)] == [(row.host, row.code) for row in facts.rows(Xid)]
    assert [(None, 79), (None, 48)] == facts.query("SELECT host, code FROM main.xid")
    assert [(old,)] == facts.query("SELECT ref FROM earlier")


@pytest.mark.parametrize("statement", ["UPDATE process SET host = 'x'", "DELETE FROM process", "DROP TABLE process"])
def test_no_query_changes_a_fact(statement: str) -> None:
    facts = Facts()
    facts.add([Process("node01", 1, None, None, 1, 1, 1, None, facts.evidence("log", 1, "x"))])
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        facts.query(statement)
    assert ["node01"] == [row.host for row in facts.rows(Process)]


def test_a_saved_fact_base_holds_what_readers_saw(tmp_path: Path) -> None:
    facts = Facts()
    ref = facts.evidence("log", 1, "x")
    names = ("node01", "node01.cluster.example")
    facts.add(Process(name, pid, None, None, 1, 1, 1, None, ref) for pid, name in enumerate(names))
    derive_all(facts)
    facts.save(tmp_path / "job.db")
    again = Facts.open(tmp_path / "job.db")
    assert ["node01", "node01"] == [row.host for row in again.rows(Process)]
    assert (facts.covered(), facts.counts()) == (again.covered(), again.counts())


def test_an_import_of_all_derivations_stays_light() -> None:
    """`preflight` runs them in every prologue."""
    code = (
        "import sys; from nccl_doctor.derive.registry import discover; discover();"
        "print([name for name in ('pandas', 'numpy', 'textual', 'rich', 'statistics', 'decimal') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_steps_are_the_ordered_derivations() -> None:
    expected = [one.name for one in ordered(discover())]
    assert expected == [f"{step.module}.{step.function}" for step in steps()]


def test_a_module_is_imported_only_where_it_runs() -> None:
    """A look at a node imports nothing about speed: every prologue would pay for it."""
    code = (
        "import sys; from nccl_doctor.derive.registry import derive_all; from nccl_doctor.facts.store import Facts;"
        "facts = Facts(); facts.mark_covered('node_gpu', 'rdma_device'); derive_all(facts);"
        "print([m for m in sys.modules if m.startswith(('nccl_doctor.derive.speed.', 'nccl_doctor.derive.summary.'))])"
    )
    derive_all(Facts())  # the plan is kept now
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
