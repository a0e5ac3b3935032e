"""Saved fact bases: any path, any file system, and files that somebody else made."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuSample, Input


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def facts() -> Facts:
    facts = Facts()
    facts.add([Input(f"{number}.log", "text", 1, 1, 0, 0, None) for number in range(2000)])
    facts.evidence("a.log", 1, "a line")
    return facts


@pytest.mark.parametrize("name", ["a.db", "a#b.db", "a?mode=rwc.db", "a%41.db", "file:a.db", "a b'\".db", "a\udcff.db"])
def test_every_path_can_be_saved_and_opened(facts: Facts, tmp_path: Path, name: str) -> None:
    facts.save(tmp_path / name)

    assert 2000 == len(Facts.open(tmp_path / name).rows(Input))
    assert [name] == names(tmp_path)


def test_no_file_appears_beside_a_base_in_another_journal_mode(facts: Facts, tmp_path: Path) -> None:
    facts.save(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")

    assert 2000 == len(Facts.open(tmp_path / "a.db").rows(Input))
    assert ["a.db"] == names(tmp_path)


def test_a_name_that_is_no_utf_8_takes_a_base_with_other_host_names(facts: Facts, tmp_path: Path) -> None:
    facts.restate(Input, "SELECT * FROM main.input WHERE path < '2'")
    path = tmp_path / os.fsdecode(b"a\xff.db")
    facts.save(path)
    assert len(facts.rows(Input)) == len(Facts.open(path).rows(Input)) > 0


@pytest.mark.parametrize("number", ["-9e999", "1.7e308"])
def test_a_base_with_an_infinite_number_is_refused(number: str, tmp_path: Path) -> None:
    facts = Facts()
    facts.add([GpuSample("a", 0, "x.csv", 1.0, 60.0, 5, 1.0, 0.5, None, None, 1)])
    facts.save(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute(f"UPDATE gpu_sample SET util_mean = {number}")
        db.commit()
    with pytest.raises(QueryProblem, match="wrong type in table gpu_sample"):
        Facts.open(tmp_path / "a.db")


def test_processes_of_two_hosts_that_have_one_number_save_one_name_at_once(facts: Facts, tmp_path: Path) -> None:
    """A process of another host or container that has our number saves between our first byte and our last."""
    save = facts._save

    def save_twice(part: Path) -> None:
        save(part)
        facts._save = save  # type: ignore[method-assign]
        facts.save(tmp_path / "a.db")
        assert part.stat().st_size > 0

    facts._save = save_twice  # type: ignore[method-assign]
    facts.save(tmp_path / "a.db")

    assert 2000 == len(Facts.open(tmp_path / "a.db").rows(Input))
    assert ["a.db"] == names(tmp_path)


def test_a_path_that_does_not_exist_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(QueryProblem):
        Facts.open(tmp_path / "none#x.db")
    assert [] == names(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE input; CREATE VIEW input AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "DROP TABLE input",
        "ALTER TABLE input ADD COLUMN more AS (printf('%.*c', 1000000, 'x'))",
        "DROP TABLE input; CREATE VIRTUAL TABLE input USING fts5(path)",
        "DROP TABLE covered; CREATE TABLE covered (other TEXT)",
    ],
    ids=["view", "absent", "computed", "virtual", "other columns"],
)
def test_a_table_that_is_none_is_refused(facts: Facts, tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.db"
    facts.save(path)
    with sqlite3.connect(path) as db:
        db.executescript(change)
    with pytest.raises(QueryProblem, match=r"input|covered"):
        Facts.open(path)


@pytest.mark.parametrize("value", ["'many'", "x'00'", "NULL", "1.5"])
def test_a_value_of_the_wrong_type_is_refused(facts: Facts, tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.db"
    facts.save(path)
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE input SET lines = {value} WHERE path = '7.log'")
    with pytest.raises(QueryProblem, match="wrong type in table input"):
        Facts.open(path)


@pytest.mark.parametrize("page", range(1, 40, 3))
def test_damaged_pages_end_with_a_sentence(facts: Facts, tmp_path: Path, page: int) -> None:
    path = tmp_path / "a.db"
    facts.save(path)
    data = bytearray(path.read_bytes())
    data[page * 4096 : page * 4096 + 200] = os.urandom(200)
    path.write_bytes(data)
    try:
        opened = Facts.open(path)
    except QueryProblem as problem:
        said = str(problem)
    else:
        said = f"{path} holds {len(opened.rows(Input))} rows"
    assert said.startswith(str(path))
    assert "\n" not in said


def test_nothing_is_left_of_a_base_that_could_not_be_saved(facts: Facts, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"the old one")
    (tmp_path / "link.db").symlink_to(path)

    class Full(Exception):
        pass

    def fail(_: Path) -> None:
        raise Full

    facts._save = fail  # type: ignore[method-assign]
    with pytest.raises(Full):
        facts.save(path)
    assert b"the old one" == path.read_bytes()
    assert ["a.db", "link.db"] == names(tmp_path)

    del facts._save  # type: ignore[attr-defined]
    facts.save(tmp_path / "link.db")
    assert b"the old one" == path.read_bytes()
    assert 2000 == len(Facts.open(tmp_path / "link.db").rows(Input))
