"""Output of perftest (`ib_write_bw`, `ib_read_bw`, `ib_send_bw`, `ib_write_lat` …): bandwidth or latency of a card."""

import re
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"(?:RDMA_Write|RDMA_Read|Send|Atomic_\w{1,20}|Raw_Ethernet) (?:Bidirectional )?(?:BW|Latency|Post List BW) Test"
)
_TITLE = re.compile(
    r"\s{5,40}(RDMA_Write|RDMA_Read|Send|Atomic_\w{1,20})( Bidirectional)? (?:Post List )?(BW|Latency) Test\s*$"
)
_DEVICE = re.compile(r".{0,80}\bDevice {1,20}: (\w{1,40})\s*$")
_COLUMNS = re.compile(
    r"\s*#bytes\s+#iterations\s+(?:BW peak\[(?:Gb|MB|MiB)/sec\]\s+BW average\[(Gb|MB|MiB)/sec\]|t_min\[usec\])"
)
_ROW = re.compile(r"\s*(\d{1,12})\s+\d{1,12}\s+(.{3,200})$")
_PROGRAMS = {"RDMA_Write": "ib_write", "RDMA_Read": "ib_read", "Send": "ib_send"}
_KEEP = 60
_MOST = 20_000


class _Run(NamedTuple):
    """A run whose table did not end."""

    test: str  # ib_write_bw
    both: bool
    device: str | None = None
    unit: str | None = None  # of the table that began
    best: tuple[float, int, str] | None = None  # value of the row that counts, its line


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every table of a file; of several sizes the highest bandwidth counts, and the latency of the smallest.

    Source: linux-rdma/perftest `src/perftest_parameters.c` (4.5 and newer)::

         #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
         65536      20000            392.10             391.83             0.747362
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    open_: dict[str | None, _Run] = {}
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for first, label, texts in sections.batches():
        run, last = open_.get(label.host), 0
        for number, text in enumerate(texts, first):
            line = _parse_line(text)
            if line is None:
                continue
            if line.test:
                if run is not None:
                    rows += _rows(facts, name, label.host, run)
                run = _Run(line.test, line.both)
            elif run is None or (found := _taken(run, line, number, text)) is None:
                continue
            else:
                run = found
            used, last = used + 1, number
        if run is not None:
            open_[label.host] = run
        if last:
            sections.used(last)
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    for host, run in open_.items():
        rows += _rows(facts, name, host, run)
    facts.add(rows)
    return Reading(sections.lines, used, note)


class _Line(NamedTuple):
    """What a line says: the title of a test, its device, the unit of its columns, or a row with its numbers."""

    test: str = ""
    both: bool = False
    device: str | None = None
    unit: str | None = None
    cells: tuple[float | None, ...] = ()


@lru_cache(1 << 12)  # nodes print the same heads
def _parse_line(text: str) -> _Line | None:
    begin = text.lstrip()
    if begin[:1].isdigit():
        row = _ROW.match(text)
        return _Line(cells=tuple(map(_number, row[2].split()))) if row else None
    if begin.startswith("#bytes") and (columns := _COLUMNS.match(text)) is not None:
        return _Line(unit={"Gb": "Gb/s", None: "us"}.get(columns[1], "MiB/s"))
    if "Device " in text and (device := _DEVICE.match(text)) is not None:
        return _Line(device=device[1])
    if text.rstrip().endswith(" Test") and (title := _TITLE.match(text)) is not None:
        test = f"{_PROGRAMS.get(title[1], 'ib_atomic')}_{'bw' if title[3] == 'BW' else 'lat'}"
        return _Line(test=test, both=title[2] is not None)
    return None


def _taken(run: _Run, line: _Line, number: int, text: str) -> _Run | None:
    """The run with what a line adds; None for one that adds nothing."""
    if line.device is not None:
        return run._replace(device=line.device)
    if line.unit is not None:
        return run._replace(unit=line.unit)
    at = 1 if run.unit != "us" else 2  # BW average, or t_typical
    value = line.cells[at] if run.unit is not None and len(line.cells) > at else None
    if value is None:
        return None
    if run.unit == "MiB/s":
        value *= 8 * (1 << 20) / 1e9
    better = run.best is None or (value > run.best[0] and run.unit != "us")
    return run._replace(best=(value, number, text.strip())) if better else run


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text) else None


def _rows(facts: Facts, file: str, host: str | None, run: _Run) -> list[ActiveTest]:
    if run.best is None:
        return []
    value, number, text = run.best
    return [
        ActiveTest(
            host=host, tool="perftest", test=f"{run.test}{' both ways' if run.both else ''}", device=run.device, outcome="pass",
            value=value, unit="us" if run.unit == "us" else "Gb/s", text=None, ref=facts.evidence(file, number, text),
        )
    ]  # fmt: skip
