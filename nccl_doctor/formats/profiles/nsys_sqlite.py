"""Databases that Nsight Systems exports (`nsys export --type sqlite`): communication, other kernels, overlap and gaps by process and GPU.

The schema is that of NVIDIA's "SQLite Export Schema Reference": tables are created lazily, so that any of them may be missing,
and columns differ between versions. Names of kernels are numbers of rows in `StringIds`.
"""

import re
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from nccl_doctor.common.errors import why_not_kept
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceOp
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.profiles.gpu_time import Spans, collective_of, gpu_time, operation
from nccl_doctor.inputs.streams import Readable

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_NAMES = ("shortName", "demangledName", "name")  # of a kernel, the best first
_PLAIN_TABLE = re.compile(r"CREATE TABLE (?!.*\bAS\s*\()", re.IGNORECASE | re.DOTALL)
_ROWS = 50_000  # read at a time
_LONGEST_TEXT = 1 << 20  # bytes of a value; a hostile file may ask for more
_DURATIONS = 2_000_000  # kernels of collectives whose times are kept


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one database; of a damaged one what comes before the damage.

    Source: NVIDIA's schema reference (Nsight Systems 2020 to 2025), tables `CUPTI_ACTIVITY_KIND_KERNEL` and `StringIds`::

        start       end         deviceId  streamId  globalPid          shortName
        1204411200  1205233440  0         7         282675523420160    42        -- 42: ncclDevKernel_AllReduce_Sum_f32_RING_LL
    """
    facts.mark_covered("trace", "trace_op")
    try:
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:  # it may be in an archive, compressed or a pipe
            while data := stream.read(1 << 20):
                copy.write(data)
            return _read_copy(Path(copy.name), _fit_header(copy), name, facts)
    except sqlite3.Error as error:
        return Reading(0, 0, f"is no database that SQLite can read: {error}")
    except OSError as error:
        return Reading(0, 0, f"was not read, because a copy of it {why_not_kept(error)}")


def _read_copy(copy: Path, cut: bool, name: str, facts: Facts) -> Reading:
    with closing(_opened(copy)) as database:
        reading = _read(database, name, facts, cut)
    if cut and reading.understood:
        return reading._replace(note="is cut; what is left of it was read")
    return reading


def _fit_header(file: IO[bytes]) -> bool:
    """Lower the number of pages in the header of a cut file to those that it has; SQLite reads none otherwise."""
    size = file.tell()
    file.seek(16)
    page = int.from_bytes(file.read(2), "big")
    pages = size // (page if page != 1 else 1 << 16) if page else 0
    file.seek(28)
    cut = 0 < pages < int.from_bytes(file.read(4), "big")
    if cut:
        file.seek(28)
        file.write(pages.to_bytes(4, "big"))
    file.flush()
    return cut


def _opened(path: Path) -> sqlite3.Connection:
    """A connection that reads tables and nothing else: no view, no function of the file's own, no other file."""
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.execute("PRAGMA trusted_schema = OFF")
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
    return database


class _Place(NamedTuple):
    """A GPU as one process sees it."""

    process: int  # `globalPid`
    gpu: int


class _Times:
    """What one process did on one GPU."""

    def __init__(self) -> None:
        self.compute, self.comm, self.copy = Spans(), Spans(), Spans()
        self.calls: dict[str, list[float]] = defaultdict(list)  # operation -> ms of each kernel
        self.events = 0


class _Database:
    """The tables of one file; those with other columns than expected count as missing."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.problem: str | None = None
        # a view, a virtual table or a computed column could run for ever
        tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        self.known = {name for name, sql in tables if _PLAIN_TABLE.match(str(sql))}

    def columns(self, table: str) -> set[str]:
        if table not in self.known:
            return set()
        return {column[0] for column in self._database.execute(f'SELECT * FROM "{table}" LIMIT 0').description}

    def rows(self, table: str, *columns: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a table by the thousand; ends where the file is damaged, and `problem` says so."""
        if not self.columns(table).issuperset(columns):
            return
        shown = ", ".join(f'"{column}"' for column in columns)
        found: list[tuple[Any, ...]] = []
        try:
            for row in self._database.execute(f'SELECT {shown} FROM "{table}"'):
                found.append(row)
                if len(found) == _ROWS:
                    yield found
                    found = []
        except (sqlite3.Error, OverflowError) as error:
            self.problem = f"is damaged in table {table}, which was read up to there: {error}"
        yield found


def _read(connection: sqlite3.Connection, name: str, facts: Facts, cut: bool) -> Reading:
    database = _Database(connection)
    times: dict[_Place, _Times] = defaultdict(_Times)
    collectives = _collectives(database)
    column = next((one for one in _NAMES if one in database.columns(_KERNELS)), None)
    if column is not None:
        for rows in _intervals(database, _KERNELS, column):
            _add_kernels(times, rows, collectives)
    for table in _COPIES:
        for rows in _intervals(database, table):
            for place, start, stop, _ in rows:
                times[place].copy.add(start, stop)
                times[place].events += 1
    graphs = 0
    for rows in _intervals(database, _GRAPHS):
        for place, start, stop, _ in rows:
            times[place].compute.add(start, stop)
            times[place].events += 1
            graphs += 1
    facts.add(_facts(database, facts, name, times, complete=not cut and database.problem is None))
    events = sum(one.events for one in times.values())
    return Reading(events, events, _note(database, times, graphs))


def _note(database: _Database, times: dict[_Place, _Times], graphs: int) -> str | None:
    if database.problem is not None:
        return database.problem
    if not times:
        return "holds no kernel and no copy: record with `nsys profile --trace=cuda`"
    left_out = sum(spans.left_out for one in times.values() for spans in (one.compute, one.comm, one.copy))
    if left_out:
        return f"holds more kernels than are compared; {left_out:,} were left out"
    if graphs:
        return (
            f"shows {graphs:,} launches of CUDA graphs as a whole, which may hold collectives;"
            " `nsys profile --cuda-graph-trace=node` shows their kernels"
        )
    return None


_Interval = tuple[_Place, float, float, Any]  # start and end in us, name


def _intervals(database: _Database, table: str, *more: str) -> Iterator[list[_Interval]]:
    """The intervals of a table by the thousand; rows that are no intervals are left out."""
    columns = database.columns(table)
    process = "globalPid" if "globalPid" in columns else None
    asked = ("start", "end", "deviceId", *([process] if process else []), *more)
    for rows in database.rows(table, *asked):
        found = []
        for start, stop, gpu, *rest in rows:
            if isinstance(start, int) and isinstance(stop, int) and isinstance(gpu, int) and stop >= start:
                owner = rest[0] if process and isinstance(rest[0], int) else 0
                found.append((_Place(owner, gpu), start / 1000, stop / 1000, rest[-1] if more else None))
        yield found


def _collectives(database: _Database) -> dict[Any, str]:
    """Number of a string -> operation, for names of kernels of NCCL and RCCL."""
    found: dict[Any, str] = {}
    for rows in database.rows("StringIds", "id", "value"):
        for number, value in rows:
            if isinstance(value, str) and (op := collective_of(value)) is not None:
                found[number] = operation(op)
    return found


def _add_kernels(times: dict[_Place, _Times], rows: list[_Interval], collectives: dict[Any, str]) -> None:
    for place, start, stop, name in rows:
        mine = times[place]
        mine.events += 1
        op = collectives.get(name)
        if op is None and isinstance(name, str) and (found := collective_of(name)) is not None:
            op = operation(found)
        if op is None:
            mine.compute.add(start, stop)
            continue
        mine.comm.add(start, stop)
        if len(mine.calls[op]) < _DURATIONS:
            mine.calls[op].append((stop - start) / 1000)


def _facts(
    database: _Database, facts: Facts, file: str, times: dict[_Place, _Times], *, complete: bool
) -> Iterator[Trace | TraceOp]:
    environment = {
        key: value for rows in database.rows("TARGET_INFO_SYSTEM_ENV", "name", "value") for key, value in rows
    }
    host = environment.get("Hostname")
    models = {number: model for rows in database.rows("TARGET_INFO_GPU", "id", "name") for number, model in rows}
    devices = {
        (pid, cuda): gpu
        for rows in database.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        for pid, cuda, gpu in rows
    }
    for number, (place, mine) in enumerate(sorted(times.items()), 1):
        pid = place.process >> 24 & 0xFFFFFF
        model = models.get(devices.get((pid, place.gpu), place.gpu))
        spent = gpu_time(mine.compute, mine.comm, mine.copy)
        who = f"process {pid}, GPU {place.gpu}" if pid else f"GPU {place.gpu}"
        text = (
            f"{who}: {mine.events:,} kernels and copies over {spent.span_s:.2f} s; communication {spent.comm_s:.2f} s;"
            f" other kernels {spent.compute_s:.2f} s; communication alone {spent.exposed_s:.2f} s; longest gap {spent.gap_s:.3f} s"
        )
        ref = facts.evidence(file, number, text)
        yield Trace(
            file=file, host=host if isinstance(host, str) else None, rank=None, world=None, backend=None,
            device=model if isinstance(model, str) else None, tool="nsys", accelerator="cuda", workload=None, gpu=place.gpu,
            events=mine.events, input_s=None, steps=None, step_s=None, steps_s=None,
            complete=int(complete), ref=ref, **spent._asdict(),
        )  # fmt: skip
        for op, took in sorted(mine.calls.items()):
            yield TraceOp(
                file=file, host=host if isinstance(host, str) else None, rank=None, op=op, place="gpu", n=len(took),
                total_ms=sum(took), median_ms=float(np.median(took)), min_ms=min(took), max_ms=max(took), ref=ref,
            )  # fmt: skip
