"""A fact base as a file: written beside its name and renamed, read table by table and checked, because others may have made it.

Of a file that is read only the rows of known tables count. Its views, triggers, computed columns and virtual tables are
neither run nor copied, and a value of another type than its column is refused.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from nccl_doctor.common import budgets
from nccl_doctor.facts.storable import LARGEST

SQL_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bool: "INTEGER"}
_STORED = {"INTEGER": "'integer'", "REAL": "'real', 'integer'", "TEXT": "'text'"}
Tables = dict[str, dict[str, tuple[str, bool]]]  # table -> column -> its type in SQL, and whether it may be NULL


class Unreadable(Exception):
    """Why a file cannot be read as a fact base, without the name of the file."""


def uri(path: Path) -> str:
    """The name of a file that SQLite opens for reading only, whatever characters it holds.

    `immutable`: without it SQLite makes files beside one that somebody switched to the journal mode WAL.
    """
    return f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"


def load(db: sqlite3.Connection, path: Path, application: int, layout: int, tables: Tables) -> None:
    """Copy the tables of a file into a database that has them empty. Raises Unreadable."""
    try:
        with closing(sqlite3.connect(uri(path), uri=True)) as source:
            source.execute("PRAGMA trusted_schema = OFF")
            if source.execute("PRAGMA application_id").fetchone()[0] != application:
                raise Unreadable("is no fact base of nccl-doctor")
            if source.execute("PRAGMA user_version").fetchone()[0] != layout:
                raise Unreadable("was saved by another version of nccl-doctor; analyze the log again")
            for table, columns in tables.items():
                _copy(source, db, table, columns)
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise Unreadable(f"cannot be read as a fact base: {str(error).splitlines()[0]}") from None


def _copy(source: sqlite3.Connection, db: sqlite3.Connection, table: str, columns: dict[str, tuple[str, bool]]) -> None:
    declared = source.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if declared is None or declared[0] != "table" or not str(declared[1]).upper().startswith("CREATE TABLE"):
        raise Unreadable(f"holds no table {table}")
    stored = {name: hidden for _, name, _, _, _, _, hidden in source.execute(f"PRAGMA table_xinfo({table})")}
    if stored != dict.fromkeys(columns, 0):
        raise Unreadable(f"has other columns in table {table}")
    names = ", ".join(f'"{name}"' for name in columns)
    wrong = " OR ".join(
        f'typeof("{name}") NOT IN ({_STORED[type_]}{", " + chr(39) + "null" + chr(39) if empty else ""})'
        for name, (type_, empty) in columns.items()
    )
    for name, (type_, _) in columns.items():
        if type_ == "REAL":
            wrong += f' OR abs("{name}") >= {LARGEST}'
    most = budgets.limit("rows")
    marks = ", ".join("?" * len(columns))
    rows = source.execute(f"SELECT {names}, {wrong} FROM {table}")
    db.execute("BEGIN")
    try:
        for number, (*values, is_wrong) in enumerate(rows, 1):
            if is_wrong:
                raise Unreadable(f"holds a value of the wrong type in table {table}")
            if number > most:
                raise Unreadable(f"holds more than {most:,} rows in table {table}; {budgets.reached('rows')}")
            db.execute(f"INSERT INTO {table} VALUES ({marks})", values)
    finally:
        db.execute("COMMIT")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file in the folder of `path`, which takes its name in the end; nothing is left of it after an error."""
    import tempfile  # most bases are not saved

    handle, name = tempfile.mkstemp(prefix=".nccl-doctor.", dir=path.parent)  # random: other hosts may save here too
    part = Path(name)
    try:
        os.close(handle)
        yield part
        part.replace(path)
    except BaseException:
        for left in (part, part.with_name(f"{part.name}-journal")):
            with suppress(OSError):
                left.unlink()
        raise
