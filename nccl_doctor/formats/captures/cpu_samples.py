"""How busy the processors of a host were, as `sar -u`, `mpstat`, `iostat`, `vmstat` and dool print it, alone or in a log."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

HIGH = 95.0  # % busy
_MOST_HOSTS = 10_000
_MEMO = 10_000  # rows remembered
_BANNER = re.compile(r"Linux \S{1,80} \((\S{1,253})\)\s.{0,80}?\((\d{1,5}) CPU\)")
_CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d")
_HALVES = ("AM", "PM")
_CLOCK_WORDS = 2  # at most, of the time in front of a row


class _Head(NamedTuple):
    """The titles of a table."""

    kind: str  # the first of them
    columns: int  # of its rows, without the time in front of them; 0 where these are not read
    idle: int  # which column says how idle the processors were, and which how long they waited
    waiting: int | None
    cpu: int | None  # which column names the processor
    average: bool  # below it is one row, after `avg-cpu:`
    part: int | None  # between which of the `|` of a row the columns are
    totals: bool  # whether the first report of this kind is the mean since the start of the node


_Row = tuple[float | None, float]  # how idle the processors were, None for another word, and how long they waited
_OF_ONE: _Row = (None, 0.0)  # stands for rows of one of several processors


class _Use:
    """The samples of one host."""

    def __init__(self, number: int, text: str, since_boot: bool) -> None:
        self.place = number, text
        self.since_boot = (
            since_boot  # it is a mean since the start of the node, which counts where there is nothing else
        )
        self.samples = self.high = 0
        self.busy = self.waiting = 0.0


class _Reader:
    """One capture, or the lines of one host, while it is read."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.cpus: int | None = None
        self.use: _Use | None = None
        self._head: _Head | None = None  # of the table whose rows are read
        self._since_boot = False  # the next row is not of the moment
        self._reports: set[str] = set()
        self._rows: dict[str, _Row | None] = {}  # cells between two `|`, which are few whole numbers -> what they show

    def take_all(self, lines: Sequence[str], first: int) -> int:
        """Use lines one after another; how many are of a table."""
        used = 0
        for number, line in enumerate(lines, first):
            if "%idle" in line or " swpd " in line or " idl " in line or line.startswith("Linux "):
                used += self._opens(line)
            elif self._head is not None:
                used += self._takes(self._head, line, number)
        return used

    def _opens(self, line: str) -> bool:
        """Whether a line says whose the tables are, or is the head of one."""
        if (banner := _BANNER.match(line)) is not None:
            self.host, self.cpus = self.host or banner[1], int(banner[2])
            self._reports.clear()
            return True
        head = _parse_head(line)
        if head is None:
            return False
        if head != self._head:
            self._rows.clear()
        self._head = head if head.columns else None
        # vmstat repeats its titles after each screen, iostat before each report
        self._since_boot = head.totals and head.kind not in self._reports
        self._reports.add(head.kind)
        return True

    def _takes(self, head: _Head, line: str, number: int) -> bool:
        """Whether a line is a row of the open table."""
        if head.part is None:
            shown = _parse_row(head, line)
        else:
            parts = line.split("|", head.part + 1)
            cells = parts[head.part] if len(parts) > head.part else ""
            if cells not in self._rows:
                if len(self._rows) >= _MEMO:
                    self._rows.clear()
                self._rows[cells] = _parse_row(head, cells)
            shown = self._rows[cells]
        if shown is None:
            return False
        if shown is _OF_ONE:
            return True
        idle, waiting = shown
        if idle is None or not 0 <= (busy := 100 - idle - waiting) <= 100:
            return False
        since_boot, self._since_boot = self._since_boot, False
        if head.average:
            self._head = None
        use = self.use
        if use is None or use.since_boot:
            use = self.use = _Use(number, line.strip()[:600], since_boot)
        elif since_boot:
            return True
        use.samples += 1
        use.busy += busy
        use.waiting += waiting
        if busy >= HIGH:
            if not use.high:
                use.place = number, line.strip()[:600]
            use.high += 1
        return True


@lru_cache(1 << 8)
def _parse_head(line: str) -> _Head | None:
    """The titles that a line lists; None for another line."""
    part = next((at for at, cells in enumerate(line.split("|")) if " idl " in cells), None)
    words = line.split("|")[part].split() if part is not None else _without_clock(line.split())
    if part is not None and "usr" in words:
        wait = words.index("wai") if "wai" in words else None
        return _Head("dstat", len(words), words.index("idl"), wait, None, False, part, True)
    if not ("%idle" in words or ("id" in words and "swpd" in words)):
        return None
    kind = words[0]
    average = kind == "avg-cpu:"
    # in front of the means at the end is `Average:`, in the language of the user
    titles = words[1:] if average else words if kind in ("CPU", "r") else []
    places = {title: at for at, title in enumerate(titles)}
    idle = places.get("%idle", places.get("id", 0))
    waiting = places.get("%iowait", places.get("wa"))
    return _Head(kind, len(titles), idle, waiting, places.get("CPU"), average, None, average or "swpd" in words)


def _parse_row(head: _Head, cells: str) -> _Row | None:
    """What the cells of a row show; None for another line."""
    words = cells.split()
    if more := len(words) - head.columns:
        words = _without_clock(words) if 0 < more <= _CLOCK_WORDS else []
        if len(words) != head.columns:
            return None
    if head.cpu is not None and words[head.cpu] != "all":
        return _OF_ONE if words[head.cpu].isdecimal() else None
    return _percent(words[head.idle]), 0.0 if head.waiting is None else _percent(words[head.waiting]) or 0.0


def _without_clock(words: list[str]) -> list[str]:
    """The words of a row of a table behind the time in front of them."""
    if words and _CLOCK.fullmatch(words[0]):
        words = words[1:]
    return words[1:] if words and words[0] in _HALVES else words


def _percent(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file. A host counts once, in whichever of the tables it has most samples.

    Source: sar.c, pr_stats.c, mpstat.c and iostat.c of sysstat 12, vmstat.c of procps-ng 4, dool 1::

        Linux 6.1.0-18-amd64 (node01)   03/04/26        _x86_64_        (96 CPU)
        08:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle
        08:00:11        all     70.94      5.91     11.33      0.00      0.00     11.82
    """
    readers: dict[str | None, _Reader] = {}
    lines = used = 0
    for first, label, texts in plain_batches(stream):
        lines = first - 1 + len(texts)
        reader = readers.get(label.host)
        if reader is None:
            if len(readers) >= _MOST_HOSTS:
                continue
            reader = readers[label.host] = _Reader()
            reader.host = label.host
        used += reader.take_all(texts, first)
    facts.mark_covered("host_use")
    facts.add(
        HostUse(
            host=reader.host, samples=reader.use.samples, first=None, seconds=None, cpus=reader.cpus,
            cpu_mean=reader.use.busy / reader.use.samples, cpu_high_share=reader.use.high / reader.use.samples,
            cpu_wait=reader.use.waiting / reader.use.samples,
            memory_max=None, memory_total=None, swap_max=None, shm_max=None, shm_total=None, tcp_sent=None, tcp_repeated=None,
            ref=facts.evidence(name, *reader.use.place),
        )
        for reader in readers.values()
        if reader.use is not None
    )  # fmt: skip
    return Reading(lines, used)
