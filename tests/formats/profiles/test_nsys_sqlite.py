"""Databases of Nsight Systems, made by its documented schema: sums by hand and by a plain reading, damaged and hostile files."""

import io
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceOp
from nccl_doctor.formats import registry

sys.path.insert(0, str(FIXTURES / "make"))

import nsys as make


def read(path: Path) -> tuple[Facts, registry.Reading]:
    facts, data = Facts(), path.read_bytes()
    known = registry.recognise(data[:65_536])
    assert known is not None
    assert "nsys-database" == known.kind
    return facts, registry.read_file(known, io.BytesIO(data), path.name, facts)


def test_sums_by_hand() -> None:
    report, facts, problems = analyze.analyze([str(FIXTURES / "torch" / "nsys.sqlite")])
    first, second = sorted(facts.rows(Trace), key=lambda row: row.exposed_s or 0, reverse=True)
    assert ("node01", "NVIDIA H100 80GB HBM3", 0) == (first.host, first.device, first.gpu)
    assert ("nsys", 101, 100) == (first.tool, first.events, second.events)
    assert (0.0498, 0.03, 0.015, 0.01, 0.00005) == pytest.approx(
        (first.span_s, first.compute_s, first.comm_s, first.exposed_s, first.copy_s)
    )
    assert (0.0498 - 0.04 - 0.00005, 0.0002) == pytest.approx((first.idle_s, first.gap_s))
    assert (0.005, 0.005, 0.0002) == pytest.approx((second.comm_s, second.exposed_s, second.gap_s))
    assert [("all_reduce", 50, 0.3), ("all_reduce", 50, 0.1)] == [
        (op.op, op.n, op.median_ms) for op in facts.rows(TraceOp)
    ]
    shares = {one.name: one.value for one in report.measures if one.scope == "gpu"}
    assert {"communication", "exposed_communication", "gpu_idle"} <= set(shares)
    assert [] == problems


def test_sums_agree_with_a_plain_reading(tmp_path: Path) -> None:
    """Random kernels, compared microsecond by microsecond."""
    chance = random.Random(3)
    rows = []
    for _ in range(400):
        start = chance.randrange(20_000)
        rows.append((4100, 0, start, start + chance.randrange(1, 120), chance.choice((1, 2, 3))))
    make.write(tmp_path / "a.sqlite", rows)
    talk, work = ([False] * 20_200, [False] * 20_200)
    for _, _, start, stop, name in rows:
        for at in range(start, stop):
            (work if name == 2 else talk)[at] = True
    row = read(tmp_path / "a.sqlite")[0].rows(Trace)[0]
    expected = (sum(work), sum(talk), sum(one and not other for one, other in zip(talk, work, strict=True)))
    assert expected == pytest.approx([1e6 * (one or 0) for one in (row.compute_s, row.comm_s, row.exposed_s)])


def test_a_cut_file_is_read_as_far_as_sqlite_can(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    make.write(path, make.steps(4100, 4000, 0))
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        facts, reading = read(path)
        assert reading.note is not None
        assert all(row.complete == 0 for row in facts.rows(Trace))
    assert reading.understood > 4000
    path.write_bytes(whole[:3000] + b"CUPTI_ACTIVITY_KIND" + bytes(5000))
    assert "no database that SQLite can read" in (read(path)[1].note or "")


def test_old_and_foreign_columns(tmp_path: Path) -> None:
    """No globalPid, names as texts, values that are no intervals; and a database without kernels."""
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, name)")
        rows = [
            (0, 1000, 0, "ncclKernel_AllReduce_RING_LL_Sum_float"),
            ("x", None, 0, "a"),
            (9, 3, 0, "b"),
            (5, 2000, 1, "gemm"),
        ]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?)", rows)
        database.commit()
    facts, reading = read(tmp_path / "a.sqlite")
    assert ([0, 1], 2, None) == ([row.gpu for row in facts.rows(Trace)], reading.understood, reading.note)
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as database:
        database.executescript("CREATE TABLE NVTX_EVENTS (start)")
    assert "holds no kernel" in (read(tmp_path / "b.sqlite")[1].note or "")


def test_graphs_are_told(tmp_path: Path) -> None:
    make.write(tmp_path / "a.sqlite", [(4100, 0, 0, 10, 2)])
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, globalPid INT)"
        )
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2, 0, 0)")
        database.commit()
    assert "--cuda-graph-trace=node" in (read(tmp_path / "a.sqlite")[1].note or "")


def test_nothing_but_tables_is_read(tmp_path: Path) -> None:
    """A view that never ends in the place of the kernels, and a column that is computed."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, 0 AS deviceId, 1 AS name FROM n"
    for number, statement in enumerate(
        (
            f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, name AS (printf('%.*c', 900000000, 'x')))",
        )
    ):
        path = tmp_path / f"{number}.sqlite"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(statement)
            if number:
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0)")
            database.commit()
        facts, reading = read(path)
        assert (0, True) == (len(facts.rows(Trace)), bool(reading.note))
