"""Samples of GPUs over time: nvidia-smi CSV, dmon, pmon, `dcgmi dmon`, JSON of monitors and gpustat, alone or inside a log."""

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from nccl_doctor.common import budgets
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import NAMELESS, monitor_json
from nccl_doctor.formats.gpu.loops import bare_rows, gpustat_text
from nccl_doctor.formats.gpu.loops.dmon_tables import Tables
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.smi_csv import BARE, HEADER, Table
from nccl_doctor.formats.job_lines import first_job_line
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.prefixes import NOTHING
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Translated, line_lists

_BLOCK = 8 << 20
_SHOWN = 1 << 18  # bytes of rows without titles by which their columns are judged
_LED = 1 << 20  # bytes in which the log of a job begins that a table of samples stands in front of
_LONGEST = 1 << 20  # bytes of one line; a longer one is damage
_BARE_ROW = re.compile(r" *(?:\d{8} +\d\d:\d\d:\d\d +)?\d{1,4} +[\d. -]{1,400}")  # of dmon, without a prefix
_MARKED_TITLES = re.compile(r"#[^\n]{0,40}(?:gpu|GPU|Idx|Entity)")
_TITLES = (  # what one of the titles of each other table holds
    "pid,", "utilization.", "power.draw", "memory.used", "clocks", "temperature.gpu", "ecc.errors.", "retired_pages.",
    "remapped_rows.",
)  # fmt: skip
_BY_COMMAS = re.compile(rb"\s{0,200}#\s?(?:Date,\s?Time,\s?)?gpu, ?[a-z]")  # `nvidia-smi dmon --format csv`
_BLANKS = bytes.maketrans(b",", b" ")
_NAMELESS = re.compile(NAMELESS)
_UNCLEAR = "rows of nvidia-smi without titles and units: leave out `noheader` or `nounits`"
_HEAD = re.compile(rb"\A(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*)?\r?\n){0,5}")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up every sample of a file or log.

    Source: `nvidia-smi --query-gpu=… --format=csv`, `nvidia-smi dmon` and `pmon` (drivers 390 and newer), also with
    `--format csv`, `dcgmi dmon` of DCGM 2 to 4::

        timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]
        2026/05/07 12:00:01.000, 0, 97 %, 61234 MiB, 688.12 W
    """
    head = stream.read(_BLOCK)
    body = head[_HEAD.match(head).end() :] if _HEAD.match(head) else head  # type: ignore[union-attr]
    samples = Samples()
    if (HEADER.match(body) or BARE.match(body)) and first_job_line(head[:_LED]) is None:
        reading = _Csv(stream, head, samples).read_table()
        samples.write(facts, name, "nvidia-smi")
        return reading
    if begins_json(body):
        return monitor_json.read_format(Joined(head, stream), name, facts)
    if _NAMELESS.match(body):
        reading = _Csv(stream, head, samples).read_bare(body)
        samples.write(facts, name, "nvidia-smi")
        return reading
    if gpustat_text.HEAD.match(body):
        return gpustat_text.read_format(Joined(head, stream), name, facts)
    if _BY_COMMAS.match(head):
        return _mixed(Translated(Joined(head, stream), _BLANKS), name, facts)
    return _mixed(Joined(head, stream), name, facts)


class _Csv:
    """A file that is a CSV table from its start."""

    def __init__(self, stream: Readable, head: bytes, samples: Samples) -> None:
        self._stream = stream
        self._block = head
        self._samples = samples
        self._table: Table | None = None
        self._too_wide: str | None = None
        self.lines = 0
        self.used = 0

    def read_table(self) -> Reading:
        rest = b""
        data = self._block
        self._block = b""
        torn = False
        while data:
            block = rest + data
            cut = block.rfind(b"\n") + 1
            if len(block) - cut > _LONGEST:
                self._lines(block[:cut])
                return Reading(
                    self.lines + 1,
                    self.used,
                    f"line {self.lines + 1} is longer than {_LONGEST:,} bytes; reading ended there",
                )
            self._lines(block[:cut])
            rest = block[cut:]
            data = self._stream.read(_BLOCK)
        if rest.strip():
            before = self.used
            self._lines(rest)
            torn = self.used == before or (self._table is not None and not self._complete(rest))
        note = self._too_wide or (f"ends in the middle of line {self.lines}" if torn else None)
        if self._samples.refused:
            note = f"names more than {Samples.MAX_GPUS:,} GPUs; the others were left out"
        return Reading(self.lines, self.used, note)

    def read_bare(self, body: bytes) -> Reading:
        """Read rows without titles and units as far as their values tell what the columns are."""
        rows = body[: body.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()[: bare_rows.MOST]
        names = bare_rows.columns_of(rows)
        if names is None:
            return Reading(body.count(b"\n"), 0, _UNCLEAR)
        self._table = Table.named(names, self._samples)
        reading = self.read_table()
        unclear = names.count(None)
        note = (
            f"{unclear} of {len(names)} columns without titles are not clear: leave out `noheader`" if unclear else None
        )
        return reading._replace(note=reading.note or note)

    def _complete(self, line: bytes) -> bool:
        assert self._table is not None
        return line.count(b",") + 1 == len(self._table.names)

    def _lines(self, block: bytes) -> None:
        """Take whole lines; a header in between starts another table."""
        at = 0
        for start in _headers(block):
            self._rows(block[at:start])
            end = block.find(b"\n", start)
            end = len(block) if end < 0 else end + 1
            self._table = self._opened(block[start:end], Table)
            self.lines += 1
            self.used += 1
            at = end
        self._rows(block[at:])

    def _opened(self, line: bytes, table: Callable[[list[str], Samples], Table]) -> Table | None:
        """The table that a header, or a first row, begins; None for one that is too wide, whose cells could fill the memory."""
        most = budgets.limit("columns")
        if line.count(b",") >= most:
            self._too_wide = (
                f"holds a table of more than {most:,} columns, which was left out; {budgets.reached('columns')}"
            )
            return None
        return table(line.decode("utf-8", "replace").lstrip("\ufeff").split(","), self._samples)

    def _rows(self, block: bytes) -> None:
        count = block.count(b"\n") + (bool(block) and not block.endswith(b"\n"))
        if self._table is None and block:
            bare = BARE.search(block)
            if bare is not None:
                line, *more = block[bare.start() : bare.start() + _SHOWN].split(b"\n")
                rows = b"\n".join([line, *more[:-1]]).decode("utf-8", "replace").splitlines()
                self._table = self._opened(line, partial(Table.bare, may_number=partial(bare_rows.may_number, rows)))
        if self._table is not None and block and not block.isspace():
            first = self.lines + 1
            self.used += self._table.add(block, lambda row: first + row)
        self.lines += count


def _headers(block: bytes) -> list[int]:
    """Where header lines start: those that begin with a small letter, which no row of samples does."""
    data = np.frombuffer(block, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(data[:-1] == 10) + 1]) if len(data) else np.zeros(0, np.int64)
    first = data[starts]
    likely = starts[((first >= ord("a")) & (first <= ord("z"))) | (first == 0xEF)]
    return [at for at in likely.tolist() if HEADER.match(block, at + 3 * block.startswith(b"\xef\xbb\xbf", at))]


def _mixed(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read tables inside a log: each line, without its launcher prefix, goes to the table that is open for its host."""
    lines = used = 0
    text = Tables(name)
    tables: dict[str | None, Table] = {}
    waiting: dict[str | None, list[tuple[int, bytes]]] = {}
    csv = Samples()

    def flush(host: str | None) -> int:
        rows = waiting.pop(host, [])
        table = tables.get(host)
        if not rows or table is None:
            return 0
        return table.add(b"\n".join(line for _, line in rows) + b"\n", lambda row: rows[row][0])

    def take(whole: str, number: int) -> int:
        label, plain = (NOTHING, whole) if _BARE_ROW.fullmatch(whole) else prefixes.split(prefixes.clean(whole))
        plain = plain.strip()
        if text.take(plain, label.host, number):
            return 1
        data = plain.encode()
        if HEADER.match(data) and plain.count(",") < 100:
            used = 1 + flush(label.host)
            tables[label.host] = Table(plain.split(","), csv, label.host)
            return used
        if (table := tables.get(label.host)) is not None and table.fits(plain):
            waiting.setdefault(label.host, []).append((number, data))
            if len(waiting[label.host]) >= 10_000:
                return flush(label.host)
        return 0

    for first, texts in line_lists(stream):
        lines = first + len(texts) - 1
        whole = "\n".join(texts)
        if text.is_open or any(word in whole for word in _TITLES) or _MARKED_TITLES.search(whole):
            used += text.take_block(texts, first, take)
            continue
        if tables:
            commas = min(len(table.names) for table in tables.values()) - 1
            rows = [number for number, line in enumerate(texts) if line.count(",") >= commas]
            used += sum(take(texts[number], first + number) for number in rows)
    used += sum(flush(host) for host in list(waiting))
    if tables:
        csv.write(facts, name, "nvidia-smi")
    text.write(facts)
    return Reading(lines, used)
