"""The fact base itself."""

import sqlite3
import threading

import pytest

from nccl_doctor.facts import old_sqlite
from nccl_doctor.facts.store import Facts


def test_the_memory_of_facts_that_nobody_holds_is_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server and a followed log open one after the other; a connection of SQLite may wait long for garbage collection."""
    opened: list[sqlite3.Connection] = []
    connect = old_sqlite.connect

    def kept() -> sqlite3.Connection:
        opened.append(connect())
        return opened[-1]

    monkeypatch.setattr(old_sqlite, "connect", kept)
    facts = Facts()
    assert [(1,)] == facts.query("SELECT 1")
    del facts
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_facts_may_be_dropped_in_another_thread(capsys: pytest.CaptureFixture[str]) -> None:
    held = [Facts()]
    dropping = threading.Thread(target=held.clear)
    dropping.start()
    dropping.join()
    assert "" == capsys.readouterr().err
