"""Output of nccl-tests (`all_reduce_perf` and its sisters): tables inside a log, in all versions, and the JSON of `-J`.

In a log the rows share their lines with what NCCL prints, so that a row may come in pieces: its sizes before, its numbers
behind a few thousand other lines. Columns are recognised by their number, not by their place.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from typing import Any

from nccl_doctor.facts.store import BATCH, Facts
from nccl_doctor.facts.tables import BenchRun
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl import NCCL_TESTS_JSON, nccl_tests_json
from nccl_doctor.formats.nccl.nccl_tests_copies import Copies
from nccl_doctor.formats.nccl.nccl_tests_rows import RowForms, whole_rows
from nccl_doctor.formats.nccl.nccl_tests_run import Bench
from nccl_doctor.formats.nccl.nccl_tests_usual import UsualRuns
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.prefilter import Prefilter, prefilter
from nccl_doctor.inputs.streams import Readable

_TYPE = rb"(?:u?int(?:8|32|64)|half|float|double|bfloat16|bf16|fp8_\w+|f8e\dm\d|float8_\w+|float16|float32|float64)"
_REDOP = rb"(?:sum|prod|max|min|avg|mulsum|none)"
_HEAD = re.compile(
    rb"(?:^|[\s|:>\]])(\d+)[ |]+(\d+)[ |]+(" + _TYPE + rb")(?:[ |]+(" + _REDOP + rb"))?(?:[ |]+(-?\d+))?"
)
_NUMBER = rb"\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,9})?"
_RATE = rb"(\d{1,40}\.\d{1,40}|\d{5,6}|\d(?:\.\d)?e\+\d{1,3})"  # six characters: above 10,000 GB/s without decimals
_TIMES = rb"[ |]{0,80}(" + _NUMBER + rb")[ |]{1,80}" + _RATE + rb"[ |]{1,80}" + _RATE
_BLOCK = re.compile(_TIMES + rb"[ |]{1,80}(N/A|nan|inf|\d{1,40}\.\d{1,40}(?:e[+-]?\d{1,9})?|\de[+-]\d{1,9}|\d{1,40})")
_BARE = re.compile(_TIMES + rb"()(?![\w.:])")
_DEVICE = re.compile(
    rb"Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[(?:0x)?([\da-fA-F:.]+)\]\s+([^\r\n|]+)"
)
_VERSION = re.compile(rb"nccl-tests version (\S+)(?:.*?nccl-library=(\d+))?")
_STARTING = re.compile(rb"Collective test starting: (\w+?)(?:_perf)?\s*$")
_COMMAND = re.compile(
    rb"(?:^|[\s/])(all_reduce|all_gather|alltoall|broadcast|reduce_scatter|reduce|sendrecv|scatter|gather|hypercube)_perf\b"
)
_LAUNCH = re.compile(rb"\b(?:mpirun|mpiexec|orterun|srun)(?:\.\w{1,20})?\s")
_PROCESSES = re.compile(rb"\s(?:-np?|--np|--ntasks)[ =]{0,3}(\d{1,7})(?=\s)")
_THREADS = re.compile(rb"nThread\s+(\d{1,9}) +nGpus\s+(\d{1,9})")
_BOUNDS = re.compile(rb"Out of bounds values : (\d+) (OK|FAILED)")
_AVERAGE = re.compile(rb"Avg bus bandwidth +: +(nan|\d+(?:\.\d*)?)(?: +(OK|FAILED))?")
_NCCL = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
_COMMENT = re.compile(rb"# |Rank|nThread|busbw|bus bandwidth|Out of bounds")
_GRAPH = re.compile(rb"Pattern 4, .{0,200}?nChannels (\d+), (?:bw|speed) (\d+(?:\.\d*)?)/(\d+(?:\.\d*)?)")
_COLUMNS = 4  # numbers of one placement; per-iteration tables have more
_LARGEST_TABLE = 1 << 15  # bytes of rows that are taken at once
_HEADING_LINES = 6  # between two parameter lines, where nothing but comments stands between them
# One of these is in every line that a table is made of, but for the second half of a torn row.
_WORDS = (
    b"float", b"double", b"half", b"int8", b"int32", b"int64", b"bf16", b"fp8_", b"f8e", b"# ", b"Rank", b"nThread", b"busbw",
    b"bus bandwidth", b"Out of bounds", b"NCCL version ", b"Pattern 4, ", b"_perf",
)  # fmt: skip


# Open MPI 4 names the rank in front of each piece that a program wrote, not of each line: `-1[1,0]<stdout>:    187.7    0.00`
_CHUNK = re.compile(rb"(?<=[^\n])\[\d{1,6},\d{1,7}\]<stdout>:(?=[ \t]{1,12}[\dN])")


@cache
def _gate() -> Prefilter:
    return prefilter(frozenset(_WORDS), name="nccl-tests")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the tables of a log, or a file of `-J`.

    Source: src/common.cu of nccl-tests 2.0 to 2.17::

        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           536870912     134217728     float     sum      -1   3203.1  167.61  314.27      0   3201.7  167.68  314.40      0
    """
    facts.mark_covered("bench_run", "bench_row", "bench_member")
    first = facts.query("SELECT coalesce(max(run), 0) FROM bench_run")[0][0] + 1
    reader = _Reader(name, facts, first)
    lines, start = 0, True
    parts = blocks(stream)
    for block in parts:
        if start and NCCL_TESTS_JSON.search(block.data[:65_536]):
            rest = b"".join([block.data, *(more.data for more in islice(parts, 63))])
            return nccl_tests_json.read_json(rest, name, facts, first)
        start = False
        whole = _CHUNK.sub(b"", block.data) if b"]<stdout>:" in block.data else block.data
        reader.block(whole, block.first)
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
    reader.ends()
    copies = reader.add()
    note = None
    if reader.runs and not reader.runs[-1].finished and not sum(run.finished for run in reader.runs) >= copies > 1:
        note = "the last nccl-tests run ends without its summary"
    return Reading(lines, reader.understood, note)


class _Reader:
    """One log while it is being read."""

    def __init__(self, name: str, facts: Facts, first: int) -> None:
        self.name = name
        self.runs: list[BenchRun] = []  # added last: each says how many processes printed into the file
        self._facts = facts
        self._first = first  # number of the first run
        self._waiting: list[Any] = []  # rows to add
        self._usual = UsualRuns()
        self._most_ranks = 0
        self.copies = Copies()
        self.understood = 0
        self._bench: Bench | None = None
        self._operation: str | None = None
        self._version: tuple[str, str | None] | None = None
        self._nccl: str | None = None
        self._graph: float | None = None
        self._columns = _COLUMNS  # numbers of one placement
        self._extremes: tuple[int, int] | None = None  # which of them are the shortest and the longest iteration
        self._wrong: int | None = 3  # which of them counts wrong elements
        self._root: bool | None = None  # whether the table has a column for it
        self._titles: tuple[int, bool | None, tuple[int, int] | None] = self._columns, None, None
        self._forms = RowForms()  # of rows below these titles
        self._headings: tuple[int, int] = 0, 0  # parameter lines that follow each other, and the line of the last one

    def block(self, block: bytes, number: int) -> None:
        """Read the lines that may belong to a table; while a row is torn, every line."""
        places = [at for at, _ in _gate().scan(block)[0]]
        index = start = 0
        while start < len(block):
            if self._bench is None or not self._bench.torn:
                while index < len(places) and places[index] < start:
                    index += 1
                if index == len(places):
                    return
                line_start = block.rfind(b"\n", start, places[index]) + 1 or start
                number += block.count(b"\n", start, line_start)
                start = line_start
            stop = block.find(b"\n", start)
            stop = stop if stop >= 0 else len(block)
            line = block[start:stop].rstrip(b"\r")
            if self._bench is not None and self._bench.torn and self._rest(line, number):
                pass
            elif line and _interesting(line):
                self._line(line, number)
            number += 1
            start = stop + 1
            if self._bench is not None and len(self._bench.rows) == 1 and (taken := self._table(block, start, number)):
                number += taken[0]
                start = taken[1]

    def _table(self, block: bytes, start: int, number: int) -> tuple[int, int] | None:
        """Takes the rows behind the first one of a table at once: how many, and the place behind them; None where there are others."""
        bench = self._bench
        if bench is None or (self._columns, self._wrong, self._extremes) != (_COLUMNS, 3, None) or bench.torn:
            return None
        row = bench.rows[0]
        end = block.find(b"\n#", start, start + _LARGEST_TABLE)
        if end < 0 or row.redop is None or row.root is None:
            return None
        lines = block[start:end].split(b"\n")
        rows = whole_rows(lines, row.kind.encode(), row.redop.encode(), row.root)
        if rows is None:
            return None
        bench.whole_rows(rows, lines, number)
        self.understood += len(rows)
        self.copies.row()
        return len(rows), end + 1

    def ends(self) -> None:
        """Close the open run, if any."""
        if self._bench is not None and self._bench.worth:
            self._bench.graph = self._bench.graph or self._graph
            self._bench.nccl = self._bench.nccl or self._nccl
            run, *rows = self._bench.facts(self._facts, self.name, self._first + len(self.runs), self._usual)
            self.runs.append(run)
            self._waiting += rows
            self._most_ranks = max(self._most_ranks, run.ranks or 0)
            if len(self._waiting) >= BATCH:
                self._facts.add(self._waiting)
                self._waiting.clear()
        self._bench = None
        self._graph = None

    def add(self) -> int:
        """Add what waits; returns how many processes printed into the file."""
        copies = self.copies.count(self._most_ranks)
        self._facts.add(chain(self._waiting, (run._replace(copies=copies) for run in self.runs)))
        return copies

    def _run(self, line: bytes, number: int) -> Bench:
        if self._bench is None:
            version, library = self._version or (None, None)
            self._bench = Bench(self._operation, version, library or self._nccl, number, line)
        return self._bench

    def _line(self, line: bytes, number: int) -> None:
        if b"#" not in line and self._row(line, number):
            return
        if _COMMENT.search(line) and self._comment(line, number):
            self.understood += 1
            return
        if b"NCCL" in line and (match := _NCCL.search(line)) is not None:
            self._nccl = match[1].decode()
        if b"Pattern 4, " in line and (match := _GRAPH.search(line)) is not None:
            # inter-node and intra-node speed of a ring; the smaller one limits all of it
            self._graph = int(match[1]) * min(float(match[2]), float(match[3]))
        if b"_perf" in line and (match := _COMMAND.search(line)) is not None:
            self._operation = match[1].decode()
            if (launch := _LAUNCH.search(line, 0, match.start())) is not None:
                processes = _PROCESSES.search(line, launch.end() - 1, match.start())
                self.copies.command(int(processes[1]) if processes is not None else None)
        if b"#" in line:
            self._row(line, number)

    def _comment(self, line: bytes, number: int) -> bool:
        if b"starting" in line and (match := _STARTING.search(line)):
            self.ends()
            self._operation = match[1].decode()
            self._run(line, number)
            return True
        if b"version" in line and (match := _VERSION.search(line)):
            self.ends()
            self._version = match[1].decode(), _library(match[2])
            return True
        if b"nThread" in line and (match := _THREADS.search(line)):
            self.copies.parameters(int(match[1]) * int(match[2]))
            if self._bench is not None and (self._bench.devices or self._bench.rows):
                self.ends()
            count, last = self._headings
            self._headings = (count + 1 if number - last <= _HEADING_LINES else 1), number
            self._run(line, number).headings = self._headings[0]
            return True
        if b"Pid" in line and (match := _DEVICE.search(line)):
            rank, pid, host, device, bus, model = (group.decode("utf-8", "replace") for group in match.groups())
            if self._bench is not None and (self._bench.rows or int(rank) in self._bench.devices):
                self.ends()
            self._headings = 0, 0
            if rank == "0":
                self.copies.starts(host, pid, prefixes.split(line[:400].decode("utf-8", "replace"))[0].rank)
            self._run(line, number).device(int(rank), host, int(device), bus, model.strip())
            return True
        if b"Out of bounds" in line and (match := _BOUNDS.search(line)):
            self._run(line, number).bounds(int(match[1]), match[2].decode(), line, number)
            return True
        if b"Avg bus" in line and (match := _AVERAGE.search(line)):
            bench = self._run(line, number)
            bench.average = float(match[1])
            if match[2] == b"FAILED" and bench.verdict != "FAILED":
                bench.verdict = "SLOW"
            bench.finished = True
            self.copies.ends()
            self.ends()
            return True
        if b"algbw" in line and b"busbw" in (words := line.replace(b"|", b" ").split()):
            self._root = b"root" in line
            names = [name for name in words if name not in _SIZES]
            self._columns = max(len(names) // names.count(b"busbw"), 3)
            one = names[: self._columns]
            self._wrong = next((i for i, name in enumerate(one) if name in (b"#wrong", b"wrong", b"error")), None)
            both = b"i_min" in one and b"i_max" in one
            extremes = (one.index(b"i_min"), one.index(b"i_max")) if both else None
            if (self._columns, self._root, extremes) != self._titles:
                self._titles, self._forms = (self._columns, self._root, extremes), RowForms()
            self._extremes = extremes
            self._run(line, number)
            return True
        return False

    def _row(self, line: bytes, number: int) -> bool:
        cells = self._forms.cells(line) if self._bench is not None else None
        if cells is None:
            return self._new_row(line, number)
        bench = self._run(line, number)
        redop = cells.redop.decode() if cells.redop else None
        bench.head(cells.size, cells.elements, cells.kind.decode(), redop, cells.root)
        self.understood += 1
        self.copies.row()
        bench.numbers(cells.numbers, number, line)
        return True

    def _new_row(self, line: bytes, number: int) -> bool:
        match = _HEAD.search(line)
        if match is None or (self._bench is None and not _is_row(line, match)):
            return False
        bench = self._run(line, number)
        size, count, kind, redop, root = match.groups()
        rest, value = line[match.end() :], int(root) if root is not None else None
        if root is not None and not self._has_root(root, rest):
            value, rest = None, line[match.start(5) :]
        bench.head(int(size), int(count), kind.decode(), redop.decode() if redop else None, value)
        self.understood += 1
        self.copies.row()
        bench.numbers(self._blocks(rest), number, line)
        bench.rows[-1].iterations = self._iterations(rest)
        if self._extremes is None and self._columns <= _COLUMNS:
            before = len(line) - len(rest)
            places = [block.span(group) for block in self._matches(rest) for group in range(1, 5)]
            shifted = [(start + before, stop + before) for start, stop in places]
            self._forms.learn(line, match, value is not None, shifted)
        return True

    def _iterations(self, text: bytes) -> tuple[float, float] | None:
        """The shortest and the longest iteration of the first placement, with `-I`."""
        if self._extremes is None:
            return None
        fields = re.findall(rb"[^\s|]+", text)[: self._columns]
        try:
            least, most = (float(fields[at]) for at in self._extremes)
        except (ValueError, IndexError):
            return None
        return (least, most) if 0 < least <= most else None

    def _has_root(self, root: bytes, rest: bytes) -> bool:
        """Whether the number behind the operation is a root and not a time."""
        if root.startswith(b"-") or rest[:1] in (b".", b"e"):
            return root.startswith(b"-")
        if self._root is not None:
            return self._root
        fields = rest.replace(b"|", b" ").split()
        return sum(1 for field in fields if re.fullmatch(_NUMBER + rb"|N/A", field)) % self._columns == 0

    def _blocks(self, text: bytes) -> Iterator[tuple[float, float, float, bytes]]:
        """(microseconds, algbw, busbw, wrong) of each placement in a text."""
        if self._columns > 4 and self._wrong is not None:
            fields = re.findall(rb"[^\s|]+", text)
            for at in range(0, len(fields) - self._columns + 1, self._columns):
                part = fields[at : at + self._columns]
                try:
                    yield float(part[0]), float(part[1]), float(part[2]), part[self._wrong]
                except ValueError:
                    return
            return
        for match in self._matches(text):
            yield float(match[1]), float(match[2]), float(match[3]), match[4]

    def _matches(self, text: bytes) -> Iterator[re.Match[bytes]]:
        """Each placement in a text."""
        pattern = _BARE if self._columns == 3 else _BLOCK
        position = 0
        while match := pattern.match(text, position):
            yield match
            position = match.end()

    def _rest(self, line: bytes, number: int) -> bool:
        """A piece of a torn row; True where the line was one."""
        bench = self._bench
        if bench is None or b"#" in line[:4] or _HEAD.search(line):
            return False
        text = line
        if not line.lstrip()[:1].isdigit():
            at = max(line.rfind(b">:"), line.rfind(b"]:"))
            text = line[at + 2 :] if 0 <= at < 60 else b""
        found = list(self._blocks(text))
        if not found:
            return False
        bench.numbers(found, number, line)
        return True


_BYTES = ((b"8", 1), (b"16", 2), (b"half", 2), (b"32", 4), (b"float", 4), (b"64", 8), (b"double", 8))  # of an element


def _is_row(line: bytes, head: re.Match[bytes]) -> bool:
    """Whether a line without the head of its table is a row of one: its numbers prove which column is which.

    The size is that of its elements, and the bandwidth of each placement is the size by the time.
    """
    size, count, kind = int(head[1]), int(head[2]), head[3].replace(b"bf16", b"half").replace(b"bfloat16", b"half")
    width = next((width for ending, width in _BYTES if kind.endswith(ending)), 1)
    fields = [field for field in line[head.end() :].replace(b"|", b" ").split() if field != b"|"]
    if not size or size != count * width or len(fields) not in (4, 8):
        return False
    try:
        shown = [(float(fields[at]), float(fields[at + 1])) for at in range(0, len(fields), 4)]
    except ValueError:
        return False
    return all(
        0.005 < rate and abs(size / 1e3 - rate * time) <= 0.006 * time + 0.02 * size / 1e3 for time, rate in shown
    )


_SIZES = {b"#", b"size", b"count", b"type", b"redop", b"root", b"(B)", b"(elements)"}


def _interesting(line: bytes) -> bool:
    """Whether a line can hold a part of a table: of NCCL's own lines only those with blanks at the start, which are torn rows."""
    if b" NCCL " in line:
        return b"  " in line[:40] or b"Pattern 4, " in line or b"NCCL version " in line
    return True


def _library(code: bytes | None) -> str | None:
    """NCCL's number, 22807, as 2.28.7; before 2.9 it was 2708 for 2.7.8."""
    if code is None:
        return None
    number = int(code)
    if number >= 10_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
