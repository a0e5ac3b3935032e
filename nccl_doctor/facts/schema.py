"""The tables of the fact base as SQL: names, columns, indexes, and an empty database."""

import re
import sqlite3
import types
import zlib
from functools import cache
from typing import Any, get_args

from nccl_doctor.common.parse_cache import remembered_bytes
from nccl_doctor.facts import saved
from nccl_doctor.facts.saved import SQL_TYPES
from nccl_doctor.facts.tables import TABLES, Evidence

APPLICATION_ID = 0x4E434344  # "NCCD", so that `file` and sniffers know a saved fact base
# Columns by which queries join tables; a class names others in `joined_by`, also in place of those that begin with the same one.
JOINED = ("host", "host, pid", "file", "run")
LAYOUT = 9  # raised when a table changes in a way that old files cannot be read


def table_name(table: type) -> str:
    """The SQL name of a table class: `NetDevice` -> `net_device`."""
    return _snake_case(table.__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@cache
def column_types(table: type) -> dict[str, type]:
    """Column name -> int, float or str, with the ``| None`` removed."""
    types_: dict[str, type] = {}
    annotations: dict[str, Any] = table.__annotations__  # real types: get_type_hints would take 6 ms for all tables
    for name, hint in annotations.items():
        if isinstance(hint, types.UnionType):
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
        types_[name] = hint
    return types_


@cache
def reals(table: type) -> list[int]:
    """The places of the columns that hold numbers with a fraction."""
    return [at for at, type_ in enumerate(column_types(table).values()) if type_ is float]


@cache
def by_name() -> dict[str, type]:
    """SQL name -> table class."""
    return {table_name(table): table for table in TABLES}


@cache
def joined() -> dict[type, list[str]]:
    """Table -> columns of each of its indexes."""
    indexes = {}
    for table in TABLES:
        if table is not Evidence:
            known, own = column_types(table).keys(), getattr(table, "joined_by", ())
            leading = {_leading(columns) for columns in own}
            wanted = [
                columns for columns in JOINED if _leading(columns) not in leading and known >= {*columns.split(", ")}
            ]
            indexes[table] = [columns for columns in wanted if columns != "host" or "host, pid" not in wanted]
            indexes[table] += own
    return indexes


def _leading(columns: str) -> str:
    return columns.split(", ")[0]


def columns(table: type) -> str:
    """The columns of a table in a CREATE TABLE statement."""
    listed = ", ".join(f'"{name}" {SQL_TYPES[type_]}' for name, type_ in column_types(table).items())
    return listed.replace('"id" INTEGER', '"id" INTEGER PRIMARY KEY') if table is Evidence else listed


def index(table: type, columns: str, schema: str) -> str:
    """The statement that makes an index."""
    name = table_name(table)
    return f"CREATE INDEX IF NOT EXISTS {schema}.{name}_{columns.replace(', ', '_')} ON {name} ({columns})"


def index_statements() -> list[str]:
    """The statements that make all indexes."""
    return [index(table, columns, "main") for table, indexes in joined().items() for columns in indexes]


@cache
def empty() -> sqlite3.Connection:
    """A database with all tables, which is copied for each fact base of this process: a quarter of the time.

    Making the tables takes 8 ms, so the database is kept as bytes.
    """
    tables = [f"CREATE TABLE {table_name(table)} ({columns(table)})" for table in TABLES]
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {LAYOUT}"]
    script = ";".join(["BEGIN", "CREATE TABLE covered (name TEXT PRIMARY KEY)", *tables, "COMMIT", *marks])
    db = _opened()
    if not hasattr(db, "deserialize"):  # Python may be built without it
        db.executescript(script)
        return db

    def make() -> bytes:
        db.executescript(script)
        return zlib.compress(db.serialize())

    kept = remembered_bytes("tables", f"{sqlite3.sqlite_version}\n{script}".encode(), make)
    db = _opened()
    db.deserialize(zlib.decompress(kept))
    return db


def _opened() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


@cache
def stored() -> saved.Tables:
    """What a saved file must hold."""
    tables = {table_name(table): table for table in TABLES}
    stored = {
        name: {column: (SQL_TYPES[type_], column in optional(table)) for column, type_ in column_types(table).items()}
        for name, table in tables.items()
    }
    return {"covered": {"name": ("TEXT", False)}, **stored}


@cache
def optional(table: type) -> frozenset[str]:
    """The columns whose value may be unknown."""
    return frozenset(name for name, hint in table.__annotations__.items() if type(None) in get_args(hint))
