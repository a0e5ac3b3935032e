"""The empty database with all tables."""

import sqlite3
from pathlib import Path

import pytest

from nccl_doctor.common import parse_cache
from nccl_doctor.facts import schema
from nccl_doctor.facts.tables import TABLES, Connection, Process


class Plain(sqlite3.Connection):
    """A connection of a Python that was built without `serialize`."""

    def __getattribute__(self, name: str) -> object:
        if name in ("serialize", "deserialize"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_empty_database_has_all_tables_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    described = []
    for factory in (sqlite3.Connection, sqlite3.Connection, Plain):
        monkeypatch.setattr(
            schema,
            "_opened",
            lambda factory=factory: sqlite3.connect(":memory:", isolation_level=None, factory=factory),
        )
        schema.empty.cache_clear()
        db = schema.empty()
        marks = [db.execute(f"PRAGMA {mark}").fetchone() for mark in ("application_id", "user_version")]
        described.append((marks, db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()))
    schema.empty.cache_clear()
    assert described[0] == described[1] == described[2]
    assert {"covered", *map(schema.table_name, TABLES)} <= {name for name, _ in described[0][1]}


def test_a_damaged_kept_database_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    schema.empty.cache_clear()
    wanted = schema.empty().execute("SELECT sql FROM sqlite_master").fetchall()
    monkeypatch.setattr(schema, "remembered_bytes", _kept_in(tmp_path))
    for _ in range(2):
        schema.empty.cache_clear()
        assert wanted == schema.empty().execute("SELECT sql FROM sqlite_master").fetchall()
        for file in (tmp_path / "kept").iterdir():
            file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    schema.empty.cache_clear()


def test_a_table_that_is_joined_by_columns_of_its_own_has_no_second_index_that_begins_with_the_same_one() -> None:
    of_table = schema.joined()
    assert ["host, pid"] == of_table[Process]
    assert ["host, device, transport"] == of_table[Connection]
    for table, indexes in of_table.items():
        leading = [columns.split(", ")[0] for columns in indexes]
        assert len({*leading}) == len(leading), table


def _kept_in(folder: Path):  # type: ignore[no-untyped-def]
    return lambda name, key, make: parse_cache.remembered_bytes(name, key, make, folder / "kept")
