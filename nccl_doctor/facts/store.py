"""The fact base: an SQLite database with one table for each class in `tables`, and the only way for rules to query it.

A query of a rule or of the `sql` command runs under the guard of `facts.guard`.
"""

import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from nccl_doctor.common import budgets
from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts import guard, old_sqlite, saved, schema, views
from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.places import Places, places_for
from nccl_doctor.facts.schema import by_name, column_types, table_name
from nccl_doctor.facts.sql_functions import register_functions
from nccl_doctor.facts.storable import is_absurd, storable
from nccl_doctor.facts.tables import TABLES, Evidence

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
BATCH = 5_000  # rows inserted at once
_LONGEST = 2000  # characters of a piece of evidence
VALUES = 990  # in a statement; old releases of SQLite take 999
_SIMPLE = compiled(r"(?!.*\b(?:UNION|RIGHT|FULL|HAVING)\b)\s*SELECT\s[^()']*?\sFROM\s+(\w+)\b", re.DOTALL)
INDEXED = 50  # rows of a table from which an index is worth making


class Facts:
    """A fact base in memory, or the content of a saved one."""

    def __init__(self, path: Path | None = None) -> None:
        self._db = old_sqlite.connect()
        finalize(self, _close, self._db).atexit = False
        schema.empty().backup(self._db)
        self._evidence: dict[str, Places] = {}  # file -> line -> number
        self._source_lines: dict[str, Callable[[int], int]] = {}  # file -> from lines that were read to its own
        self._read_lines: dict[int, int] = {}  # of evidence of such files: which of the lines that were read it is
        self._records: dict[tuple[str, int, str], int] = {}  # of those in one line with another, the further ones
        self._texts: dict[tuple[str, str], int] = {}  # (file, text) -> number, of `text_evidence`
        self._waiting: dict[type, list[Any]] = defaultdict(list)  # table -> rows that are still to be inserted
        self._numbers = 0
        self._inserted = 0  # rows of all tables
        self._filled: dict[type, int] = {}  # table -> rows that were added
        self.restated: frozenset[type] = frozenset()  # tables that `restate` replaced
        self._covered: set[str] = set()
        self.cut: dict[str, int] = {}  # table -> rows that were left out because the budget was used up
        if path is not None:
            self._load(path)
        for statement in views.statements():
            self._db.execute(statement)
        self._db.execute("PRAGMA query_only = ON")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, guard.LONGEST)
        register_functions(self._db)

    def _load(self, path: Path) -> None:
        try:
            saved.load(self._db, path, schema.APPLICATION_ID, schema.LAYOUT, schema.stored())
        except saved.Unreadable as problem:
            raise QueryProblem(f"{path} {problem}") from None
        for number, file, line in self._db.execute("SELECT id, file, line FROM evidence"):
            self._evidence.setdefault(file, Places())[line] = number
        self._covered = {name for (name,) in self._db.execute("SELECT name FROM covered")}
        self._numbers = sum(map(len, self._evidence.values()))
        self._filled = {table: self._count(table) for table in TABLES}
        self._inserted = sum(self._filled.values())

    @classmethod
    def open(cls, path: Path) -> "Facts":
        """Read a fact base that `save` wrote. Raises QueryProblem where the file is something else."""
        return cls(path)

    def save(self, path: Path, also: Callable[[Path], object] = Path.exists) -> None:
        """Write everything to a file that sqlite3, pandas, datasette and `open` read; `also` may add to it."""
        self._flush()
        with saved.replacing(path) as part:
            self._save(part)
            also(part)

    def _save(self, path: Path) -> None:
        target = sqlite3.connect(path, isolation_level=None)
        try:
            if not self.restated:
                self._db.backup(target)
                return
            schema.empty().backup(target)
        finally:
            target.close()
        with self._writing():
            self._db.execute("ATTACH ? AS saved", (os.fsencode(path.absolute()),))  # a name may be no UTF-8
            try:
                for name in ("covered", *by_name()):
                    self._db.execute(f"INSERT INTO saved.{name} SELECT * FROM {name}")
            finally:
                self._db.execute("DETACH saved")

    def evidence(self, file: str, line: int, text: str) -> int:
        """The number of this place, for `ref` columns; asking twice gives the same number."""
        lines = self._evidence.get(file)
        if lines is None:
            lines = self._evidence[file] = Places()
        number = lines.get(line)
        if number is None:
            number = lines[line] = self._add_evidence(file, line, text)
        return number

    def _add_evidence(self, file: str, line: int, text: str) -> int:
        number = self._numbers = self._numbers + 1
        at = line
        if file in self._source_lines:
            at = self._source_lines[file](line)
            self._read_lines[number] = line
        waiting = self._waiting[Evidence]
        waiting.append((number, file, at, text[:_LONGEST]))
        if len(waiting) >= BATCH:
            self._insert_waiting(Evidence)
        return number

    def evidence_of(self, file: str, lines: Sequence[int], texts: Sequence[str]) -> Sequence[int]:
        """As `evidence`, for many records of a file; of records that share a line, each has a number of its own."""
        known = self._evidence.setdefault(file, Places())
        if file in self._source_lines or not known.add_new(lines, self._numbers + 1):
            return [self._record(file, line, text) for line, text in zip(lines, texts, strict=True)]
        numbers = range(self._numbers + 1, self._numbers + 1 + len(lines))
        self._numbers += len(lines)
        self._insert(Evidence, zip(numbers, repeat(file), lines, (text[:_LONGEST] for text in texts)))
        return numbers

    def _record(self, file: str, line: int, text: str) -> int:
        """The number of a record: that of its line, if no other record has it."""
        text = text[:_LONGEST]
        number = self.evidence(file, line, text)
        mine, shown = " ".join(text.split()), " ".join(self._text(number).split())
        if mine in shown or shown in mine:
            return number
        if (file, line, text) not in self._records:
            self._records[file, line, text] = self._add_evidence(file, line, text)
        return self._records[file, line, text]

    def _text(self, number: int) -> str:
        """The text of a piece of evidence."""
        waiting = self._waiting[Evidence]
        if (at := number - self._numbers - 1 + len(waiting)) >= 0:
            return str(waiting[at][3])
        return str(self._db.execute("SELECT text FROM evidence WHERE id = ?", (number,)).fetchone()[0])

    def expect(self, file: str, lines: int, evidence: int) -> None:
        """Prepare for about so many places of a file of so many lines; what is known of it already stays as it is."""
        if file not in self._evidence:
            self._evidence[file] = places_for(lines, evidence)

    def number_lines(self, file: str, source_line: Callable[[int], int]) -> None:
        """Have evidence of a file name the line that `source_line` gives for the one that was read."""
        self._source_lines[file] = source_line

    def read_line(self, place: Evidence) -> int:
        """Which of the lines of its file a place is, in the order in which they were written by the job."""
        return self._read_lines.get(place.id, place.line)

    def text_evidence(self, file: str, text: str, line: int = 1) -> int:
        """As `evidence`, for what has no lines, such as an environment: each text of it gets a line of its own."""
        number = self._texts.get((file, text))
        if number is None:
            lines = self._evidence.get(file, Places())
            if line in lines:
                line = len(lines) + 1
                while line in lines:
                    line += 1
            number = self._texts[file, text] = self.evidence(file, line, text)
        return number

    def _flush(self) -> None:
        """Insert what waits; every reader calls it first."""
        for table in list(self._waiting):
            self._insert_waiting(table)

    def _insert(self, table: type, rows: Iterable[Any]) -> None:
        """Insert rows of a table once there are many: those of one log may be few, and there may be 100,000 logs."""
        if table in self.restated:
            raise ValueError(f"rows for {table_name(table)} come after host names were settled")
        waiting = self._waiting[table]
        waiting += rows if table is Evidence else self._within_budget(table, list(rows))
        if len(waiting) >= BATCH:
            self._insert_waiting(table)

    def _insert_waiting(self, table: type) -> None:
        rows = self._waiting.pop(table)
        try:
            if not is_absurd(rows, schema.reals(table)):
                self._insert_all(table, rows)
                return
        except (OverflowError, UnicodeEncodeError):
            pass
        self._insert_all(table, list(storable(rows, [name in schema.optional(table) for name in column_types(table)])))

    def _within_budget(self, table: type, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows that the table may still take; `cut` counts the others."""
        before = self._filled.get(table, 0)
        kept = rows[: max(budgets.limit("rows") - before, 0)]
        self._filled[table] = before + len(kept)
        if len(kept) < len(rows):
            name = table_name(table)
            self.cut[name] = self.cut.get(name, 0) + len(rows) - len(kept)
        return kept

    def _insert_all(self, table: type, rows: Sequence[Any]) -> None:
        if rows:
            self._inserted += len(rows)
            marks = f"({', '.join('?' * len(rows[0]))})"
            size = VALUES // len(rows[0])  # several rows a statement take two thirds of the time
            rest = len(rows) % size
            into = f"INSERT INTO {table_name(table)} VALUES "
            groups = (list(chain.from_iterable(rows[at : at + size])) for at in range(rest, len(rows), size))
            with self._writing():
                self._db.execute("BEGIN")
                try:
                    self._db.executemany(into + marks, rows[:rest])
                    if rest < len(rows):  # SQLite takes longer to parse the statement than to insert a few rows
                        self._db.executemany(into + ", ".join([marks] * size), groups)
                except BaseException:
                    if self._db.in_transaction:  # SQLite itself gives up where the memory or the disk is full
                        self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")

    def add(self, rows: Iterable[Any]) -> None:
        """Insert rows of any tables (instances of the classes in `tables`)."""
        groups: dict[type, list[Any]] = {}
        for row in rows:
            group = groups.get(type(row))
            if group is None:
                group = groups[type(row)] = []
            group.append(row)
            if len(group) >= BATCH:
                self._insert(type(row), group)
                group.clear()
        for table, group in groups.items():
            self._insert(table, group)
            self.mark_covered(table_name(table))

    def fill(self, table: type, rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of one table, given as plain tuples or lists: for those of which there may be hundreds of thousands."""
        rows = iter(rows)
        while batch := list(islice(rows, BATCH)):
            self._insert(table, batch)
            self.mark_covered(table_name(table))

    def restate(self, table: type, query: str) -> None:
        """Replace this table, for readers, by the rows of a query.

        The added rows stay, as `main.TABLE`. Raises ValueError where the table was restated before.
        """
        self._flush()
        if table in self.restated:
            raise ValueError(f"{table_name(table)} was restated before")
        self.restated |= {table}
        with self._writing():
            # Found before the one in main.
            self._db.execute(f"CREATE TEMP TABLE {table_name(table)} ({schema.columns(table)})")
            self._db.execute(f"INSERT INTO temp.{table_name(table)} {query}")

    def index(self) -> None:
        """Index the columns by which queries join. Call when the tables are filled; rules are linear in facts only after it."""
        self._flush()
        with self._writing():
            for table, indexes in schema.joined().items():
                if self._may_hold(table, INDEXED + 1) and self._exceeds(table, INDEXED):
                    place = "temp" if table in self.restated else "main"
                    for columns in indexes:
                        self._db.execute(schema.index(table, columns, place))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """SQLite refuses any change outside of this, so that no query updates or deletes a fact."""
        self._db.execute("PRAGMA query_only = OFF")
        try:
            yield
        finally:
            self._db.execute("PRAGMA query_only = ON")

    def mark_covered(self, *names: str) -> None:
        """Record that a source was read that fills these tables, so that an empty table means that there was nothing to find."""
        new = set(names) - self._covered
        if new:
            self._covered |= new
            with self._writing():
                self._db.executemany("INSERT INTO covered VALUES (?)", [(name,) for name in sorted(new)])

    def covered(self) -> set[str]:
        """Names of the tables that a source or a derivation filled or would have filled."""
        return set(self._covered)

    def rows(self, table: type[T]) -> list[T]:
        """All rows of a table."""
        if not self._may_hold(table):
            return []
        self._flush()
        make: Callable[[Any], T] = table._make  # type: ignore[attr-defined]
        return list(map(make, self._db.execute(f"SELECT * FROM {table_name(table)}")))

    def counts(self) -> dict[str, int]:
        """Table name -> number of rows."""
        self._flush()
        return {table_name(table): self._count(table) if self._may_hold(table) else 0 for table in TABLES}

    def _count(self, table: type) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table_name(table)}").fetchone()[0])

    def _exceeds(self, table: type, rows: int) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table_name(table)} LIMIT 1 OFFSET {rows}").fetchone() is not None

    def _may_hold(self, table: type, rows: int = 1) -> bool:
        """Whether a table may have so many rows; says it without a query, which counts where there are hundreds of empty tables."""
        return table is Evidence or table in self.restated or self._filled.get(table, 0) >= rows

    def may_hold(self, name: str) -> bool:
        """Whether a table of this name may have a row, without a query."""
        return self._may_hold(by_name()[name])

    def evidence_rows(self, refs: Iterable[int]) -> list[Evidence]:
        """The evidence rows of these numbers, in the order of the input."""
        self._flush()
        numbers = sorted(set(refs))
        found: list[Evidence] = []
        for start in range(0, len(numbers), 500):
            part = numbers[start : start + 500]
            marks = ", ".join("?" * len(part))
            found += [Evidence(*row) for row in self._db.execute(f"SELECT * FROM evidence WHERE id IN ({marks})", part)]
        return found

    def each(self, query: str, params: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """As `query`, one row after the other: for those of which there may be hundreds of thousands."""
        self._flush()
        yield from self._db.execute(query, params)

    def query(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query of this package: no guard and no limit; SQLite refuses any change."""
        table = _table_of(query)
        if table is not None and not self._may_hold(table):
            return []
        self._flush()
        return self._db.execute(query, params).fetchall()

    def sql(
        self, query: str, limit: int | None = None, params: dict[str, Any] | None = None, steps: int | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a foreign query under the guard. Returns column names and rows. Raises QueryProblem, one line."""
        with self.asked(query, params, steps) as (columns, rows):
            return columns, list(islice(rows, limit))

    @contextmanager
    def asked(
        self, query: str, params: dict[str, Any] | None = None, steps: int | None = None, *, authorized: bool = False
    ) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
        """As `sql`, for any number of rows: column names, and the rows as they are read.

        `authorized` as in `guard.guarded`. The limit counts steps of SQLite, by default in proportion to the facts, so
        that no slow machine exceeds it.
        """
        self._flush()
        limit = guard.StepLimit(steps or guard.STEPS + guard.STEPS_OF_ROW * self._inserted)
        with (
            guard.guarded(self._db, limit, authorized=authorized),
            closing(self._db.execute(query, params or {})) as cursor,
        ):
            yield [column[0] for column in cursor.description or ()], guard.bounded(cursor)

    def frame(self, query: str) -> "pandas.DataFrame":
        """The answer to a query as a pandas DataFrame."""
        import pandas

        columns, rows = self.sql(query)
        return pandas.DataFrame.from_records(rows, columns=columns)


@lru_cache(1024)
def _table_of(query: str) -> type | None:
    """The table whose rows a simple query selects from, none of which it makes itself; None for any other query."""
    found = _SIMPLE.match(query)
    return by_name().get(found[1]) if found is not None else None


def _close(database: sqlite3.Connection) -> None:
    """Free the memory of a database: its connection refers to itself, and the next collection of garbage may be far away."""
    with suppress(sqlite3.ProgrammingError):  # this is another thread
        database.close()
