"""Queries on old releases of SQLite, such as 3.34 of RHEL 9: what only newer ones parse is left out where it changes no row."""

import re
import sqlite3
from typing import Any

_MATERIALIZED_HINT = re.compile(
    r"\bAS\s+(?:NOT\s+)?MATERIALIZED\b", re.IGNORECASE
)  # of 3.35 and newer, for speed alone


class OldConnection(sqlite3.Connection):
    """A connection to SQLite 3.34 or older."""

    def execute(self, query: str, *params: Any) -> sqlite3.Cursor:
        return super().execute(without_hints(query), *params)


def without_hints(query: str) -> str:
    """The query without hints on when to make a table of a part of it."""
    return _MATERIALIZED_HINT.sub("AS", query)


def connect() -> sqlite3.Connection:
    """A new database in memory."""
    factory = sqlite3.Connection if sqlite3.sqlite_version_info >= (3, 35) else OldConnection
    return sqlite3.connect(":memory:", isolation_level=None, factory=factory)
