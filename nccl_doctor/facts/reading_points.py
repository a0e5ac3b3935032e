"""How far plain logs were read when a fact base was saved: kept in that file, in a table beside the facts.

Only a file of the same user that nobody else can write is believed.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.facts.saved import Unreadable, uri

_TABLE = "reading_point"


class ReadingPoint(NamedTuple):
    """A plain log, read up to the end of a line behind which nothing changes what was read."""

    file: str  # its absolute name
    size: int  # bytes that were read
    digest: str  # of these bytes
    counts: str  # what they hold


def write(path: Path, reader: str, points: Iterable[ReadingPoint]) -> None:
    """Add the points to a saved fact base; `reader` names the program and its patterns."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {_TABLE} (reader TEXT, file TEXT, size INTEGER, digest TEXT, counts TEXT)")
        db.executemany(f"INSERT INTO {_TABLE} VALUES (?, ?, ?, ?, ?)", [(reader, *point) for point in points])


def load(path: Path, application: int, reader: str) -> tuple[dict[str, ReadingPoint], str]:
    """The points of a saved fact base by file, and why there are none; nothing of both where the file does not exist yet.

    Raises Unreadable where the file is not a fact base.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        raise Unreadable(f"cannot be opened: {error.strerror}") from None
    if not found.st_size:
        return {}, ""
    if not _is_own(found):
        return {}, f"{path} can be written by other users"
    try:
        with closing(sqlite3.connect(uri(path), uri=True)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            if db.execute("PRAGMA application_id").fetchone()[0] != application:
                raise Unreadable("is no fact base of nccl-doctor")
            made = db.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (_TABLE,)).fetchone()
            if made is None or not str(made[0]).startswith("CREATE TABLE "):
                return {}, f"{path} does not say how far logs were read; it was not written by --resume"
            rows = db.execute(f"SELECT reader, file, size, digest, counts FROM {_TABLE}").fetchall()
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise Unreadable(f"cannot be read as a fact base: {str(error).splitlines()[0]}") from None
    if any(row[0] != reader for row in rows):
        return {}, f"{path} was written by another version of nccl-doctor"
    types = (str, int, str, str)
    return {row[1]: ReadingPoint(*row[1:]) for row in rows if (*map(type, row[1:]),) == types and row[2] > 0}, ""


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
