"""Summaries of Nsight Systems (`nsys stats`, as CSV or as columns), nvprof and rocprof, in a file or inside the log of a job.

Sums are of kernel times: kernels that run at the same time count each, and a kernel of NCCL also waits for its peers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import cells_of, plain_lines

_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001, "µs": 0.001, "ns": 1e-6}
_TITLE = re.compile(r'^ *"?Time ?\(%\)"?(?:,| {2,})"?(?:Total )?Time\b')
_NVPROF = re.compile(r"^(?:==\d+== )? *(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max +Name$")
_ROCPROF = re.compile(r'^(?:"?Name"?,"?Calls"?,"?TotalDuration(?:Ns)?"?,|"?Kernel_Name"?,"?Count"?,"?Sum\(ns\)"?,)')
_NVPROF_CSV = re.compile(r'^"?Type"?,"?Time\(%\)"?,"?Time"?,"?Calls"?,')
_NVPROF_ROW = re.compile(
    r"^ *(?:(?P<type>GPU activities|API calls|OpenACC[ \w()]*): *)?(?P<share>\d+(?:\.\d*)?)% +(?P<time>\d+(?:\.\d*)?)(?P<unit>m?s|us|ns) +"
    r"(?P<n>\d+) +[\d.]+(?:m?s|us|ns) +[\d.]+(?:m?s|us|ns) +(?P<max>\d+(?:\.\d*)?)(?P<max_unit>m?s|us|ns) +(?P<name>\S.*)$"
)
_UNIT = re.compile(r"\((s|ms|us|µs|ns)\)")
_COMMUNICATION = re.compile(
    r"(?:nccl|rccl|msccl)\w{0,120}Kernel|nvshmem\w{0,120}(?:kernel|reduce|bcast)|^nccl:", re.IGNORECASE
)
_LONGEST = 20  # rows of each report that are kept beside those of communication and copies
_MOST = 200  # of those


class _Row(NamedTuple):
    """One line of a table."""

    report: str  # kernels, copies, api or ranges
    label: str
    calls: int
    total: float  # ms
    share: float | None  # % of the report
    longest: float | None  # ms


@dataclass
class _Sum:
    rows: int = 0
    n: int = 0
    total: float = 0.0  # ms
    longest: tuple[float, int, str] = (-1.0, 0, "")


@dataclass
class _Tables:
    """The table that is open, and the sums of all."""

    tool: str = "nsys"
    report: str | None = None  # None outside of a table
    columns: list[str] = field(default_factory=list)
    comma: bool = False
    units: list[str] = field(default_factory=list)
    sums: dict[tuple[str, str, str], _Sum] = field(default_factory=dict)
    kept: dict[tuple[str, str], list[tuple[float, ProfileSum, str]]] = field(default_factory=dict)

    def unit(self, column: str) -> str | None:
        """The unit of a column in the line of units that nvprof prints under its titles."""
        return self.units[self.columns.index(column)] if self.units and column in self.columns else None


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all tables of a file.

    Source: `nsys stats` 2020 to 2025 (reports gpukernsum, cuda_gpu_kern_sum and their like), nvprof of CUDA 8 to 11::

        Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
        61.2,814220112,1200,678516.8,655423.0,98431,2217439,101220.4,ncclDevKernel_AllReduce_Sum_f32_RING_LL

         GPU activities:   61.20%  814.22ms      1200  678.52us  98.431us  2.2174ms  ncclAllReduceRingLLKernel_sum_f32

    and `rocprof --stats` and `rocprofv3 --stats` of ROCm 5 to 7::

        "Name","Calls","TotalDurationNs","AverageNs","Percentage"
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",800,3901234567,4876543.2,39.5

    and `pmc_kernel_top.csv` of rocprof-compute 2 and 3::

        Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct
        "gemm_64x64(float const*, float*)",150,5622313.2,37482.1,37210.0,87.0
    """
    facts.mark_covered("profile_sum", "profile_share")
    tables = _Tables()
    understood = number = 0
    line = ""
    for number, _, line in plain_lines(stream):
        understood += _take_line(tables, name, number, line)
    facts.add(_rows(facts, name, tables))
    note = None if tables.sums else "holds no row of a summary"
    if tables.report is not None and tables.comma and 0 < len(_cells(tables, line)) < len(tables.columns):
        note = note or f"the last record, in line {number:,}, is cut"
    return Reading(number, understood, note)


def _take_line(tables: _Tables, file: str, number: int, line: str) -> int:
    """Open or close a table, or count a row. Returns 1 for a line that was used."""
    if _open_table(tables, line):
        return 1
    if tables.report is None:
        return 0
    if not line.strip():
        tables.report = None
        return 0
    columns = tables.tool == "nvprof" and not tables.comma
    row = _parse_nvprof_row(tables, line) if columns else _parse_row(tables, line)
    if row is None:
        return 0
    _count(tables, file, number, line, row)
    return 1


def _open_table(tables: _Tables, line: str) -> bool:
    """Whether a line holds the titles of a table, which is open from here on."""
    if _NVPROF.match(line):
        tables.tool, tables.report, tables.comma, tables.columns = "nvprof", "kernels", False, []
        return True
    if _ROCPROF.match(line):
        tables.tool, tables.report, tables.comma, tables.units = "rocprof", "kernels", True, []
        tables.columns = cells_of(line.strip())
        return True
    if not _TITLE.match(line) and not _NVPROF_CSV.match(line):
        return False
    comma = "," in line
    columns = cells_of(line.strip()) if comma else re.split(r" {2,}", line.strip())
    if not columns:
        return False
    tables.comma, tables.columns = comma, columns
    tables.tool = "nvprof" if tables.columns[0].strip() == "Type" else "nsys"
    tables.report = _report_of(tables.columns)
    tables.units = []
    return True


def _count(tables: _Tables, file: str, number: int, line: str, row: _Row) -> None:
    """Add a row to the sums, and keep it while it is among the longest of its kind."""
    kind = _kind(row.report, row.label)
    sums = tables.sums.setdefault((tables.tool, row.report, kind), _Sum())
    sums.rows += 1
    sums.n += row.calls
    sums.total += row.total
    sums.longest = max(sums.longest, (row.total, number, line.strip()))
    fact = ProfileSum(
        file=file, tool=tables.tool, report=row.report, kind=kind, name=row.label, n=row.calls, total_ms=row.total,
        share=row.share, max_ms=row.longest, ref=number,
    )  # fmt: skip
    kept = tables.kept.setdefault((row.report, kind), [])
    kept.append((row.total, fact, line.strip()))
    if len(kept) > 2 * _MOST:
        tables.kept[row.report, kind] = sorted(kept, key=lambda item: -item[0])[: _most(kind)]


def _report_of(columns: list[str]) -> str:
    last = columns[-1].strip().lower()
    names = {column.strip().lower() for column in columns}
    if "num calls" in names or "calls" in names:
        return "api"
    if "style" in names or last == "range":
        return "ranges"
    return "copies" if last == "operation" and "category" not in names else "kernels"


def _parse_nvprof_row(tables: _Tables, line: str) -> _Row | None:
    match = _NVPROF_ROW.match(line)
    if match is None:
        return None
    if match["type"]:
        tables.report = "kernels" if match["type"] == "GPU activities" else "api"
    longest = float(match["max"]) * _MS[match["max_unit"]]
    total = float(match["time"]) * _MS[match["unit"]]
    report = _gpu_report(match["name"]) if tables.report == "kernels" else "api"
    return _Row(report, match["name"], int(match["n"]), total, float(match["share"]), longest)


def _parse_row(tables: _Tables, line: str) -> _Row | None:
    """A row of nsys, or of nvprof as CSV; None for other lines, and for the line of units, which is kept."""
    cells = _cells(tables, line)
    if tables.tool == "nvprof" and len(cells) == len(tables.columns) and cells[1] == "%":
        tables.units = cells
        return None
    if len(cells) != len(tables.columns):
        return None
    if tables.tool == "rocprof":
        return _rocprof_row(tables, cells)
    titles = [column.strip().split(" (")[0].lower() for column in tables.columns]
    by_title = dict(zip(titles, map(str.strip, cells), strict=True))
    times = ("total time",) if tables.tool == "nsys" else ("total time", "time")
    total, longest = _first_number(by_title, *times), _first_number(by_title, "max", "maximum")
    count = _first_number(by_title, "instances", "count", "num calls", "calls")
    if total is None or count is None or not cells[-1].strip():
        return None
    total_unit, longest_unit = _row_units(tables)
    return _Row(
        _row_report(tables, by_title, cells[-1].strip()),
        cells[-1].strip(),
        int(count),
        total * total_unit,
        _number(cells[1] if tables.tool == "nvprof" else cells[0]),
        None if longest is None else longest * longest_unit,
    )


def _rocprof_row(tables: _Tables, cells: list[str]) -> _Row | None:
    """A row of rocprof: the name first, times in ns; kernels, copies and calls of the API are files of one form."""
    by_title = dict(zip(tables.columns, map(str.strip, cells), strict=True))
    label = cells[0].strip()
    total = _first_number(by_title, "TotalDurationNs", "TotalDuration", "Sum(ns)")
    count = _first_number(by_title, "Calls", "Count")
    if total is None or count is None or not label:
        return None
    is_copy = label.startswith(("MEMORY_COPY_", "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBuffer"))
    report = "api" if re.match(r"(?:hip|hsa_|roctx)\w{1,80}$", label) else "copies" if is_copy else "kernels"
    longest, share = _first_number(by_title, "MaxNs"), _first_number(by_title, "Percentage", "Pct")
    return _Row(report, label, int(count), total * 1e-6, share, None if longest is None else longest * 1e-6)


def _cells(tables: _Tables, line: str) -> list[str]:
    if tables.comma:
        return cells_of(line.strip())
    return re.split(r" {2,}", line.strip(), maxsplit=len(tables.columns) - 1)


def _row_units(tables: _Tables) -> tuple[float, float]:
    """Milliseconds of one unit of the total and of the longest time; nsys writes the unit into the title."""
    title = next((column for column in tables.columns if column.strip().lower().startswith("total time")), "")
    unit = tables.unit("Time") if tables.units else (_UNIT.findall(title) or ["ns"])[0]
    total = _MS.get(unit or "", 1e-6)
    own = tables.unit("Max") if tables.tool == "nvprof" else None
    return total, total if own is None else _MS.get(own, 1e-6)


def _row_report(tables: _Tables, by_title: dict[str, str], label: str) -> str:
    report = tables.report or "kernels"
    if tables.tool == "nvprof":
        report = "api" if by_title.get("type", "").startswith("API") else "kernels"
    return _gpu_report(label) if report == "kernels" else report


def _first_number(by_title: dict[str, str], *titles: str) -> float | None:
    """The number under the first of these titles that has a text."""
    return _number(next((text for title in titles if (text := by_title.get(title))), None))


def _most(kind: str) -> int:
    return _MOST if kind in ("communication", "copy") else _LONGEST


def _gpu_report(label: str) -> str:
    """nvprof and one table of nsys mix kernels and copies."""
    return "copies" if label.startswith("[CUDA") else "kernels"


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None


def is_communication(label: str) -> bool:
    """Whether a kernel or operator moves data between GPUs."""
    return _COMMUNICATION.search(label) is not None


def _kind(report: str, label: str) -> str:
    if report == "copies":
        return "memset" if "memset" in label.lower() else "copy"
    if is_communication(label):
        return "communication"
    return "compute" if report == "kernels" else "other"


def _rows(facts: Facts, file: str, tables: _Tables) -> Iterator[object]:
    for (tool, report, kind), sums in tables.sums.items():
        _, number, line = sums.longest
        ref = facts.evidence(file, number, line)
        yield ProfileShare(file, tool, report, kind, sums.rows, sums.n, sums.total, ref)
    for (_, kind), kept in tables.kept.items():
        for _, row, line in sorted(kept, key=lambda item: -item[0])[: _most(kind)]:
            yield row._replace(ref=facts.evidence(file, row.ref, line))
