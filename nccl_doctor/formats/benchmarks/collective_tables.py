"""Tables of collectives by other programs than nccl-tests.

PARAM's `comms.py`, DeepSpeed's `ds_bench`, `mscclpp-test`, AWS Neuron's `nccom-test`, `ucc_perftest`; and tables of nccl-tests
of which somebody kept the size, the time and the bandwidths.
"""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CommOp
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"COMMS-RES|-- Performance of \w|# Setting up the connection in MSCCL\+\+|MSCCL\+\+ proxy threads"
    rb"|busbw\(GB/s\)|\bnccom-test\b|Time, us\b|Collective: |algbw +busbw *\r?\n|\b[a-z_]{4,14}_perf\b"
)
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_PARAM_ROW = re.compile(
    r"\s*COMMS-RES(?:-([a-z]\w{1,40}?)-\w{3,20}|-\w{1,20})?\s+(\d{1,15})\s+\d{1,15}\s+" + _NUMBER + r"\s+(.{1,300})$"
)
_TITLE = re.compile(r"-{2,10} Performance of (\w{2,40}) on \d{1,7} devices -")
_BENCH_ROW = re.compile(
    r"\s*(\d{1,15}(?:\.\d{1,4})?)(?: ?([KMGT]?B))?\s+\S{3,40}\s+"
    + _NUMBER
    + r"(?: ?(us|ms|s))?\s+"
    + _NUMBER
    + r"\s+"
    + _NUMBER
    + r"\s*$"
)
_MSCCLPP_ROW = re.compile(
    r"\s*(\d{1,15})\s+\d{1,15}\s+" + _NUMBER + r"\s+" + _NUMBER + r"\s+" + _NUMBER + r"\s+\d{1,12}"
)
_MSCCLPP = re.compile(r"\b(all_?reduce|all_?gather|all_?to_?all|send_?recv|reduce_?scatter)_test_perf\b")
_NCCOM = re.compile(r"\bnccom-test\b[^\n|;&]{0,400}")
_NCCOM_OPS = re.compile(
    r"(?<=\s)(all-?reduce|allr|all-?gather|allg|reduce-?scatter|redsct|sendrecv|all-?to-?all|alltoall|permute|broadcast)(?=\s|$)"
)
_NCCL_TEST = re.compile(r"(?:^|[\s/])([a-z_]{4,14})_perf\b")
_KEPT = ["size", "time", "algbw", "busbw"]
_UCC_OP = re.compile(r"Collective:\s{1,40}([A-Z][a-z_]{2,30})\s*$")
_UCC_ROW = re.compile(
    r"\s*\d{1,15}\s+(\d{1,15})\s+"
    + r"\s+".join([_NUMBER] * 3)
    + r"(?:\s+(\d{1,15}\.\d{1,4}|N/A)\s+(?:[\d.]{1,20}|N/A)\s+(\d{1,15}\.\d{1,4}|N/A))?\s*$"
)
_BYTES = {None: 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MILLISECONDS = {None: 1e-3, "us": 1e-3, "ms": 1.0, "s": 1e3}
_NAMES = {
    "alltoall": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather", "sendrecv": "send_recv",
    "allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter", "reducescatter": "reduce_scatter", "bcast": "broadcast",
}  # fmt: skip
_KEEP = 40
_MOST = 20_000


class _Table(NamedTuple):
    """The table that is open, by the program that printed it."""

    program: str  # param, ds_bench, mscclpp, nccom, ucc, kept
    op: str = ""
    gigabits: float = 8.0  # by which a number of its last column is multiplied to Gbit/s
    columns: tuple[int, int, int] = (0, 0, 0)  # of nccom and kept: which are size, time and bus bandwidth


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each row: size, time and bus bandwidth.

    Source: param `train/comms/pt/comms.py`, DeepSpeed `communication/utils.py` of DeepSpeedExamples, mscclpp `test/mscclpp-test`,
    the guide of nccom-test, ucc `tools/perf/ucc_pt_benchmark.cc` (its bandwidth is that of the bus in all versions, with `-F`)::

            COMMS-RES-all_reduce-float32          1048576        262144      61.2    62.0    63.9    59.8    70.1    17.134    32.126
        1.0 GB              33554432x16              2.512 ms             3419.5              6411.6
          1073741824     268435456    17018   63.09  110.41      0
             1048576        262144     fp32          91.20          11.50          20.12
              262144     1048576      155.20      150.41      160.78       35.90       37.04       34.66
    """
    facts.mark_covered("comm_op")
    sections = Sections(stream, _HEADS, _KEEP)
    open_: dict[str | None, _Table] = {}
    rows: list[CommOp] = []
    used = 0
    note = None
    for number, label, text in sections:
        table = open_.get(label.host)
        if (started := _started(text, table)) is not None:
            open_[label.host] = started
        elif table is not None and (found := _row(table, text)) is not None:
            op, size, milliseconds, busbw = found
            ref = facts.evidence(name, number, text.strip())
            rows.append(CommOp(label.host, None, op, size, 1, milliseconds, None, busbw, ref))
        else:
            continue
        used += 1
        sections.used()
        if len(rows) >= _MOST:
            note = f"holds more than {_MOST:,} rows of collectives; the others were left out"
            break
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _started(text: str, table: _Table | None) -> _Table | None:
    """The table that a line begins or tells the unit of."""
    if (title := _TITLE.search(text)) is not None:
        return _Table("ds_bench", _name(title[1]), 1.0)
    if "BusBW (" in text and table is not None and table.program == "ds_bench":
        return table._replace(gigabits=1.0 if "BusBW (Gbps" in text else 8.0)
    if "COMMS-RES" in text and "BusBW(GB/s)" in text:
        return _Table("param")
    if "# Setting up the connection in MSCCL++" in text or "MSCCL++ proxy threads" in text:
        return _Table("mscclpp", table.op if table is not None else "")
    if (program := _MSCCLPP.search(text)) is not None:
        return _Table("mscclpp", _name(program[1]))
    return _started_elsewhere(text, table)


def _started_elsewhere(text: str, table: _Table | None) -> _Table | None:
    """The same of nccom-test, ucc_perftest and what was kept of nccl-tests."""
    op = table.op if table is not None and table.program in ("nccom", "ucc", "kept") else ""
    if "busbw" in text and text.replace("#", " ").split() == _KEPT:
        return _Table("kept", op, columns=(0, 1, 3))
    if (test := _NCCL_TEST.search(text)) is not None:
        return _Table("kept", _name(test[1]))
    if "busbw(GB/s)" in text:
        titles = text.split()
        time = next((at for at, title in enumerate(titles) if title.startswith("time")), None)
        if time is None or "size(B)" not in titles:
            return None
        return _Table("nccom", op, columns=(titles.index("size(B)"), time, titles.index("busbw(GB/s)")))
    if (command := _NCCOM.search(text)) is not None:
        found = _NCCOM_OPS.search(command[0])
        return _Table("nccom", _name(found[1].replace("-", "")) if found is not None else "")
    if (named := _UCC_OP.search(text)) is not None:
        return _Table("ucc", _name(named[1].lower()))
    if "Time, us" in text and "Count" in text and "Size" in text:
        return _Table("ucc", op)
    return None


def _row(table: _Table, text: str) -> tuple[str, int, float, float | None] | None:
    """Operation, bytes, milliseconds and Gbit/s of a row."""
    if table.program in ("nccom", "kept"):
        return _row_by_columns(table, text)
    if table.program == "ucc":
        if (row := _UCC_ROW.match(text)) is None:
            return None
        busbw = next((float(cell) for cell in (row[5], row[6]) if cell not in (None, "N/A")), None)
        return table.op, int(row[1]), float(row[2]) / 1e3, busbw * table.gigabits if busbw is not None else None
    if table.program == "param":
        row = _PARAM_ROW.match(text)
        busbw = _last(row[4]) if row is not None else None
        if row is None or busbw is None:
            return None
        return _name(row[1] or ""), int(row[2]), float(row[3]) / 1e3, busbw * table.gigabits
    if table.program == "ds_bench":
        if (row := _BENCH_ROW.match(text)) is None:
            return None
        size = round(float(row[1]) * _BYTES[row[2]])
        return table.op, size, float(row[3]) * _MILLISECONDS[row[4]], float(row[6]) * table.gigabits
    if (row := _MSCCLPP_ROW.match(text)) is None:
        return None
    return table.op, int(row[1]), float(row[2]) / 1e3, float(row[4]) * table.gigabits


def _row_by_columns(table: _Table, text: str) -> tuple[str, int, float, float | None] | None:
    cells = text.split()
    if len(cells) <= max(table.columns) or not table.columns[2]:
        return None
    size, time, busbw = (cells[at] for at in table.columns)
    size = size.replace("_", "").replace(",", "")
    if not size.isdecimal() or len(size) > 15 or any(re.fullmatch(_NUMBER, cell) is None for cell in (time, busbw)):
        return None
    return table.op, int(size), float(time) / 1e3, float(busbw) * table.gigabits


def _last(columns: str) -> float | None:
    """The last of at least three numbers."""
    cells = columns.split()
    return float(cells[-1]) if len(cells) >= 3 and re.fullmatch(_NUMBER, cells[-1]) else None


def _name(op: str) -> str:
    return _NAMES.get(op, op)
