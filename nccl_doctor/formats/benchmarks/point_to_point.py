"""Output of IMB, `ucx_perftest`, libfabric's fabtests and DeepEP's tests: bandwidth and latency of messages between ranks."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.prefixes import Label
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"# Benchmarking [A-Z]|\|    Stage     \| # iterations|bytes   #sent   #ack     total|\[tuning\] Best "
    rb"|(?:Dispatch|Combine)(?: [^\n]{0,60})?bandwidth: "
)
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_IMB_TITLE = re.compile(r"# Benchmarking ((?:Multi-)?[A-Z]\w{2,40}(?: \(\d{1,6}(?: x \d{1,6}){1,3}\))?) ?$")
_IMB_COLUMNS = re.compile(
    r"\s*#bytes\s+#repetitions\s+(t\[usec\]|t_min\[usec\]|t_ovrl\[usec\])(?:.*?(Mbytes/sec|MB/s))?"
)
_ROW = re.compile(
    r"\s*(\d{1,15})\s+\d{1,12}\s+(\d{1,12}\.\d{1,6}(?:\s+\d{1,12}\.\d{1,6}){0,4})(?:\s+\d{1,15})?\s*$"
)  # IMB-P2P: and messages a second
_UCX_TEST = re.compile(r"\| Test: {1,20}(\w[^|\n]{1,120})")
_UCX_STAGE = re.compile(r"\|    Stage     \| # iterations")
_UCX_LAST = re.compile(r"Final: {1,40}\d{1,15}((?:\s{1,20}\d{1,15}(?:\.\d{1,6})?){6,9})\s*$")
_FABTESTS = re.compile(r"(?:name {1,80})?bytes   #sent   #ack     total +time +MB/sec +usec/xfer +Mxfers/sec")
_FABTESTS_ROW = re.compile(
    r"\s*(?:\S{1,40} +)?(\d{1,9}[kmg]?) +\S{1,9} +\S{1,9} +\S{1,12} +\d[\d.]{0,12}s? +"
    + _NUMBER
    + " +"
    + _NUMBER
    + r" +\d"
)
_BEST = re.compile(r"\[tuning\] Best (\w[^:\n]{1,60}): .{0,160}?" + _NUMBER + r" GB/s \((RDMA|NVL)\)")
_LOW_LATENCY = re.compile(r"\[rank (\d{1,6})\] (?=\S)")
_BANDWIDTH = re.compile(r"((?:Dispatch|Combine|Dispatch \+ combine)) bandwidth: " + _NUMBER + r" GB/s")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_KEEP = 60
_MOST = 20_000


class _Run(NamedTuple):
    """A table that did not end."""

    tool: str
    test: str
    unit: str | None = None
    best: tuple[float, int, str] | None = None  # value of the row that counts, its line
    smallest: int | None = None  # bytes of that row, of latencies
    cell: int = -1  # of a row behind size and repetitions; with IMB-NBC the first, the whole time of a call and a computation beside it


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each table: of bandwidths the highest counts, of latencies that of the smallest message.

    Source: IMB `src_c/IMB_output.c`, ucx `src/tools/perf/perftest.c`, libfabric `fabtests/common/shared.c`, DeepEP `tests/`::

               4194304           10       180.55     23230.71
        Final:               100000     42.100    42.650    42.640   23446.66   23452.16       23447       23452
        [tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 20: 45.10 GB/s (RDMA), 147.60 GB/s (NVL)
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    open_: dict[str | None, _Run] = {}
    rows: list[ActiveTest] = []
    ucx_test: dict[str | None, str] = {}
    used = 0
    note = None
    for number, label, text in sections:
        run = open_.get(label.host)
        started = _started(text, run, ucx_test.get(label.host))
        if (test := _UCX_TEST.search(text)) is not None:
            ucx_test[label.host] = test[1].rstrip()
        elif started is not None:
            if run is not None and started.best is None and run.best is not None:
                rows += _rows(facts, name, label.host, run)
            open_[label.host] = started
        elif found := _deepep(text, label):
            ref = facts.evidence(name, number, text.strip())
            rows += (ActiveTest(label.host, "deepep", *one, ref=ref) for one in found)
        elif run is not None and (taken := _taken(run, text, number)) is not None:
            open_[label.host] = taken
        else:
            continue
        used += 1
        sections.used()
        if len(rows) >= _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    for host, run in open_.items():
        rows += _rows(facts, name, host, run)
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _started(text: str, run: _Run | None, ucx_test: str | None) -> _Run | None:
    """The table that a line begins, or the open one with the unit of its columns."""
    if "# Benchmarking" in text and (title := _IMB_TITLE.search(text)) is not None:
        return _Run("imb", title[1])
    if run is not None and run.tool == "imb" and (columns := _IMB_COLUMNS.match(text)) is not None:
        return run._replace(unit="MB/s" if columns[2] else "us", cell=0 if columns[1].startswith("t_ovrl") else -1)
    if _UCX_STAGE.search(text):
        return _Run("ucx", ucx_test or "ucx_perftest", "MB/s")
    if _FABTESTS.match(text):
        return _Run("fabtests", "fabtests", "MB/s")
    return None


def _taken(run: _Run, text: str, number: int) -> _Run | None:
    """The run with the row of a line; None where it is none."""
    size = value = None
    if run.tool == "ucx":
        if (last := _UCX_LAST.match(text)) is None:
            return None
        cells = last[1].split()
        value = float(cells[4])  # overall bandwidth: behind three times and the average
        if "latency" in run.test:
            run, value = run._replace(unit="us"), float(cells[2])
    elif run.tool == "fabtests":
        if (row := _FABTESTS_ROW.match(text)) is None:
            return None
        value = float(row[2])
    elif run.unit is None or (row := _ROW.match(text)) is None:
        return None
    else:
        cells = row[2].split()
        size, value = int(row[1]), float(cells[run.cell])
    if run.unit == "us":
        if size == 0 or (run.smallest is not None and size is not None and size >= run.smallest):
            return run
        return run._replace(best=(value, number, text.strip()), smallest=size)
    if run.best is None or value > run.best[0]:
        return run._replace(best=(value, number, text.strip()))
    return run


def _deepep(text: str, label: Label) -> list[tuple[str, str | None, str, float, str, str | None]]:
    """Test, device, outcome, value, unit and text of what a line of DeepEP's tests says."""
    if "[tuning] Best " in text and (best := _BEST.search(text)) is not None:
        return [(best[1], None, "other", float(best[2]), "GB/s", best[3])]
    if " bandwidth: " in text and (rank := _LOW_LATENCY.search(text)) is not None:
        return [
            (found[1].lower(), f"rank {rank[1]}", "other", float(found[2]), "GB/s", None)
            for found in _BANDWIDTH.finditer(text, rank.end(), rank.end() + 400)
        ]
    return []


def _rows(facts: Facts, file: str, host: str | None, run: _Run) -> list[ActiveTest]:
    if run.best is None:
        return []
    value, number, text = run.best
    ref = facts.evidence(file, number, f"{run.test}: {text}")
    return [ActiveTest(host, run.tool, run.test, None, "other", value, run.unit, None, ref)]
